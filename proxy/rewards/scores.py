"""What a reward model says of replies, and who can be asked. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple


class Written(NamedTuple):
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


Score = Callable[[Sequence[dict[str, Any]], Sequence[Written]], Awaitable[Scored]]
"""Scores replies to a conversation; no replies: only finds out whether a model is on.

Raises Conflict if none is, and Unavailable.
"""
