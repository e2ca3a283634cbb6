"""Write Anthropic messages: whole, and as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from burnish.proxy.surfaces.messages_blocks import Block
from burnish.proxy.surfaces.writing import EVENTS, Piece, event

ID_PREFIX = "msg_"
STOP_REASONS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Chat's finish reason → Anthropic's; any other is ``end_turn``."""
DELTAS = {"thought": ("thinking_delta", "thinking"), "call": ("input_json_delta", "partial_json")}
TEXT_DELTA = ("text_delta", "text")
NO_COUNTS = {"input_tokens": 0, "output_tokens": 0}


class MessageWriter:
    content_type = EVENTS

    def __init__(self, completion_id: str, model: str) -> None:
        self._message: dict[str, Any] = {
            "id": ID_PREFIX + completion_id.partition("_")[2],
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": NO_COUNTS,
        }
        self._blocks: list[Block] = []
        """The complete ones."""
        self._open: Piece | None = None
        """First piece of the current block."""
        self._texts: list[str] = []

    def begin(self) -> Iterator[bytes]:
        yield event("message_start", message=self._message)

    def take(self, piece: Piece) -> Iterator[bytes]:
        if self._open is None or (self._open.kind, self._open.call) != (piece.kind, piece.call):
            yield from self._close()
            self._open = piece
            yield event("content_block_start", index=len(self._blocks), content_block=_block(piece, ""))
        if piece.text:
            self._texts.append(piece.text)
            kind, field = DELTAS.get(piece.kind, TEXT_DELTA)
            delta = {"type": kind, field: piece.text}
            yield event("content_block_delta", index=len(self._blocks), delta=delta)

    def end(self, finish_reason: str | None, usage: dict[str, Any] | None) -> Iterator[bytes]:
        yield from self._close()
        called = any(block["type"] == "tool_use" for block in self._blocks)
        reason = STOP_REASONS.get(finish_reason or "", "tool_use" if called else "end_turn")
        ending = {"stop_reason": reason, "stop_sequence": None}
        self._message |= {**ending, "content": self._blocks, "usage": _counts(usage or {})}
        yield event("message_delta", delta=ending, usage=self._message["usage"])
        yield event("message_stop")

    def fail(self, words: str) -> Iterator[bytes]:
        yield event("error", error={"type": "api_error", "message": words})

    def whole(self) -> dict[str, Any]:
        return self._message

    def _close(self) -> Iterator[bytes]:
        if self._open is None:
            return
        yield event("content_block_stop", index=len(self._blocks))
        self._blocks.append(_block(self._open, "".join(self._texts)))
        self._open = None
        self._texts.clear()


def _block(piece: Piece, text: str) -> Block:
    """Return a piece's block, with a text."""
    if piece.kind == "thought":
        return {"type": "thinking", "thinking": text, "signature": ""}
    if piece.call:
        return {"type": "tool_use", "id": piece.call.id, "name": piece.call.name, "input": _input(text)}
    return {"type": "text", "text": text}


def _input(arguments: str) -> Any:
    """Parse a call's arguments; return the text if it isn't JSON."""
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    """Return Anthropic's counts: cached tokens count separately."""
    prompt, answered = usage.get("prompt_tokens"), usage.get("completion_tokens")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    prompt, answered, cached = (
        count if isinstance(count, int) else 0 for count in (prompt, answered, cached)
    )
    counts = {"input_tokens": max(prompt - cached, 0), "output_tokens": answered}
    return counts | ({"cache_read_input_tokens": cached} if cached else {})
