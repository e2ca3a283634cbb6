"""What a server of chat completions sends: a completion whole, and as the chunks of a stream."""

from __future__ import annotations

from typing import Any

import orjson

Json = dict[str, Any]
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def called(name: str, arguments: Any, call_id: str = "call_1") -> Json:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": call_id, "type": "function", "function": function}


def whole(message: Json, finish_reason: str | None = None, id: str = "chatcmpl-1", **more: Any) -> Json:
    """A completion; without ``finish_reason`` the message decides. ``more``: other members of it."""
    finish = finish_reason or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": id, "object": "chat.completion", "created": 1, "model": "mock"}
    return {**head, "choices": [choice], "usage": USAGE, **more}


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

    def event(choices: list[Json], **more: Any) -> bytes:
        head = {**completion, "object": "chat.completion.chunk", "choices": choices}
        del head["usage"]
        return b"data: " + orjson.dumps({**head, **more}) + b"\n\n"

    events = [event([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    events.append(event([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]))
    return [*events, event([], usage=completion["usage"]), b"data: [DONE]\n\n"]


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
