"""Side requests: requests of an agent for itself in a session (titles, summaries, work of sub-agents). Pure.

They are logged and can be rated like any other completion. But a person who rates "the last answer" means the last one
that they read. Some agents mark sub-agents by a header (``RequestFacts.sub_agent``); all others are recognised by their
exact prompts. Any other request counts as a turn of the person.

Nobody knows all agents. So a new conversation that asks for a title, or quotes an answer of a moment ago, is perhaps a
side request: it isn't what "the last answer" means, but a person in that conversation can rate it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from burnish.proxy.messages import SYSTEM_ROLES, text_of
from burnish.proxy.records import Completion

SYSTEM = re.compile(
    r"""
    \bYou\ are\ an?\ [\w -]{3,60}\ for\ Claude\ Code\b                         # Claude Code: a sub-agent
    | You\ are\ naming\ a\ coding\ session\ so\ the\ user\ can\ pick\ it\ out # Claude Code: a title
    | \AYou\ are\ now\ acting\ as\ the\ managed\ memory\ extraction\ subagent\ # Qwen Code: what it remembers
    | \AYou\ are\ a\ general-purpose\ subagent\ working\ for\ a\ parent\ agent\. # Qwen Code: a sub-agent
    | \n\nImportant\ Rules:\n\ -\ You\ operate\ in\ non-interactive\ mode:  # Qwen Code: one that the person described
    | \AYou\ are\ the\ component\ that\ summarizes\ a\ conversation\ when\  # Qwen Code: compaction
    | \AYou\ are\ a\ title\ generator\.\ You\ output\ ONLY\ a\ thread\ title # opencode: a title
    | \AYou\ are\ a\ context\ summarization\ agent\.\ You\ are\ given\  # opencode: compaction
    """,
    re.VERBOSE,
)
"""Of the system prompt."""
LAST = re.compile(
    r"""
    \A(?:
        CRITICAL:\ Respond\ with\ TEXT\ ONLY\.\ Do\ NOT\ call\ any\ tools\.    # Claude Code: compaction
        | You\ are\ performing\ a\ CONTEXT\ CHECKPOINT\ COMPACTION\.          # Codex: compaction
        | You\ are\ the\ component\ that\ summarizes\ a\ conversation\ when\  # Qwen Code: compaction
        | Please\ provide\ a\ concise\ summary\ of\ our\ conversation\ so\ far,\ capturing\ # Continue: compaction
        | \#\#\#\ Task:\n(?:Generate\ a\ concise\ title\ |Generate\ 1-3\ broad\ tags\ |Predict\ 3-5\ useful\ messages\ |
            Analyze\ the\ chat\ history\ to\ determine\ |You\ are\ an\ autocompletion\ system\.) # Open WebUI
    )
    """,
    re.VERBOSE,
)
"""Of the last user message."""
ABOUT = r"(?:this|our|(?:the|an?)(?:\ \w+)?)\ (?:conversation|chat|discussion|session|thread|dialogue?)\b"
ASKS_FOR_A_TITLE = re.compile(
    rf"""\A\s*(?:your\ task(?:\ is\ to|:)\ )?(?:please\ )?(?:
        (?:create|generate|write|suggest|give|provide|propose|make|find|come\ up\ with)\b
            [^\n.]{{0,60}}\b(?:titles?|names?|summary|tags?|topics?|headline)\b[^\n.]{{0,60}}\b{ABOUT}
        | (?:summari[sz]e|name)\ {ABOUT}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
QUOTED_CHARACTERS = 20
"""Shorter answers occur by chance."""
A_MOMENT_S = 10.0
"""A person needs longer to read an answer and paste it."""
CODEX_TURN = {"request_kind": "turn", "thread_source": "user"}
"""Metadata of a person's turn in Codex; its side requests have other values."""


def is_side_request(completion: Completion) -> bool:
    """True for a request of an agent for itself; the completion must have been read in full."""
    messages = completion.messages
    return (
        completion.asked.sub_agent
        or any(SYSTEM.search(text_of(message)) for message in messages if message.get("role") in SYSTEM_ROLES)
        or LAST.search(
            next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")
        )
        is not None
        or _codex_says_so(completion.params.get("client_metadata"))
    )


def perhaps_side_request(completion: Completion, answers: Iterable[Completion]) -> bool:
    """True for a new conversation without tools that asks for a title or quotes one of some earlier answers.

    An agent that quotes a summary goes on after a compaction.
    """
    messages = completion.messages
    if completion.params.get("tools") or any(message.get("role") == "assistant" for message in messages):
        return False
    texts = [text_of(message) for message in messages]
    return _asks_for_a_title(completion) or any(
        0 <= completion.asked.created_at - answer.asked.created_at - answer.ended.total_s <= A_MOMENT_S
        and len(quoted := text_of(answer.reply or {}).strip()) >= QUOTED_CHARACTERS
        and any(quoted in text for text in texts)
        and not _asks_for_a_title(answer)
        for answer in answers
    )


def _asks_for_a_title(completion: Completion) -> bool:
    return any(ASKS_FOR_A_TITLE.match(text_of(message)) for message in completion.messages[-1:])


def _codex_says_so(metadata: Any) -> bool:
    try:
        turn = orjson.loads(metadata["x-codex-turn-metadata"])
        return any(turn.get(key, usual) != usual for key, usual in CODEX_TURN.items())
    except (LookupError, TypeError, AttributeError, orjson.JSONDecodeError):
        return False  # not Codex, or another version of it
