"""The configuration as commands read it: a wrong value is wrong usage, wherever it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnish.proxy.cli.errors import WrongUsage
from burnish.proxy.config import Config, load_config
from burnish.proxy.errors import ConfigError


def read_settings(flags: dict[str, Any] | None = None, *, file: Path | None = None) -> Config:
    """Read flags, environment and file. Raises WrongUsage, which names every wrong key."""
    try:
        return load_config(flags, file=file)
    except ConfigError as error:
        raise WrongUsage(str(error)) from error
