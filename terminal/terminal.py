"""Options, output, files and Ctrl-C, shared by all commands."""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from burnish.proxy.plain import escaped, plain
from burnish.proxy.records import rating_word
from burnish.terminal.errors import WrongUsage

Url = Annotated[str | None, typer.Option("--url", help="Address of burnish, if it isn't found by itself.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


class SafeConsole(Console):
    """Removes what could steer the terminal or disguise a text from all that it prints; only rich's styles remain.

    Texts of others need ``escape`` too, or rich reads them as markup.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain(text), style, control)


# Replies and questions are shown as they are: ":cat:" stays ":cat:".
console = SafeConsole(highlight=False, emoji=False)
errors = SafeConsole(highlight=False, emoji=False, stderr=True, soft_wrap=True)

SHOWN_CHARACTERS = 60


def printed_json(content: Any, as_json: bool) -> bool:
    """Print JSON if it is wanted; return whether it was."""
    if as_json:
        typer.echo(escaped(json.dumps(content, indent=2, ensure_ascii=False)))
    return as_json


class CtrlC:
    """Records Ctrl-C, and raises KeyboardInterrupt as usual.

    Python drops an exception that a signal handler raises inside a finaliser. A loop must therefore check.
    """

    def __init__(self) -> None:
        self._pressed = self._held = False

    def record(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        if not self._held:
            signal.default_int_handler(number, frame)

    def check(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let this block end before it is checked: half of it would leave a torn screen."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()


@contextmanager
def ctrl_c() -> Iterator[CtrlC]:
    pressed, previous = CtrlC(), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, pressed.record)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def unechoed() -> Iterator[None]:
    """Don't show keys on the terminal: they would tear what is drawn. They stay in the input."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)


def clock(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds).strftime("%m-%d %H:%M") if seconds else ""


def short(text: str | None, limit: int = SHOWN_CHARACTERS) -> str:
    """Return the first words of a text on one line, safe to print as markup."""
    words = " ".join(plain(text or "").split())
    return escape(words if len(words) <= limit else words[: limit - 1].rstrip() + "…")


def version_name(number: int) -> str:
    return f"v{number}" if number else "base"


def verdict(reward: float | None, scale: str | None) -> str:
    """Return a rating as it was given, in colour; "" if there is none."""
    return "" if reward is None else _coloured(rating_word(reward, scale), reward)


def rated(answer: dict[str, Any]) -> str:
    """Return what the ratings of an answer come to, in colour."""
    return _coloured(answer["rated"], answer["rating"])


def _coloured(words: str, reward: float) -> str:
    colour = "green" if reward > 0 else "red" if reward < 0 else "yellow"
    return f"[{colour}]{words}[/]"


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
