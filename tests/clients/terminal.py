"""A terminal that an agent believes in: it answers what terminals are asked, and is read as text."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROWS, COLUMNS = 40, 120
LIMIT_S = 60.0
QUESTIONS = {
    b"\x1b[6n": b"\x1b[1;1R",  # where is the cursor?
    b"\x1b[c": b"\x1b[?1;2c",  # what kind of terminal are you?
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",  # which colours?
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
CONTROL = re.compile(
    r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0e-\x1f]"
)
ENTER = b"\r"
AGAIN_S = 5.0
KEY_S = 0.05
SETTLED_S = 1.0
"""Interfaces take a moment from what was typed to what they believe was typed."""


class Terminal:
    """Our end of it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = b""
        self._entered = False

    def enter(self, text: str) -> None:
        """Type a line, and press enter once it stands there."""
        self._read_for(SETTLED_S)
        for character in text:
            os.write(self._descriptor, character.encode())
            self._read_for(KEY_S)
        self._read_for(SETTLED_S)
        self._seen = b""
        os.write(self._descriptor, ENTER)
        self._entered = True

    def until(self, text: str) -> None:
        """Read until a text has appeared since the last enter, however the interface breaks its lines.

        Now and then enter is pressed again: what is typed on a busy machine looks pasted, and enter a part of it.
        """
        deadline = time.monotonic() + LIMIT_S
        again = time.monotonic() + AGAIN_S
        while "".join(text.split()) not in "".join(self.text().split()):
            assert time.monotonic() < deadline, f"waited for {text!r}, got: {self.text()}"
            self._read_for(0.1)
            if self._entered and time.monotonic() > again:
                os.write(self._descriptor, ENTER)
                again += AGAIN_S

    def text(self) -> str:
        """What has appeared since the last enter, less what only moves and colours."""
        return CONTROL.sub("", self._seen.decode(errors="replace"))

    def _read_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                return
            try:
                new = os.read(self._descriptor, 65536)
            except OSError as error:
                raise AssertionError(f"it has ended: {self.text()}") from error
            self._seen += new
            for question, answer in QUESTIONS.items():
                if question in new:
                    os.write(self._descriptor, answer)


@contextmanager
def terminal(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program in a terminal of its own, and end it with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)
