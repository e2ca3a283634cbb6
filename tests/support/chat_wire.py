"""What a server of chat completions sends: a completion whole, and as the chunks of a stream."""

from __future__ import annotations

from typing import Any

import orjson

Json = dict[str, Any]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock"}
DONE = b"data: [DONE]\n\n"


def called(name: str, arguments: Any, call_id: str = "call_1") -> Json:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": call_id, "type": "function", "function": function}


def whole(message: Json, finish_reason: str | None = None, **more: Any) -> Json:
    """A completion; without ``finish_reason`` the message decides. ``more``: other members of it."""
    finish = finish_reason or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {**HEAD, "choices": [choice], "usage": USAGE, **more}


def chunks(completion: Json, size: int = 5) -> list[bytes]:
    """The events of the same as a stream, ``size`` characters to a chunk."""
    (choice,), message = completion["choices"], completion["choices"][0]["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in cut(message.get(name) or "", size)]
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in cut(function["arguments"], size):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    head = {name: value for name, value in completion.items() if name not in ("object", "choices", "usage")}
    events = [chunk(delta, **head) for delta in deltas]
    events.append(chunk({}, choice["finish_reason"], **head))
    return [*events, chunk(None, usage=completion["usage"], **head), DONE]


def chunk(delta: Json | None, finish_reason: str | None = None, **more: Any) -> bytes:
    """One event of a stream; without a delta it has no choices. ``more``: other members of it."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return data({**HEAD, "object": "chat.completion.chunk", "choices": choices, **more})


def data(event: Json) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
