"""Replies as reward models see them, and the rewards that these give. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from burnish.proxy.messages import text_of


class ScorableReply(NamedTuple):
    """A reply as reward models see it."""

    text: str
    """With calls of tools, a line each."""
    finished: bool
    """False when a token limit cut it."""


class Scored(NamedTuple):
    """What a reward model says of some replies."""

    model: str
    rewards: list[float | None]
    """None: what it said was no number."""


Score = Callable[[Sequence[dict[str, Any]], Sequence[ScorableReply]], Awaitable[Scored]]
"""Scores replies to a conversation; no replies: only finds out whether a model is on.

Raises Conflict if none is, and Unavailable.
"""


def scorable_reply(reply: dict[str, Any], finish_reason: str | None) -> ScorableReply:
    return ScorableReply(reply_text(reply), finish_reason != "length")


def reply_text(reply: dict[str, Any]) -> str:
    """Return the text of a reply, and each call of a tool on a line behind it."""
    calls = [call.get("function") for call in reply.get("tool_calls") or () if isinstance(call, dict)]
    call_texts = [f"{call.get('name')} {call.get('arguments')}" for call in calls if isinstance(call, dict)]
    return "\n".join(filter(None, (text_of(reply), *call_texts)))
