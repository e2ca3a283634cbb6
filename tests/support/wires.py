"""One answer of a model in each format that burnish knows: whole, and as a server streams it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tests.support import anthropic_wire, chat_wire, responses
from tests.support.chat_wire import cut

Wire = tuple[dict[str, Any], list[bytes]]
"""A whole answer, and the same streamed."""
PIECE = 5
"""Characters of a delta."""


@dataclass(frozen=True)
class Says:
    """One answer: a text, or the call of a tool."""

    text: str = ""
    arguments: dict[str, Any] | None = None
    thought: str = ""
    tool: str = "look_up"
    namespace: str = ""
    """Of the tool; only Responses know such."""


def _chat(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    usage = {"prompt_tokens": 10 + number, "completion_tokens": number, "total_tokens": 10 + 2 * number}
    message: dict[str, Any] = {"content": said.text or None}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.arguments is not None:
        message["tool_calls"] = [chat_wire.called(said.tool, said.arguments, f"call_{number}")]
    model = asked.get("model", "mock")
    whole = chat_wire.whole(message, id=f"chatcmpl-{number}", model=model, usage=usage)
    events = chat_wire.chunks(whole, PIECE)
    if not (asked.get("stream_options") or {}).get("include_usage"):
        del events[-2]
    return whole, events


def _responses(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    output = [responses.reasoning(said.thought, name=f"rs_{number}")] if said.thought else []
    output += [responses.message(said.text, name=f"msg_{number}")] if said.text else []
    if said.arguments is not None:
        call = responses.call(said.tool, orjson.dumps(said.arguments).decode(), f"call_{number}")
        output.append(call | ({"namespace": said.namespace} if said.namespace else {}))
    whole = responses.response(*output, response_id=f"resp_{number}", model=asked.get("model", "mock"))
    whole["usage"] |= {"input_tokens": 10 + number, "output_tokens": number, "total_tokens": 10 + 2 * number}
    return whole, responses.events(whole, PIECE)


def _messages(said: Says, number: int, asked: dict[str, Any]) -> Wire:
    blocks = [anthropic_wire.thinking(said.thought)] if said.thought else []
    blocks += [anthropic_wire.text(said.text)] if said.text else []
    more: Any = {"id": f"msg_{number}", "stop_reason": "end_turn", "model": asked.get("model", "mock")}
    if said.arguments is not None:
        blocks.append(anthropic_wire.tool_use(said.tool, said.arguments, f"toolu_{number}"))
        more["stop_reason"] = "tool_use"
    whole = anthropic_wire.message(*blocks, **more)
    return whole, anthropic_wire.message_events(*blocks, **more, size=PIECE)


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
        whole["tool_calls"] = [{"function": {"name": said.tool, "arguments": said.arguments}}]
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
        calls = [{"functionCall": {"id": f"call_{number}", "name": said.tool, "args": said.arguments}}]

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
