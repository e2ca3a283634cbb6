"""Read a chat completion as it arrives: bytes in, pieces of the answer out."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from burnish.proxy.surfaces.deltas import Call, Calls, Deltas
from burnish.proxy.surfaces.ends import STOP_TYPE, choices_of, end_in
from burnish.proxy.surfaces.lenient import Json, TooMuch, decode, error_in, loads, objects
from burnish.proxy.surfaces.sse import (
    DONE,
    EVENT_LIMIT_BYTES,
    JsonEvents,
    SseParser,
    StreamEvent,
    is_streamed,
    parts_of,
)
from burnish.proxy.surfaces.writing import AnswerPiece, ToolCall

THOUGHTS = ("reasoning_content", "reasoning")
"""Members in which engines send thoughts: one of them, or the same text in both."""


class ChatReader:
    def __init__(self, content_type: str, content_encoding: str) -> None:
        self._parser = SseParser(EVENT_LIMIT_BYTES)
        self._content_type = content_type
        self._encoding = content_encoding
        self.early = not content_encoding and "event-stream" in content_type
        """Whether it can be read while it arrives."""
        self._kept: list[bytes] | None = None if self.early else []
        self._begins = self.early
        self._deltas = Deltas()
        self._calls = Calls()
        self._told: list[ToolCall] = []
        """Those that were begun, of the calls so far."""
        self._told_texts = 0
        """Pieces of the last one's arguments that were told."""
        self._half = ""
        self._stop_type: Any = None
        self.finish_reason: str | None = None
        self.usage: Json | None = None
        self.done = False
        """Whether the stream declared its end."""
        self.error: str | None = None
        """Why the answer failed."""

    @property
    def ended(self) -> bool:
        """True if the answer declared that it is complete."""
        return self.done or self.finish_reason is not None

    def feed(self, chunk: bytes) -> list[AnswerPiece]:
        if self._begins and chunk.strip():
            self._begins = False
            if chunk.lstrip().startswith(b"{"):
                self._kept = []  # lines instead of events: too rare to be read early
        if self._kept is not None:
            self._kept.append(chunk)
            return []
        try:
            return self._events(self._parser.feed(chunk))
        except TooMuch as error:
            self._fail(error)
            return []

    def close(self) -> list[AnswerPiece]:
        """Return the remaining pieces after the last byte."""
        try:
            return [*self._remaining(), *map(self._valid, self._grown(last=True))]
        except ValueError as error:
            self._fail(error)
            return []

    def _remaining(self) -> list[AnswerPiece]:
        if self._kept is None:
            return self._events(self._parser.close())
        body = decode(b"".join(self._kept), self._encoding)
        if is_streamed(body, self._content_type):
            return self._events([event for event, _ in JsonEvents(body)])
        whole = loads(body)
        if not isinstance(whole, dict):
            return []
        self.done = bool(whole.get("choices"))
        return [*map(self._valid, self._read(whole))]

    def _fail(self, error: ValueError) -> None:
        self.error = f"the upstream's answer cannot be read: {error}"

    def _events(self, events: Iterable[StreamEvent]) -> list[AnswerPiece]:
        pieces: list[AnswerPiece] = []
        for part, content in chain.from_iterable(map(parts_of, events)):
            if part.data.strip() == DONE and not self.done:
                self.done = True
                pieces += self._grown(last=True)
            elif isinstance(content, dict) and not self.done:  # some servers send other text
                pieces += self._read(content)
        return [*map(self._valid, pieces)]

    def _read(self, chunk: Json) -> Iterator[AnswerPiece]:
        self.error = self.error or error_in(chunk)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in choices_of(chunk):
            if choice.get("index"):
                continue
            self._stop_type = choice.get(STOP_TYPE) or self._stop_type
            end = end_in(choice, self._stop_type)
            self.error = self.error or end.failure
            self.finish_reason = end.reason or self.finish_reason
            yield from self._pieces_of(self._deltas.take(choice))

    def _valid(self, piece: AnswerPiece) -> AnswerPiece:
        """Return a piece with a valid text; the first half of a surrogate pair waits for the second."""
        if piece.text.isascii():
            return piece
        text = self._half + piece.text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._half).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return piece._replace(text=text)

    def _pieces_of(self, delta: Json) -> Iterator[AnswerPiece]:
        if thought := next((delta[name] for name in THOUGHTS if isinstance(delta.get(name), str)), ""):
            yield from self._after_calls(AnswerPiece("thought", thought))
        if text := delta.get("content"):
            yield from self._after_calls(AnswerPiece("text", text))
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            yield from self._after_calls(AnswerPiece("refusal", refusal))
        if pieces := objects(delta.get("tool_calls")):
            self._calls.take(pieces)
            yield from self._grown()

    def _after_calls(self, piece: AnswerPiece) -> Iterator[AnswerPiece]:
        yield from self._grown(last=True)
        yield piece

    def _grown(self, *, last: bool = False) -> Iterator[AnswerPiece]:
        """Yield what the calls have grown, one call after the other, however the engine mixes them.

        A call begins with its arguments, or if nothing follows it (``last``): its name may come in pieces.
        """
        for call in self._calls.all[max(len(self._told) - 1, 0) :]:
            told = self._calls.all[len(self._told) - 1] if self._told else None
            if call is not told:
                if not (last or ((told is None or told.whole) and call.begun)):
                    return
                self._told.append(ToolCall(str(call.id or f"call_{secrets.token_hex(8)}"), call.name))
                self._told_texts = 0
                yield self._piece(call)
            elif self._told_texts < len(call.texts):
                yield self._piece(call)

    def _piece(self, call: Call) -> AnswerPiece:
        text = "".join(call.texts[self._told_texts :])
        self._told_texts = len(call.texts)
        return AnswerPiece("call", text, self._told[-1])
