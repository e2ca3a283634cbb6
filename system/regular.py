"""Look at a file before it is opened: a FIFO blocks its reader, and a device or a huge file fills the memory."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

SETTINGS_BYTES = 1024**2
"""Settings that people write have kilobytes."""


def check_regular(path: Path, limit_bytes: int) -> None:
    """Raise OSError unless a path is, or links to, a regular file of at most ``limit_bytes``."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{path} is not a regular file")
    if found.st_size > limit_bytes:
        raise OSError(errno.EFBIG, f"{path} has {found.st_size} bytes, and the limit is {limit_bytes}")
