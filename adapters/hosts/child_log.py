"""The log of a child process: what it prints, and its end for an error message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

# How much of a log goes into an error message.
TAIL_LINES = 5
TAIL_BYTES = 4096
# Checked when a child starts; a longer log helps nobody.
LIMIT_BYTES = 1024 * 1024


def open_log(path: Path) -> BinaryIO:
    """Open a child's log for appending, mode 0600; empty it first if it has grown too long."""
    too_long = path.exists() and path.stat().st_size > LIMIT_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if too_long else 0)
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def tail(path: Path) -> str:
    try:
        lines = path.read_bytes()[-TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    last = " | ".join(line.strip() for line in lines[-TAIL_LINES:] if line.strip())
    return f"Its log {path} ends with: {last}" if last else f"Its log {path} is empty"
