"""The events of an Anthropic stream: merge them into a message, and write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.messages_blocks import Block
from burnish.proxy.surfaces.writing import EVENTS, AnswerPiece, AnswerWriter, count_in, event, json_or_text

DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Kind of delta → its member that holds a piece of text."""


class MessageMerger:
    """Collects one message. Accepts events in any order, and any JSON as an event."""

    def __init__(self) -> None:
        self.begun = False
        """Whether a message has begun."""
        self.ended = False
        self.error: Any = None
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: list[_Growing] = []
        self._at: dict[int, _Growing] = {}

    def message(self) -> Json | None:
        """Return the message as a client without streaming would get it; None if none has begun."""
        content = [block.whole() for block in self._blocks]
        return {**self._message, "content": content, "usage": self._usage} if self.begun else None

    def take(self, event: Json) -> None:
        """Add an event; unknown kinds are ignored."""
        match event.get("type"):
            case "message_start":
                self._take_head(event.get("message"))
            case "content_block_start":
                self._start(_index(event), event.get("content_block"))
            case "content_block_delta":
                self._grow(_index(event), event.get("delta"))
            case "message_delta":
                self._take_head({"usage": event.get("usage")})
                self._take_head(event.get("delta"))
            case "message_stop":
                self.ended = True
            case "error":
                self.error = event.get("error") or event

    def _take_head(self, head: Any) -> None:
        if not isinstance(head, dict):
            return
        self.begun = True
        self._message |= {key: field for key, field in head.items() if key not in ("content", "usage")}
        if isinstance(usage := head.get("usage"), dict):
            # Counts are totals so far; missing ones stay.
            self._usage |= {key: count for key, count in usage.items() if count is not None}

    def _start(self, index: int, block: Any) -> None:
        self.begun = True
        self._at[index] = _Growing(block if isinstance(block, dict) else {})
        self._blocks.append(self._at[index])

    def _grow(self, index: int, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        if index not in self._at:
            if delta.get("type") != "text_delta":
                return
            self._start(index, {"type": "text"})
        self._at[index].take(delta)


class _Growing:
    """A content block that isn't complete yet."""

    def __init__(self, block: Block) -> None:
        self._block = dict(block)
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    def take(self, delta: Json) -> None:
        kind = delta.get("type")
        field = DELTAS.get(kind) if isinstance(kind, str) else None
        if field:
            if isinstance(piece := delta.get(field), str):
                self._pieces.setdefault(field, []).append(piece)
        elif kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        elif kind == "compaction_delta":
            self._block |= {**delta, "type": self._block.get("type")}

    def whole(self) -> Block:
        texts = {field: "".join(pieces) for field, pieces in self._pieces.items()}
        arguments = texts.pop("partial_json", "")
        members: Json = {field: f"{self._block.get(field) or ''}{text}" for field, text in texts.items()}
        if self._citations:
            cited = self._block.get("citations")
            members["citations"] = [*(cited if isinstance(cited, list) else ()), *self._citations]
        return {**self._block, **members} | ({"input": json_or_text(arguments)} if arguments else {})


def _index(event: Json) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1


ID_PREFIX = "msg_"
STOP_REASONS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Chat's finish reason → Anthropic's. ``stop`` depends on the calls; any other stays as it is."""
WRITTEN_DELTAS = {"thought": ("thinking_delta", "thinking"), "call": ("input_json_delta", "partial_json")}
"""Kind of a piece → kind of its delta, and the member with the text; others are texts."""
TEXT_DELTA = ("text_delta", "text")
NO_COUNTS = {"input_tokens": 0, "output_tokens": 0}


class MessageWriter(AnswerWriter):
    content_type = EVENTS

    def __init__(self, completion_id: str, model: str) -> None:
        self.whole: Json = {
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
        self._open: AnswerPiece | None = None
        """First piece of the current block."""
        self._texts: list[str] = []

    def begin(self) -> Iterator[bytes]:
        yield event("message_start", message=self.whole)

    def take(self, piece: AnswerPiece) -> Iterator[bytes]:
        if self._open is None or (self._open.kind, self._open.call) != (piece.kind, piece.call):
            yield from self._close()
            self._open = piece
            yield event("content_block_start", index=len(self._blocks), content_block=_block(piece, ""))
        if piece.text:
            self._texts.append(piece.text)
            kind, field = WRITTEN_DELTAS.get(piece.kind, TEXT_DELTA)
            delta = {"type": kind, field: piece.text}
            yield event("content_block_delta", index=len(self._blocks), delta=delta)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        yield from self._close()
        called = any(block["type"] == "tool_use" for block in self._blocks)
        own = "tool_use" if called else "end_turn"
        reason = own if finish_reason in (None, "stop") else STOP_REASONS.get(finish_reason, finish_reason)
        ending = {"stop_reason": reason, "stop_sequence": None}
        self.whole |= {**ending, "content": self._blocks, "usage": _counts(usage or {})}
        yield event("message_delta", delta=ending, usage=self.whole["usage"])
        yield event("message_stop")

    def fail(self, words: str) -> Iterator[bytes]:
        yield event("error", error={"type": "api_error", "message": words})

    def _close(self) -> Iterator[bytes]:
        if self._open is None:
            return
        yield event("content_block_stop", index=len(self._blocks))
        self._blocks.append(_block(self._open, "".join(self._texts)))
        self._open = None
        self._texts.clear()


def _block(piece: AnswerPiece, text: str) -> Block:
    if piece.kind == "thought":
        return {"type": "thinking", "thinking": text, "signature": ""}
    if piece.call:
        return {
            "type": "tool_use",
            "id": piece.call.id,
            "name": piece.call.name,
            "input": json_or_text(text or "{}"),
        }
    return {"type": "text", "text": text}


def _counts(usage: Json) -> Json:
    """Return Anthropic's counts: cached tokens count separately."""
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    prompt = max(count_in(usage, "prompt_tokens") - cached, 0)
    counts = {"input_tokens": prompt, "output_tokens": count_in(usage, "completion_tokens")}
    return counts | ({"cache_read_input_tokens": cached} if cached else {})
