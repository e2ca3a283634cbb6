"""The log of a child process: what it prints, and its end for an error message; and what its exit status means."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

# How much of the log goes into an error message.
TAIL_LINES = 5
TAIL_BYTES = 4096
# Checked when a child starts; a longer log helps nobody.
LIMIT_BYTES = 1024 * 1024

PROMPT = "$ "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# JSON that llama-server's models send its router, which prints it too. It tells a person nothing.
_TO_THE_ROUTER = " cmd_child_to_router:"


def open_log(path: Path) -> BinaryIO:
    """Open a child's log for appending, mode 0600; empty it first if it has grown too long."""
    too_long = path.exists() and path.stat().st_size > LIMIT_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if too_long else 0)
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def begin(log: BinaryIO, command: Sequence[str]) -> None:
    """Write the command line of a child that is about to start, where what it prints begins."""
    log.write(f"{PROMPT}{shlex.join(command)}\n".encode())
    log.flush()


def last_lines(path: Path, count: int = TAIL_LINES) -> list[str]:
    """Return the last lines that the latest child printed, without colours and empty ones; none without a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = _COLOUR.sub("", file.read().decode(errors="replace")).splitlines()
    except OSError:
        lines = []
    began = max((n + 1 for n, line in enumerate(lines) if line.startswith(PROMPT)), default=0)
    return [line.strip() for line in lines[began:] if line.strip() and _TO_THE_ROUTER not in line][-count:]


def tail(path: Path) -> str:
    """Return a sentence with the end of the log, for an error message."""
    last = " | ".join(last_lines(path))
    return f"Its log {path} ends with: {last}" if last else f"Its log {path} is empty"


def meaning(status: int) -> str:
    """Explain the exit status of a child; negative: the signal that ended it."""
    if status == -signal.SIGKILL:
        return "killed, most likely because memory ran out: close other programs, or use a smaller model"
    return f"signal {-status}" if status < 0 else f"status {status}"


def trim(path: Path) -> None:
    """Empty a log that has grown too long, while it is written; its content stays beside it in ``….1``."""
    with suppress(OSError):
        if path.stat().st_size > LIMIT_BYTES:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
