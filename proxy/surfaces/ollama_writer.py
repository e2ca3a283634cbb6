"""Ollama's answers as a server writes them: whole, and as the lines of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from burnish.proxy.surfaces.writing import Piece, WholeCalls, arguments_of

Json = dict[str, Any]

CALLS = ("tool_calls", "function_call")
"""Why chat says that an answer ended that calls tools: to Ollama one that has stopped like any other."""
DURATIONS = ("total_duration", "eval_duration")


def as_message(said: Json) -> Json:
    """Return the members of an answer of ``/api/chat`` that say something."""
    return {"message": {"role": "assistant", **said}}


def as_response(said: Json) -> Json:
    """Return the members of an answer of ``/api/generate`` that say something."""
    return {"response": said["content"], **{key: value for key, value in said.items() if key != "content"}}


def error_of(words: str) -> Json:
    """Return the body, or the line, that reports what some words say."""
    return {"error": words}


def now() -> str:
    """Return the time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class OllamaWriter:
    """See Writer."""

    content_type = "application/x-ndjson"

    def __init__(self, model: str, saying: Callable[[Json], Json]) -> None:
        self._model = model
        self._saying = saying
        self._calls = WholeCalls()
        self._texts: dict[str, list[str]] = {"content": []}
        self._called: list[Json] = []
        self._whole: Json = {}
        self._began_ns = time.perf_counter_ns()

    def begin(self) -> Iterator[bytes]:
        """Return what a stream begins with."""
        return iter(())

    def take(self, piece: Piece) -> Iterator[bytes]:
        """Return what a stream says next."""
        for told in self._calls.take(piece):
            yield self._told(told)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        """Return what a stream ends with; reason and counts in chat's words."""
        for told in self._calls.close():
            yield self._told(told)
        reason = "stop" if finish_reason is None or finish_reason in CALLS else finish_reason
        # Chat does not say how long reading and answering took, so all of it counts as answering.
        took_ns = time.perf_counter_ns() - self._began_ns
        ending = {
            "done": True,
            "done_reason": reason,
            **dict.fromkeys(DURATIONS, took_ns),
            **_counts(usage or {}),
        }
        said: Json = {name: "".join(texts) for name, texts in self._texts.items()}
        said |= {"tool_calls": self._called} if self._called else {}
        self._whole = self._head() | self._saying(said) | ending
        yield self._line({"content": ""}, **ending)

    def fail(self, words: str) -> Iterator[bytes]:
        """Return what a stream ends with in which something went wrong."""
        yield orjson.dumps(error_of(words)) + b"\n"

    def whole(self) -> Json:
        """Return the answer as a client gets it that does not stream, once it is at its end."""
        return self._whole

    def _told(self, piece: Piece) -> bytes:
        if piece.call:
            called = {"function": {"name": piece.call.name, "arguments": arguments_of(piece.text)}}
            self._called.append(called)
            return self._line({"content": "", "tool_calls": [called]}, done=False)
        name = "thinking" if piece.kind == "thought" else "content"
        self._texts.setdefault(name, []).append(piece.text)
        return self._line({"content": "", name: piece.text}, done=False)

    def _head(self) -> Json:
        return {"model": self._model, "created_at": now()}

    def _line(self, said: Json, **more: Any) -> bytes:
        return orjson.dumps(self._head() | self._saying(said) | more) + b"\n"


def _counts(usage: Json) -> Json:
    counts = {"prompt_eval_count": usage.get("prompt_tokens"), "eval_count": usage.get("completion_tokens")}
    return {name: count for name, count in counts.items() if isinstance(count, int)}
