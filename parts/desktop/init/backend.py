"""The packages that training needs, installed in the way in which burnish was."""

from __future__ import annotations

import importlib
import shlex
import subprocess

from burnish.config.config import Config
from burnish.system.extras import how_to_install, missing_for_training
from burnish.terminal.errors import CommandFailed

# Measured on Linux, torch for the CPU: 855 MB in site-packages.
SIZE = "about 0.9 GB on the disk, several with CUDA"


def missing_backend(config: Config) -> str | None:
    """Return the command that installs what training lacks; None if it lacks nothing, or is off."""
    return how_to_install("train") if config.train.enabled and missing_for_training() else None


def install(command: str) -> None:
    """Raises CommandFailed if the command fails, or if training can't run even then."""
    try:
        status = subprocess.run(shlex.split(command), check=False).returncode
    except OSError as error:
        raise CommandFailed(f"{command} can't be started: {error.strerror}; nothing was changed") from error
    importlib.invalidate_caches()
    if status or (missing := missing_for_training()):
        why = f"ended with {status}" if status else f"left out {', '.join(missing)}"
        raise CommandFailed(
            f"{command} {why}; no setting was changed. To set burnish up without training: burnish init --no-install"
        )
