"""An answer on the screen while it arrives: its finished blocks of Markdown, and those that may still change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

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


# -- Markdown ----------------------------------------------------------------------------------------------------------

CODE = frozenset({"fence", "code_block"})
THEME = "ansi_dark"
"""The terminal's own colours, which fit its background."""


class Code(CodeBlock):
    """Code without padding and line ends of ours, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.highlighted()

    def highlighted(self) -> Text:
        text = Syntax("", self.lexer_name, theme=THEME, tab_size=0).highlight(str(self.text))
        text.rstrip()
        text.overflow = "fold"
        return text


class Block(Markdown):
    """Some blocks of a text, as the parser read them."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = Markdown.elements | dict.fromkeys(CODE, Code)

    def __init__(self, tokens: Sequence[Token]) -> None:
        # A link shows its address, because the name may disguise it.
        super().__init__("", hyperlinks=False)
        self.parsed = list(tokens)

    @property
    def code(self) -> Code | None:
        if len(self.parsed) != 1 or self.parsed[0].type not in CODE:
            return None
        element = Code.create(self, self.parsed[0])
        assert isinstance(element, Code)
        element.text = Text(self.parsed[0].content)
        return element


class Blocks:
    """A text that grows. A block is finished once another one follows it."""

    def __init__(self) -> None:
        # Nothing is lost: what rich would leave out stays text (HTML, references, images).
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self._parser = parser.disable(["reference", "image"])
        self._rest = ""
        """From the first block that isn't finished."""

    def feed(self, text: str) -> None:
        self._rest += plain(text)

    def finished(self) -> list[Block]:
        """Return the blocks that were finished since the last call."""
        # A line that isn't whole may seem to begin a block: "#" begins a heading, but "#1" doesn't.
        whole, newline, _ = self._rest.rpartition("\n")
        tokens = self._tokens(whole + newline)
        starts = _starts(tokens)
        if len(starts) < 2:  # noqa: PLR2004
            return []
        last = starts[-1]
        (line, _) = tokens[last].map or (0, 0)
        self._rest = "\n".join(self._rest.split("\n")[line:])
        return _split(tokens[:last])

    def open(self) -> Block:
        """Return what isn't finished, as it stands."""
        return Block(self._tokens(self._rest))

    def close(self) -> list[Block]:
        """Return what is left at the end of the text."""
        tokens, self._rest = self._tokens(self._rest), ""
        return _split(tokens)

    def _tokens(self, text: str) -> list[Token]:
        tokens = self._parser.parse(text)
        for token in tokens:
            for child in token.children or ():
                if child.type == "softbreak":  # lines stay lines: verses, addresses
                    child.type = "hardbreak"
        return tokens


def _starts(tokens: Sequence[Token]) -> list[int]:
    """Return where the outermost blocks begin."""
    return [place for place, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0]


def _split(tokens: Sequence[Token]) -> list[Block]:
    return [Block(tokens[start:end]) for start, end in pairwise([*_starts(tokens), len(tokens)])]
