"""An answer on the screen while it arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, Protocol

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from burnish.parts.desktop.chat.markdown import Block, Blocks
from burnish.proxy.plain import plain

REDRAW_S = 0.08
REDRAW_SHARE = 5
"""Drawing takes at most a fifth of the time, however long a block is."""
MARGIN = 2
"""Columns that stay free: terminals disagree about the width of some emoji, and a line that is broken by the terminal
can't be redrawn."""


class AnswerPiece(NamedTuple):
    """A part of an answer as it came."""

    kind: Literal["reasoning", "content"]
    text: str


class AnswerDisplay(Protocol):
    """An answer that is being shown."""

    def add(self, piece: AnswerPiece) -> None: ...


class PlainAnswer:
    """For pipes and files: the text as it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind: str | None = None

    @classmethod
    @contextmanager
    def showing(cls, console: Console) -> Iterator[PlainAnswer]:
        display = cls(console)
        try:
            yield display
        finally:
            if display._kind:
                console.print()

    def add(self, piece: AnswerPiece) -> None:
        if piece.kind != self._kind:
            if self._kind:
                self._console.print()
            self._console.print("thinking › " if piece.kind == "reasoning" else "model › ", end="")
            self._kind = piece.kind
        self._console.out(piece.text, end="", highlight=False)


class LiveAnswer:
    """For terminals. Finished blocks scroll away like any output; only the open one is redrawn.

    An open block that is higher than the screen shows its end, and is printed as a whole once it is finished.
    """

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._kind: str | None = None
        self._blocks = Blocks()
        self._thoughts = ""
        """The line of the reasoning that isn't whole."""
        self._printed = False
        """Whether the answer has a block above, which needs a blank line."""
        self._redraw_at = 0.0

    @classmethod
    @contextmanager
    def showing(cls, console: Console) -> Iterator[LiveAnswer]:
        live = Live(Text("…", style="dim"), console=console, auto_refresh=False, transient=True)
        with live:
            live.refresh()
            display = cls(console, live)
            try:
                yield display
            finally:
                display._end_section()

    def add(self, piece: AnswerPiece) -> None:
        if piece.kind != self._kind:
            self._end_section()
            self._kind = piece.kind
            label = "[dim bold]thinking ›[/]" if piece.kind == "reasoning" else "[bold]model ›[/]"
            self._print(label)
        if piece.kind == "reasoning":
            self._thoughts += plain(piece.text)
        else:
            self._blocks.feed(piece.text)
        if time.monotonic() >= self._redraw_at:
            self._redraw()

    def _redraw(self) -> None:
        started = time.monotonic()
        if self._kind == "reasoning":
            whole, newline, self._thoughts = self._thoughts.rpartition("\n")
            if newline:
                self._print(_dim(whole))
            self._live.update(_Tail(_dim(self._thoughts)), refresh=True)
        else:
            self._print_blocks(self._blocks.finished())
            above = [Text()] if self._printed else []
            self._live.update(_Tail(Group(*above, self._blocks.open())), refresh=True)
        end = time.monotonic()
        self._redraw_at = end + max(REDRAW_S, REDRAW_SHARE * (end - started))

    def _end_section(self) -> None:
        """Print what is open, and leave nothing to redraw."""
        self._live.update(Text(end=""))
        if self._kind == "reasoning":
            if self._thoughts.strip():
                self._print(_dim(self._thoughts.rstrip()))
            self._thoughts = ""
            self._print(Text())
        elif self._kind:
            self._print_blocks(self._blocks.close())
        self._live.refresh()

    def _print_blocks(self, blocks: list[Block]) -> None:
        if blocks:
            self._live.update(Text(end=""))
        for block in blocks:
            if self._printed:
                self._print(Text())
            self._printed = True
            if code := block.code:
                # The terminal breaks long lines itself: copied, they are one line.
                self._console.print(_Raw(code.highlighted()), soft_wrap=True)
            else:
                self._print(block)

    def _print(self, what: RenderableType) -> None:
        self._console.print(what, width=self._console.width - MARGIN)


def _dim(text: str) -> Text:
    return Text(text, style="dim")


class _Raw:
    """A text as it is, with its tabs."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._text.render(console, end="\n")


class _Tail:
    """The last lines of something, as many as the screen has."""

    def __init__(self, whole: RenderableType) -> None:
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update(width=console.width - MARGIN, height=None)
        lines = console.render_lines(self._whole, narrow, pad=False)
        for line in lines[-max(1, console.height - MARGIN) :]:
            yield from line
            yield Segment.line()
