"""Chat messages: their roles, their texts, and a person's words among those that a client adds. Pure.

Clients put reminders, context and notes into user messages. Each has an exact pattern; any other text counts as the
person's.
"""

from __future__ import annotations

import re
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


REMINDER = re.compile(r"<system-reminder>(?:(?!</?system-reminder>).)*</system-reminder>", re.DOTALL)
"""Several may stand in one text, before and behind the person's words."""
CONTEXT_MESSAGES = (
    re.compile(
        r"\A<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n.*\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>\Z", re.DOTALL
    ),
    re.compile(
        r"\AOpenClaw runtime context for the immediately preceding user message\.\n"
        r"This context is runtime-generated, not user-authored\. Keep internal details private\.(?:\n.*)?\Z",
        re.DOTALL,
    ),
    # Codex
    re.compile(r"\A<environment_context>.*</environment_context>\Z", re.DOTALL),
    re.compile(r"\A<user_instructions>.*</user_instructions>\Z", re.DOTALL),
    re.compile(r"\A# AGENTS\.md instructions(?: for [^\n]+)?\n+<INSTRUCTIONS>.*</INSTRUCTIONS>\Z", re.DOTALL),
    re.compile(r"\A<turn_aborted>.*</turn_aborted>\Z", re.DOTALL),
    re.compile(r"\A<subagent_notification>.*</subagent_notification>\Z", re.DOTALL),
    # Qwen Code, of sub-agents that it did not wait for
    re.compile(r"\A<task-notification>.*</task-notification>\Z", re.DOTALL),
)
"""User parts and messages that no human wrote."""
OBSERVATION = re.compile(r"\s*Observation:\s")
"""The beginning of what a tool found, where an agent writes calls and results as text (smolagents, llama-index)."""
BEGINNINGS = ("<", "OpenClaw runtime context", "# AGENTS.md instructions")
"""How all of them begin: most of what people write is told from them by that alone."""

TIMESTAMP = re.compile(
    r"\A\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: [\w+\-:/]{1,32})?\] "
)
"""OpenClaw: "[Sat 2026-11-21 03:19 UTC] "."""
SENDER = re.compile(r"\AConversation info: ⟦openclaw:ctx⟧\n```json\n\{[^\n]*\}\n```\n\n")
"""OpenClaw in a channel: who writes."""


def is_context(text: str) -> bool:
    """True if a part of a user message is a client's addition."""
    text = text.strip()
    return text.startswith(BEGINNINGS) and (
        not REMINDER.sub("", text).strip() or any(pattern.match(text) for pattern in CONTEXT_MESSAGES)
    )


def of_a_person(message: dict[str, Any]) -> bool:
    """True if a user message has words, or other parts, of a person."""
    content = message.get("content")
    if isinstance(content, str):  # as in most
        return _is_said(content)
    return any(not isinstance(text := _text(part), str) or _is_said(text) for part in _parts(message))


def _is_said(text: str) -> bool:
    return bool(text.strip()) and not is_context(text) and not OBSERVATION.match(text)


def words(message: dict[str, Any]) -> str:
    """Return what a person says in a user message, in text."""
    content = message.get("content")
    if isinstance(content, str) and "<" not in content and not content.lstrip().startswith(BEGINNINGS):
        return unwrapped(content)  # as in most
    texts = [text for part in _parts(message) if (text := _text(part)) is not None and not is_context(text)]
    return unwrapped(REMINDER.sub("", "".join(texts)))


def unwrapped(text: str) -> str:
    """Return what a person says, without what OpenClaw puts before it."""
    text = text.strip()
    for wrapper in (TIMESTAMP, SENDER):
        if match := wrapper.match(text):
            text = text[match.end() :]
    return text


def _parts(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content or ""]


def _text(part: Any) -> str | None:
    """Return the text of a part; None of any other kind, such as an image."""
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None
