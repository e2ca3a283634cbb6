"""Chat messages: their roles and their texts. Pure."""

from __future__ import annotations

from typing import Any

SYSTEM_ROLES = ("system", "developer")
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message; text parts are joined, other parts left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part_text(part) or "" for part in content) if isinstance(content, list) else ""


def part_text(part: Any) -> str | None:
    if isinstance(part, dict):
        kind, text = part.get("type", "text"), part.get("text")
        return text if isinstance(kind, str) and kind in TEXT_PARTS and isinstance(text, str) else None
    return part if isinstance(part, str) else None
