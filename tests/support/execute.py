"""Another program, run to its end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.patience import within


def execute(
    *command: str | Path,
    stdin: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """``env``: variables besides those of this process; ``limit_s``: as for the reference machine."""
    return subprocess.run(
        command,
        input=stdin,
        cwd=cwd,
        env=os.environ | (env or {}),
        timeout=within(limit_s),
        capture_output=True,
        text=True,
        check=False,
    )
