"""Files that commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from burnish.terminal.errors import WrongUsage


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """Create a file that only its owner can read; delete it if the block fails. Raises WrongUsage."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise WrongUsage(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as writer:
            yield writer
    except BaseException:
        path.unlink(missing_ok=True)
        raise
