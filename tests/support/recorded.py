"""Streams as servers send them, one or two of each format: thoughts, text, calls of tools, usage, and errors midway.

An emoji stands in each text as two escapes in two events, as servers cut it that count UTF-16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support import anthropic_wire, responses, wires
from tests.support.chat_wire import called, chunk, cut, data

Json = dict[str, Any]
SSE, NDJSON = "text/event-stream; charset=utf-8", "application/x-ndjson"
THOUGHT, TEXT = "They want rain.", "Grüße: 雨 😀 in Köln, “quoted”\n"
HALVES = (b"\xf0\x9f\x98\x80", b"\\ud83d", b"\\ude00")
"""An emoji, and its two escapes."""
ARGUMENTS = {"city": "Köln", "days": [1, 2], "note": 'a "b"'}
SERVER_ERROR = data({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
SAID = {"reasoning_content": THOUGHT, "content": TEXT}
CALLS = {"tool_calls": [called("look", ARGUMENTS), called("look", {}, "call_2")]}
SIZE = 7


@dataclass(frozen=True)
class Recorded:
    surface: str
    path: str
    parts: tuple[bytes, ...]
    content_type: str = SSE
    fails: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


def _written(form: str) -> list[bytes]:
    return wires.write(form, SAID | CALLS, size=SIZE)[1]


def _halved(events: Iterable[bytes]) -> tuple[bytes, ...]:
    """Cut the first event that holds an emoji into two, with half of it each."""
    whole, first, second = HALVES
    events = list(events)
    at = next(index for index, event in enumerate(events) if whole in event)
    before, after = events[at].split(whole)
    text = before.rpartition(b'"')[2]
    end = after.partition(b'"')
    halves = (before + first + b"".join(end[1:]), before.removesuffix(text) + second + after)
    return (*events[:at], *halves, *events[at + 1 :])


def _chat_calls() -> list[bytes]:
    """The calls as some servers stream them: side by side, a piece of each in one event."""
    begun = [
        {**call, "index": index, "function": {"name": "look", "arguments": ""}}
        for index, call in enumerate(CALLS["tool_calls"])
    ]
    pieces = (
        [{"index": index, "function": {"arguments": piece}} for index in range(2)]
        for piece in cut(orjson.dumps(ARGUMENTS).decode(), SIZE)
    )
    return [chunk({"tool_calls": each}) for each in (*([call] for call in begun), *pieces)]


*CHAT, _, USAGE, DONE = _halved(wires.write(wires.CHAT, SAID, size=SIZE)[1])
PROMPTED = _halved(wires.write("/v1/completions", SAID, "length", size=SIZE)[1])
RESPONSES = _written("/v1/responses")
MESSAGE = _halved(_written("/v1/messages"))
OLLAMA_CHAT = _halved(_written("/api/chat"))
GENERATED = _halved(wires.write("/api/generate", SAID, size=SIZE)[1])
GEMINI = _halved(_written(":streamGenerateContent"))
GEMINI_PATH = "/v1beta/models/m:streamGenerateContent"
GROWING = b"[" + b"\n,\r\n".join(part.removeprefix(b"data: ").strip() for part in GEMINI) + b"\n]"

RECORDED = {
    "chat": Recorded("chat", "/v1/chat/completions", (*CHAT, *_chat_calls(), chunk({}, "tool_calls"), USAGE, DONE)),
    "chat, an error midway": Recorded("chat", "/v1/chat/completions", (*CHAT, SERVER_ERROR), fails=True),
    "completions": Recorded("completions", "/v1/completions", PROMPTED),
    "completions, an error midway": Recorded(
        "completions", "/v1/completions", (*PROMPTED[:-3], SERVER_ERROR), fails=True
    ),
    "responses": Recorded("responses", "/v1/responses", tuple(RESPONSES)),
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
    "ollama_chat": Recorded("ollama_chat", "/api/chat", OLLAMA_CHAT, NDJSON),
    "ollama_chat, an error midway": Recorded(
        "ollama_chat", "/api/chat", (*OLLAMA_CHAT[:-1], b'{"error":"out of memory"}\n'), NDJSON, fails=True
    ),
    "ollama_generate": Recorded("ollama_generate", "/api/generate", GENERATED, NDJSON),
    "gemini": Recorded("gemini", f"{GEMINI_PATH}?alt=sse", GEMINI),
    "gemini, an array": Recorded("gemini", GEMINI_PATH, (GROWING,), "application/json"),
    "gemini, an error midway": Recorded(
        "gemini", f"{GEMINI_PATH}?alt=sse", (*GEMINI[:-1], SERVER_ERROR), fails=True
    ),
}  # fmt: skip
