"""A model that says what a test told it to, in the format in which it is asked: the five that burnish knows."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.support import anthropic_wire, chat_wire, responses
from tests.support.chat_wire import cut
from tests.support.scripted_model import on_a_thread
from tests.support.upstream import Received, Script, reply, stream

Wire = tuple[dict[str, Any], list[bytes]]
"""A whole answer, and the same streamed."""
PIECE = 5
RETRY_AFTER = "7"
ERRORS = {404: "model_not_found", 429: "rate_limit_exceeded", 500: "server_error"}
REASONS = {404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(frozen=True)
class Says:
    """One answer: a text, or the call of the one tool."""

    text: str = ""
    arguments: dict[str, Any] | None = None
    thought: str = ""


@dataclass(frozen=True)
class Fails:
    """One refusal."""

    status: int


@dataclass
class SdkModel:
    """The running server."""

    url: str = ""
    says: deque[Says | Fails] = field(default_factory=deque)
    """What it is about to say."""
    requests: list[Received] = field(default_factory=list)


@contextmanager
def sdk_model(*, only: str = "") -> Iterator[SdkModel]:
    """Run it until the block is left; ``only``: the one format that it knows, by its path."""
    model = SdkModel()
    with on_a_thread(_script(model, only)) as server:
        model.url, model.requests = server.url, server.requests
        yield model


def _script(model: SdkModel, only: str) -> Script:
    numbers = itertools.count(1)
    formats = {only: FORMATS[only]} if only else FORMATS

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        path = request.target.partition("?")[0]
        wire = next((each for end, each in formats.items() if path.endswith(end)), None)
        if wire is None:
            found = path == "/v1/models"
            listed = reply(orjson.dumps({"object": "list", "data": [{"id": "mock"}]}))
            await (listed if found else reply(b"{}", status="404 Not Found"))(request, writer)
            return
        if not (asked := request.json()):
            await reply(b"{}", status="400 Bad Request")(request, writer)
            return
        said = model.says.popleft()
        if isinstance(said, Fails):
            await _refusal(said.status, path)(request, writer)
            return
        whole, parts = wire(said, next(numbers), asked)
        streamed = asked.get("stream", path == "/api/chat") or path.endswith(":streamGenerateContent")
        lines = "application/x-ndjson" if path == "/api/chat" else "text/event-stream"
        answer = stream(parts, content_type=lines) if streamed else reply(orjson.dumps(whole))
        await answer(request, writer)

    return script


def _refusal(status: int, path: str) -> Script:
    message, kind = f"refused with {status}", ERRORS[status]
    error: dict[str, Any] = {"error": {"message": message, "type": kind, "code": kind, "param": None}}
    if path == "/api/chat":
        error = {"error": message}
    elif path == "/v1/messages":
        error = {"type": "error", "error": {"type": kind, "message": message}}
    elif path.startswith("/v1beta"):
        error = {"error": {"code": status, "message": message, "status": kind.upper()}}
    headers = f"content-type: application/json\r\nretry-after: {RETRY_AFTER}\r\n"
    return reply(orjson.dumps(error), status=f"{status} {REASONS[status]}", headers=headers)


def _chat(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    usage = {"prompt_tokens": 10 + number, "completion_tokens": number, "total_tokens": 10 + 2 * number}
    message: dict[str, Any] = {"content": said.text or None}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.arguments is not None:
        message["tool_calls"] = [chat_wire.called("look_up", said.arguments, f"call_{number}")]
    whole = chat_wire.whole(message, id=f"chatcmpl-{number}", usage=usage)
    events = chat_wire.chunks(whole, PIECE)
    if not (asked.get("stream_options") or {}).get("include_usage"):
        del events[-2]
    return whole, events


def _responses(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    output = [responses.reasoning(said.thought, name=f"rs_{number}")] if said.thought else []
    output += [responses.message(said.text, name=f"msg_{number}")] if said.text else []
    if said.arguments is not None:
        output.append(responses.call("look_up", orjson.dumps(said.arguments).decode(), f"call_{number}"))
    whole = responses.response(*output, response_id=f"resp_{number}")
    whole["usage"] |= {
        "input_tokens": 10 + number,
        "output_tokens": number,
        "total_tokens": 10 + 2 * number,
    }
    return whole, responses.events(whole, PIECE)


def _messages(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    blocks = [anthropic_wire.thinking(said.thought)] if said.thought else []
    blocks += [anthropic_wire.text(said.text)] if said.text else []
    reason = "end_turn"
    if said.arguments is not None:
        blocks.append(anthropic_wire.tool_use("look_up", said.arguments, f"toolu_{number}"))
        reason = "tool_use"
    whole = anthropic_wire.message(*blocks, id=f"msg_{number}", stop_reason=reason)
    parts = anthropic_wire.message_events(*blocks, id=f"msg_{number}", stop_reason=reason, size=PIECE)
    return whole, parts


def _ollama(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    head = {"model": "mock", "created_at": "2026-01-01T00:00:00Z"}
    last = {"done": True, "done_reason": "stop", "prompt_eval_count": 10 + number, "eval_count": number}
    whole: dict[str, Any] = {"role": "assistant", "content": said.text}
    messages: list[dict[str, Any]] = []
    if said.thought:
        whole["thinking"] = said.thought
        messages += [{"content": "", "thinking": piece} for piece in cut(said.thought, PIECE)]
    messages += [{"content": piece} for piece in cut(said.text, PIECE)]
    if said.arguments is not None:
        whole["tool_calls"] = [{"function": {"name": "look_up", "arguments": said.arguments}}]
        messages.append({"content": "", "tool_calls": whole["tool_calls"]})
    lines = [{**head, "message": {"role": "assistant", **each}, "done": False} for each in messages]
    lines.append({**head, "message": {"role": "assistant", "content": ""}, **last})
    return {**head, "message": whole, **last}, [orjson.dumps(line) + b"\n" for line in lines]


def _gemini(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    usage = {
        "promptTokenCount": 10 + number,
        "candidatesTokenCount": number,
        "totalTokenCount": 10 + 2 * number,
    }
    thoughts = [{"text": piece, "thought": True} for piece in cut(said.thought, PIECE)]
    texts: list[dict[str, Any]] = [{"text": piece} for piece in cut(said.text, PIECE)]
    calls = []
    if said.arguments is not None:
        calls = [{"functionCall": {"id": f"call_{number}", "name": "look_up", "args": said.arguments}}]

    def answer(parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, **more}
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "mock",
            "responseId": f"r{number}",
        }

    whole = [{"text": said.thought, "thought": True}] if said.thought else []
    whole += [{"text": said.text}] if said.text else []
    pieces = [*thoughts, *texts, *calls]
    chunks = [answer([piece]) for piece in pieces[:-1]] + [answer(pieces[-1:], finishReason="STOP")]
    return (
        answer([*whole, *calls], finishReason="STOP"),
        [b"data: " + orjson.dumps(chunk) + b"\r\n\r\n" for chunk in chunks],
    )


FORMATS = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
    "/api/chat": _ollama,
    ":generateContent": _gemini,
    ":streamGenerateContent": _gemini,
}
