"""Write Gemini answers: whole, as a stream of events, or as a growing array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from burnish.proxy.surfaces.gemini_contents import Part
from burnish.proxy.surfaces.writing import EVENTS, Piece, WholeCalls, arguments_of

Json = dict[str, Any]

JSON = "application/json; charset=UTF-8"
FINISH_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
"""Chat's finish reason → Gemini's; any other is OTHER."""
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""HTTP status → Google's; any other is INTERNAL."""


def error_of(status: int, words: str) -> Json:
    """Return an error body."""
    return {"error": {"code": status, "message": words, "status": STATUSES.get(status, "INTERNAL")}}


class GeminiWriter:
    def __init__(self, response_id: str, model: str, *, events: bool = True) -> None:
        """``events``: stream events instead of an array."""
        self.content_type = EVENTS if events else JSON
        self._events = events
        self._head = {"modelVersion": model, "responseId": response_id}
        self._calls = WholeCalls()
        self._parts: list[Part] = []
        self._whole: Json = {}
        self._begun = False

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def take(self, piece: Piece) -> Iterator[bytes]:
        for ready in self._calls.take(piece):
            self._parts.append(_part(ready))
            yield self._next(self._answer(self._parts[-1:]))

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        called = [_part(ready) for ready in self._calls.close()]
        self._parts += called
        # As Google does: its clients keep the content of each part of a stream, and none may be empty.
        last = called or [{"text": ""}]
        ending = {"finishReason": FINISH_REASONS.get(finish_reason or "stop", "OTHER")}
        counts = {"usageMetadata": _counts(usage)} if usage else {}
        self._whole = self._answer(_joined(self._parts) or last, **ending) | counts
        yield self._next(self._answer(last, **ending) | counts) + self._close()

    def fail(self, words: str) -> Iterator[bytes]:
        yield self._next(error_of(500, words)) + self._close()

    def whole(self) -> Json:
        return self._whole

    def _answer(self, parts: Sequence[Part], **more: Any) -> Json:
        candidate = {"content": {"parts": parts, "role": "model"}, **more, "index": 0}
        return {"candidates": [candidate], **self._head}

    def _next(self, ready: Json) -> bytes:
        begun, self._begun = self._begun, True
        if self._events:
            return b"data: %b\r\n\r\n" % orjson.dumps(ready)
        return (b",\r\n" if begun else b"[") + orjson.dumps(ready)

    def _close(self) -> bytes:
        return b"" if self._events else b"]"


def _part(piece: Piece) -> Part:
    if piece.call:
        made = {"id": piece.call.id, "name": piece.call.name, "args": arguments_of(piece.text)}
        return {"functionCall": made}
    return {"text": piece.text} | ({"thought": True} if piece.kind == "thought" else {})


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Join consecutive texts of the same kind."""
    joined: list[Part] = []
    for kind, several in groupby(parts, lambda part: part.keys()):
        alike = list(several)
        joined += [{**alike[0], "text": "".join(part["text"] for part in alike)}] if "text" in kind else alike
    return joined


def _counts(usage: Json) -> Json:
    """Return Gemini's counts: thoughts count separately."""
    prompt, answered = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    thoughts = min(_count(usage.get("completion_tokens_details"), "reasoning_tokens"), answered)
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": answered - thoughts}
    besides = {"cachedContentTokenCount": cached, "thoughtsTokenCount": thoughts}
    return (
        counts
        | {name: count for name, count in besides.items() if count}
        | {"totalTokenCount": prompt + answered}
    )


def _count(counts: Any, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) else 0
