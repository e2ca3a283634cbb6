"""An answer under way, whatever format it is written in: pieces of text go in, the events of a stream come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import orjson

EVENTS = "text/event-stream; charset=utf-8"
"""Content type of a stream of events."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of a tool. Two are the same only where they are one object."""

    id: str
    name: str


class Piece(NamedTuple):
    """A part of what a model says. Pieces of the same kind (and call) that follow each other are one text."""

    kind: Literal["thought", "text", "refusal", "call"]
    text: str
    call: Call | None = None
    """Which call's arguments the text is part of."""


@dataclass(slots=True)
class WholeCalls:
    """For formats that have a call's arguments as an object: texts pass as they come, each call when it is whole."""

    _call: Call | None = None
    """Whose arguments are under way."""
    _arguments: list[str] = field(default_factory=list)

    def take(self, piece: Piece) -> Iterator[Piece]:
        """Return what can be told with the next piece."""
        if piece.call is not self._call:
            yield from self.close()
        if piece.call is not None:
            self._call = piece.call
            self._arguments.append(piece.text)
        elif piece.text:
            yield piece

    def close(self) -> Iterator[Piece]:
        """Return what was still to be told."""
        if self._call is not None:
            yield Piece("call", "".join(self._arguments), self._call)
        self._call = None
        self._arguments.clear()


class Writer(Protocol):
    """Writes one answer in one format: begun, its pieces, its end."""

    content_type: str
    """Of a stream."""

    def begin(self) -> Iterator[bytes]:
        """Return what a stream begins with."""
        ...

    def take(self, piece: Piece) -> Iterator[bytes]:
        """Return what a stream says next."""
        ...

    def end(self, finish_reason: str | None, usage: dict[str, Any] | None) -> Iterator[bytes]:
        """Return what a stream ends with; reason and counts in chat's words."""
        ...

    def fail(self, words: str) -> Iterator[bytes]:
        """Return what a stream ends with in which something went wrong."""
        ...

    def whole(self) -> dict[str, Any]:
        """Return the answer as a client gets it that does not stream, once it is at its end."""
        ...


def event(kind: str, **members: Any) -> bytes:
    """Return an event of a stream that says its name twice, as those of Anthropic's and of Responses do."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **members}))


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object; what is none is its one argument, so that no tool runs without."""
    try:
        given = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        given = text
    if isinstance(given, dict):
        return given
    return {} if given is None else {"arguments": given}
