"""Why a rated reply can't teach, as far as that shows without a model. Knows no framework.

The trainer leaves such replies out, and the proxy says so as soon as one is rated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnish.gate.replies import Message, is_text, text_of

EMPTY = "the reply is empty"
REFUSED = "the model refused to answer"
NOT_TEXT = "there are images, audio or files in the conversation"
TOOLS = "a comment on an answer with tools at hand"
NOBODY_ASKED = "no message of a user comes before the answer"


def unteachable(messages: Sequence[Message], reply: Message) -> str | None:
    """Return why a rating of a reply can't teach."""
    if why := not_text(messages, reply):
        return why
    if reply.get("tool_calls") or text_of(reply).strip():
        return None
    return REFUSED if reply.get("refusal") else EMPTY


def uncommentable(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], reply: Message
) -> str | None:
    """Return why a comment on a reply can't teach: the model answers again with the comment in its prompt."""
    if why := not_text(messages, reply):
        return why
    if tools:
        return TOOLS
    return None if any(message.get("role") == "user" for message in messages) else NOBODY_ASKED


def not_text(messages: Sequence[Message], reply: Message) -> str | None:
    """Without its images, a reply about one would teach the model to make things up."""
    return None if all(map(_all_text, (*messages, reply))) else NOT_TEXT


def _all_text(message: Message) -> bool:
    content = message.get("content")
    return not isinstance(content, list) or all(map(is_text, content))
