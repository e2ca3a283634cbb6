"""Errands, pure: what agents ask for themselves in the session of a person – titles, summaries, work of sub-agents.

They are logged and can be rated like any other answer. But whoever rates "the last answer" means the last that was
said to them. Each agent is known by its exact words; what nobody knows is a turn of the person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from burnish.proxy.log.tree import text_of

SYSTEM_ROLES = ("system", "developer")

SYSTEM = re.compile(
    r"""
    \bYou\ are\ an?\ [\w -]{3,60}\ for\ Claude\ Code\b                         # Claude Code: a sub-agent
    | You\ are\ naming\ a\ coding\ session\ so\ the\ user\ can\ pick\ it\ out # Claude Code: a title
    | \AYou\ are\ now\ acting\ as\ the\ managed\ memory\ extraction\ subagent\ # Qwen Code: what it remembers
    | \AYou\ are\ a\ general-purpose\ subagent\ working\ for\ a\ parent\ agent\. # Qwen Code: a sub-agent
    | \AYou\ are\ a\ title\ generator\.\ You\ output\ ONLY\ a\ thread\ title # opencode: a title
    """,
    re.VERBOSE,
)
"""Of the system prompt."""
LAST = re.compile(
    r"""
    \A(?:
        CRITICAL:\ Respond\ with\ TEXT\ ONLY\.\ Do\ NOT\ call\ any\ tools\.    # Claude Code: compaction
        | You\ are\ performing\ a\ CONTEXT\ CHECKPOINT\ COMPACTION\.          # Codex: compaction
    )
    """,
    re.VERBOSE,
)
"""Of the last user message."""
CODEX_TURN = {"request_kind": "turn", "thread_source": "user"}
"""What Codex says of a turn of the person, among much else; it says something else of all others."""


def is_errand(messages: Sequence[dict[str, Any]], params: Mapping[str, Any]) -> bool:
    """Whether a request was an agent's own, by its messages and parameters."""
    return (
        any(SYSTEM.search(text_of(each)) for each in messages if each.get("role") in SYSTEM_ROLES)
        or LAST.search(next((text_of(each) for each in reversed(messages) if each.get("role") == "user"), ""))
        is not None
        or _codex_says_so(params.get("client_metadata"))
    )


def _codex_says_so(metadata: Any) -> bool:
    try:
        said = orjson.loads(metadata["x-codex-turn-metadata"])
        return any(said.get(key, usual) != usual for key, usual in CODEX_TURN.items())
    except (LookupError, TypeError, AttributeError, orjson.JSONDecodeError):
        return False  # no Codex, or another one than we know
