"""What a server that speaks Anthropic Messages sends: a message whole, and as the events of a stream."""

from __future__ import annotations

from typing import Any

import orjson

from tests.support.chat_wire import cut

Block = dict[str, Any]

USAGE = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 10,
    "output_tokens": 7,
}


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def thinking(thought: str) -> Block:
    return {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}


def tool_use(name: str, given: dict[str, Any], id: str = "toolu_1") -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def message(
    *content: Block, id: str = "msg_1", stop_reason: str = "end_turn", model: str = "mock"
) -> dict[str, Any]:
    head = {"id": id, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    return head | {"content": [*content], "stop_reason": stop_reason, "usage": USAGE}


def message_events(*content: Block, size: int = 5, **more: str) -> list[bytes]:
    """The events of a streamed message, ``size`` characters to a delta; ``more``: as of a whole one."""
    whole = message(**more)
    begun = {**whole, "stop_reason": None, "usage": USAGE | {"output_tokens": 1}}
    parts = [event("message_start", message=begun), event("ping")]
    for index, block in enumerate(content):
        start, deltas = _pieces(block, size)
        parts.append(event("content_block_start", index=index, content_block=start))
        parts += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        parts.append(event("content_block_stop", index=index))
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    parts.append(event("message_delta", delta=ending, usage={"output_tokens": USAGE["output_tokens"]}))
    return [*parts, event("message_stop")]


def event(kind: str, **members: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind} | members))


def _pieces(block: Block, size: int) -> tuple[Block, list[Block]]:
    if block["type"] == "text":
        return text(""), [{"type": "text_delta", "text": part} for part in cut(block["text"], size)]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in cut(block["thinking"], size)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return thinking("") | {"signature": ""}, deltas
    if block["type"] == "tool_use":
        written = cut(orjson.dumps(block["input"]).decode(), size)
        return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in written]
    return block, []
