"""Markdown that arrives in pieces: blocks that are finished, and those that may still change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text

from burnish.proxy.plain import plain

CODE = frozenset({"fence", "code_block"})
THEME = "ansi_dark"
"""The terminal's own colours, which fit its background."""


def _parser() -> MarkdownIt:
    """Return a parser that loses nothing: what rich would leave out stays text (HTML, references, images)."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    return parser.disable(["reference", "image"])


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
        """The code, if this is a block of code."""
        if len(self.parsed) != 1 or self.parsed[0].type not in CODE:
            return None
        element = Code.create(self, self.parsed[0])
        assert isinstance(element, Code)
        element.text = Text(self.parsed[0].content)
        return element


class Blocks:
    """A text that grows. A block is finished once another one follows it."""

    def __init__(self) -> None:
        self._parser = _parser()
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
