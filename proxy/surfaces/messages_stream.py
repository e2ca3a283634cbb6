"""Merge the events of a stream into an Anthropic message."""

from __future__ import annotations

from typing import Any

import orjson

from burnish.proxy.surfaces.messages_blocks import Block

DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Kind of delta → its member that holds a piece of text."""


class MessageMerger:
    """Collects one message. Accepts events in any order, and any JSON as an event."""

    def __init__(self) -> None:
        self.begun = False
        """Whether a message has begun."""
        self.ended = False
        self.error: Any = None
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[_Growing] = []
        self._at: dict[int, _Growing] = {}

    def message(self) -> dict[str, Any] | None:
        """Return the message as a client without streaming would get it; None if none has begun."""
        content = [block.whole() for block in self._blocks]
        return {**self._message, "content": content, "usage": self._usage} if self.begun else None

    def take(self, event: dict[str, Any]) -> None:
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
        self._message |= {key: value for key, value in head.items() if key not in ("content", "usage")}
        if isinstance(usage := head.get("usage"), dict):
            # Counts are totals so far; missing ones stay.
            self._usage |= {key: value for key, value in usage.items() if value is not None}

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

    def take(self, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        field = DELTAS.get(kind) if isinstance(kind, str) else None
        if field:
            if isinstance(piece := delta.get(field), str):
                self._pieces.setdefault(field, []).append(piece)
        elif kind == "citations_delta":
            cited = self._block.get("citations")
            self._block["citations"] = [*(cited if isinstance(cited, list) else ()), delta.get("citation")]
        elif kind == "compaction_delta":
            self._block |= {**delta, "type": self._block.get("type")}

    def whole(self) -> Block:
        texts = {field: "".join(pieces) for field, pieces in self._pieces.items()}
        written = texts.pop("partial_json", "")
        begun = {field: f"{self._block.get(field) or ''}{text}" for field, text in texts.items()}
        return {**self._block, **begun} | ({"input": _parsed(written)} if written else {})


def _parsed(written: str) -> Any:
    """Return the input of a call; the text if it isn't JSON or was cut off."""
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return written


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1
