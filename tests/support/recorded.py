"""Streams as servers send them, one or two of each format: thoughts, text, calls of tools, usage, and errors midway.

An emoji stands in each text as two escapes in two events, as servers cut it that count UTF-16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support import anthropic_wire, responses
from tests.support.formats import NDJSON, OLLAMA, OLLAMA_END, SSE, USAGE

Json = dict[str, Any]
THOUGHT, TEXT = "They want rain.", "Grüße: 雨 😀 in Köln, “quoted”\n"
HALVES = (b"\xf0\x9f\x98\x80", b"\\ud83d", b"\\ude00")
"""An emoji, and its two escapes."""
ARGUMENTS = {"city": "Köln", "days": [1, 2], "note": 'a "b"'}
CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": []}
SERVER_ERROR = {"error": {"message": "out of memory", "type": "server_error", "code": 500}}


@dataclass(frozen=True)
class Recorded:
    """A streamed answer."""

    surface: str
    path: str
    parts: tuple[bytes, ...]
    content_type: str = SSE
    fails: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _data(*events: Json) -> tuple[bytes, ...]:
    return tuple(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


def _chunks(choices: Iterable[Json]) -> tuple[bytes, ...]:
    return _data(*(CHUNK | {"choices": [{"index": 0, "finish_reason": None} | choice]} for choice in choices))


def _halved(events: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Cut the first event that holds an emoji into two, with half of it each."""
    whole, first, second = HALVES
    at = next(index for index, event in enumerate(events) if whole in event)
    before, after = events[at].split(whole)
    text = before.rpartition(b'"')[2]
    end = after.partition(b'"')
    return (
        *events[:at],
        before + first + b"".join(end[1:]),
        before.removesuffix(text) + second + after,
        *events[at + 1 :],
    )


def _call(index: int, **function: Any) -> Json:
    return {"index": index, "function": function}


WRITTEN = orjson.dumps(ARGUMENTS).decode()
CHAT = (
    *_chunks({"delta": {"role": "assistant", "content": ""}} for _ in range(1)),
    *_chunks({"delta": {"reasoning_content": piece}} for piece in _pieces(THOUGHT)),
    *_halved(_chunks({"delta": {"content": piece}} for piece in _pieces(TEXT))),
)
CALLS = (
    *_chunks(
        {
            "delta": {
                "tool_calls": [
                    {"id": f"call_{index}", "type": "function", **_call(index, name="look", arguments="")}
                ]
            }
        }
        for index in range(2)
    ),
    *_chunks(
        {"delta": {"tool_calls": [_call(index, arguments=piece) for index in range(2)]}}
        for piece in _pieces(WRITTEN)
    ),
)
DONE = (*_data(CHUNK | {"usage": USAGE}), b"data: [DONE]\n\n")
ENDED = _chunks([{"delta": {}, "finish_reason": "tool_calls"}])
PROMPTED = _halved(_chunks({"text": piece} for piece in _pieces(TEXT)))
RESPONSE = responses.response(
    responses.reasoning(THOUGHT),
    responses.message(TEXT),
    responses.call("look", WRITTEN),
    responses.call("look", "{}", "call_2"),
)
BLOCKS = (
    anthropic_wire.thinking(THOUGHT),
    anthropic_wire.text(TEXT),
    anthropic_wire.tool_use("look", ARGUMENTS),
    anthropic_wire.tool_use("look", {}, "toolu_2"),
)
MESSAGE = _halved(tuple(anthropic_wire.message_events(*BLOCKS, stop_reason="tool_use", size=7)))
RESPONSES = tuple(responses.events(RESPONSE, piece=7))


def _lines(*parts: Json) -> tuple[bytes, ...]:
    return tuple(orjson.dumps(OLLAMA | part) + b"\n" for part in parts)


def _said(**message: Any) -> Json:
    return {"message": {"role": "assistant", "content": ""} | message}


OLLAMA_CHAT = (
    *_lines(*(_said(thinking=piece) for piece in _pieces(THOUGHT))),
    *_halved(_lines(*(_said(content=piece) for piece in _pieces(TEXT)))),
    *_lines(
        *(_said(tool_calls=[{"function": {"name": "look", "arguments": given}}]) for given in (ARGUMENTS, {}))
    ),
)
GENERATED = (
    *_lines(*({"response": "", "thinking": piece} for piece in _pieces(THOUGHT))),
    *_halved(_lines(*({"response": piece} for piece in _pieces(TEXT)))),
)


def _candidate(*parts: Json, **more: Any) -> Json:
    content = {"role": "model", "parts": list(parts)}
    counted = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    return {
        "candidates": [{"content": content, "index": 0} | more],
        "usageMetadata": counted,
        "responseId": "r1",
    }


GEMINI = _halved(
    _data(
        *(_candidate({"text": piece, "thought": True}) for piece in _pieces(THOUGHT)),
        *(_candidate({"text": piece}) for piece in _pieces(TEXT)),
        _candidate(
            {"functionCall": {"name": "look", "args": ARGUMENTS}},
            {"functionCall": {"name": "look", "args": {}}},
        ),
        _candidate({"text": ""}, finishReason="STOP"),
    )
)
GEMINI_PATH = "/v1beta/models/m:streamGenerateContent"
GROWING = b"[" + b"\n,\r\n".join(part.removeprefix(b"data: ").strip() for part in GEMINI) + b"\n]"

RECORDED = {
    "chat": Recorded("chat", "/v1/chat/completions", (*CHAT, *CALLS, *ENDED, *DONE)),
    "chat, an error midway": Recorded("chat", "/v1/chat/completions", (*CHAT, *_data(SERVER_ERROR)), fails=True),
    "completions": Recorded(
        "completions", "/v1/completions", (*PROMPTED, *_chunks([{"text": "", "finish_reason": "length"}]), *DONE)
    ),
    "completions, an error midway": Recorded(
        "completions", "/v1/completions", (*PROMPTED, *_data(SERVER_ERROR)), fails=True
    ),
    "responses": Recorded("responses", "/v1/responses", RESPONSES),
    "responses, an error midway": Recorded(
        "responses", "/v1/responses",
        (*RESPONSES[:-5], responses.sse("error", {"message": "out of memory", "code": "server_error"})), fails=True,
    ),
    "messages": Recorded("messages", "/v1/messages", MESSAGE),
    "messages, an error midway": Recorded(
        "messages", "/v1/messages",
        (*MESSAGE[:-2], anthropic_wire.event("error", error={"type": "api_error", "message": "out of memory"})),
        fails=True,
    ),
    "ollama_chat": Recorded(
        "ollama_chat", "/api/chat", (*OLLAMA_CHAT, *_lines(_said() | OLLAMA_END)), NDJSON
    ),
    "ollama_chat, an error midway": Recorded(
        "ollama_chat", "/api/chat", (*OLLAMA_CHAT, b'{"error":"out of memory"}\n'), NDJSON, fails=True
    ),
    "ollama_generate": Recorded(
        "ollama_generate", "/api/generate", (*GENERATED, *_lines({"response": ""} | OLLAMA_END)), NDJSON
    ),
    "gemini": Recorded("gemini", f"{GEMINI_PATH}?alt=sse", GEMINI),
    "gemini, an array": Recorded("gemini", GEMINI_PATH, (GROWING,), "application/json"),
    "gemini, an error midway": Recorded(
        "gemini", f"{GEMINI_PATH}?alt=sse", (*GEMINI[:-1], *_data(SERVER_ERROR)), fails=True
    ),
}  # fmt: skip
