"""A terminal as a person sees it: a program runs on it, and its screen and what scrolled away can be read."""

from __future__ import annotations

import codecs
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyte

from tests.support.patience import within
from tests.support.program import on_terminal

SCROLLBACK = 10_000


class Emulator:
    """Draws what a program prints."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes], columns: int, rows: int) -> None:
        self.process = process
        self.raw = ""
        """All that came, with its escape sequences."""
        self._descriptor = descriptor
        self._screen = pyte.HistoryScreen(columns, rows, history=SCROLLBACK, ratio=0.5)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def lines(self) -> list[str]:
        """Return what scrolled away and what is on the screen, without empty lines at the end."""
        columns = range(self._screen.columns)
        above = ["".join(line[x].data for x in columns).rstrip() for line in self._screen.history.top]
        shown = [*above, *(line.rstrip() for line in self._screen.display)]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def text(self) -> str:
        return "\n".join(self.lines())

    def until(self, text: str, times: int = 1, limit_s: float | None = None) -> str:
        """Read until a text is there, so many times; return all that is there."""
        return self.wait(lambda: self.text().count(text) >= times, f"{text!r} × {times}", limit_s)

    def prompt(self, prompt: str, limit_s: float | None = None) -> str:
        """Read until the last line begins with a prompt; return all that is there."""
        return self.wait(lambda: self.lines()[-1:] and self.lines()[-1].startswith(prompt), prompt, limit_s)

    def wait(self, there: Callable[[], object], what: str, limit_s: float | None = None) -> str:
        limit_s = within(60) if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        while not there():
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited {limit_s:.0f} s for {what}, got:\n{self.text()}"
            text = self._decoder.decode(self._read(what))
            self.raw += text
            self._stream.feed(text)
        return self.text()

    def _read(self, what: str) -> bytes:
        try:
            return os.read(self._descriptor, 65_536)
        except OSError as error:  # nobody has the other end any more
            code = self.process.wait(within(10))
            raise AssertionError(
                f"waited for {what}, but it ended with code {code}:\n{self.text()}"
            ) from error


@contextmanager
def emulated(
    *arguments: str, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
) -> Iterator[Emulator]:
    """Run a command on a terminal of this size until the block is left."""
    ours = {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""} | dict(env or {})
    with on_terminal(*arguments, env=ours, rows=rows, columns=columns) as (screen, process):
        yield Emulator(screen.descriptor, process, columns, rows)
