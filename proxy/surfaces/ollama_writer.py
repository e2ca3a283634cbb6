"""Write Ollama answers: whole, and as the lines of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import Piece, WholeCalls, arguments_of

CALLS = ("tool_calls", "function_call")
"""Chat's finish reasons of tool calls, which are ``stop`` for Ollama."""
DURATIONS = ("total_duration", "eval_duration")


def as_message(message: Json) -> Json:
    """Return a message as members of an ``/api/chat`` answer."""
    return {"message": {"role": "assistant", **message}}


def as_response(message: Json) -> Json:
    """Return a message as members of an ``/api/generate`` answer."""
    return {
        "response": message["content"],
        **{key: value for key, value in message.items() if key != "content"},
    }


def error_of(words: str) -> Json:
    """Return the body, or the line, of an error."""
    return {"error": words}


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class OllamaWriter:
    content_type = "application/x-ndjson"

    def __init__(self, model: str, members_of: Callable[[Json], Json]) -> None:
        self._model = model
        self._members_of = members_of
        self._calls = WholeCalls()
        self._texts: dict[str, list[str]] = {"content": []}
        self._called: list[Json] = []
        self._whole: Json = {}
        self._began_ns = time.perf_counter_ns()

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def take(self, piece: Piece) -> Iterator[bytes]:
        for ready in self._calls.take(piece):
            yield self._written(ready)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        for ready in self._calls.close():
            yield self._written(ready)
        reason = "stop" if finish_reason is None or finish_reason in CALLS else finish_reason
        # Chat reports no durations, so all of it counts as generation.
        took_ns = time.perf_counter_ns() - self._began_ns
        ending = {
            "done": True,
            "done_reason": reason,
            **dict.fromkeys(DURATIONS, took_ns),
            **_counts(usage or {}),
        }
        message: Json = {name: "".join(texts) for name, texts in self._texts.items()}
        message |= {"tool_calls": self._called} if self._called else {}
        self._whole = self._head() | self._members_of(message) | ending
        yield self._line({"content": ""}, **ending)

    def fail(self, words: str) -> Iterator[bytes]:
        yield orjson.dumps(error_of(words)) + b"\n"

    def whole(self) -> Json:
        return self._whole

    def _written(self, piece: Piece) -> bytes:
        if piece.call:
            called = {"function": {"name": piece.call.name, "arguments": arguments_of(piece.text)}}
            self._called.append(called)
            return self._line({"content": "", "tool_calls": [called]}, done=False)
        name = "thinking" if piece.kind == "thought" else "content"
        self._texts.setdefault(name, []).append(piece.text)
        return self._line({"content": "", name: piece.text}, done=False)

    def _head(self) -> Json:
        return {"model": self._model, "created_at": now()}

    def _line(self, message: Json, **more: Any) -> bytes:
        return orjson.dumps(self._head() | self._members_of(message) | more) + b"\n"


def _counts(usage: Json) -> Json:
    counts = {"prompt_eval_count": usage.get("prompt_tokens"), "eval_count": usage.get("completion_tokens")}
    return {name: count for name, count in counts.items() if isinstance(count, int)}
