"""Reads messages from a terminal with line editing, and from a pipe."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console
from rich.markup import escape

ASK = "you › "
RATE = "rate › "
WHY = "why › "
HINT = "g/b/1–5, c comment, Enter skips – or just go on"


class Keyboard(Protocol):
    """Each method returns None at the end of the input."""

    def message(self) -> str | None: ...

    def rating(self) -> str | None:
        """Return a rating, or the next message."""

    def why(self) -> str | None: ...

    def remember(self, message: str) -> None:
        """Keep a message, to be found again with the arrow keys."""


class LineKeyboard:
    """Each line is a message or a rating."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def message(self) -> str | None:
        return self._read("\n" + ASK)

    def rating(self) -> str | None:
        return self._read(f"rate ({HINT}): ")

    def why(self) -> str | None:
        return self._read(WHY)

    def remember(self, message: str) -> None:
        pass

    def _read(self, prompt: str) -> str | None:
        try:
            line = self._console.input(prompt)
        except EOFError:
            self._console.print()
            return None
        if not sys.stdin.isatty():  # a terminal would have shown it
            self._console.print(escape(line))
        return line
