"""Write an answer in any format: pieces of text in, the events of a stream out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from burnish.proxy.surfaces.lenient import Json

EVENTS = "text/event-stream; charset=utf-8"
"""Content type of a stream of events."""
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

LocalAnswer = tuple[str, Iterable[bytes]]
"""An answer of burnish's own: its content type and the parts of its body."""


@dataclass(frozen=True, slots=True, eq=False)
class ToolCall:
    """A tool call, compared by identity."""

    id: str
    name: str


class AnswerPiece(NamedTuple):
    """A piece of an answer. Consecutive pieces of the same kind (and call) are one text."""

    kind: Literal["thought", "text", "refusal", "call"]
    text: str
    call: ToolCall | None = None
    """The call whose arguments the text is part of."""


@dataclass(slots=True)
class WholeCalls:
    """For formats whose arguments are objects: passes texts on at once, and calls when they are complete."""

    _call: ToolCall | None = None
    """The current call."""
    _arguments: list[str] = field(default_factory=list)

    def take(self, piece: AnswerPiece) -> Iterator[AnswerPiece]:
        """Add a piece; return the pieces that can be written."""
        if piece.call is not self._call:
            yield from self.close()
        if piece.call is not None:
            self._call = piece.call
            self._arguments.append(piece.text)
        elif piece.text:
            yield piece

    def close(self) -> Iterator[AnswerPiece]:
        if self._call is not None:
            yield AnswerPiece("call", "".join(self._arguments), self._call)
        self._call = None
        self._arguments.clear()


class AnswerWriter(ABC):
    content_type: str
    """Of a stream."""
    whole: Json
    """The answer for a client that doesn't stream; valid after ``end``."""

    def begin(self) -> Iterator[bytes]:
        """Return the first bytes of a stream, if it needs any."""
        return iter(())

    @abstractmethod
    def take(self, piece: AnswerPiece) -> Iterator[bytes]:
        """Return the bytes that a piece adds to a stream."""

    @abstractmethod
    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        """Return the last bytes of a stream. Reason and counts are chat's."""

    @abstractmethod
    def fail(self, words: str) -> Iterator[bytes]:
        """Return the last bytes of a stream that failed."""


def local_answer(
    writer: AnswerWriter, text: str, *, stream: bool, content_type: str = "application/json"
) -> LocalAnswer:
    """Write an answer of burnish's own; ``content_type``: of one that isn't streamed."""
    parts = [*writer.begin(), *writer.take(AnswerPiece("text", text)), *writer.end("stop", NO_USAGE)]
    return (writer.content_type, parts) if stream else (content_type, [orjson.dumps(writer.whole)])


def count_in(counts: Any, name: str) -> int:
    """Return a token count; 0 if it is missing."""
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) else 0


def event(kind: str, **members: Any) -> bytes:
    """Return an event with its name as both ``event`` and ``type``, as Anthropic and Responses send it."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **members}))


def json_or_text(text: str) -> Any:
    """Return JSON as a value; the text if it isn't JSON or was cut off."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def arguments_of(text: str) -> Json:
    """Parse a call's arguments. A value that isn't an object becomes the argument ``arguments``."""
    arguments = json_or_text(text or "{}")
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}
