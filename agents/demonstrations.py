"""Demonstrations for a warm start: good replies of an agent, as records in burnish's log.

They go the way of ``burnish data import``. The same demonstration gets the same ID, so it is stored once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from burnish.agents.connection import Burnish
from burnish.agents.episode import conversation
from burnish.agents.errors import BadDemonstration, Refused

Demonstration = Sequence[tuple[Any, str]]
"""One episode: observations, each with the reply to it."""

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Of burnish's IDs: Crockford's base 32."""
ID_LENGTH, ID_BYTES = 26, 10
"""Characters of an ID, and how many random bytes are in it. The others are its time, which isn't known here."""
SOURCE = "agents"
BATCH = 25
"""Records of one request: a transaction in burnish, for which ratings wait."""


def records(
    task: str,
    demonstrations: Iterable[Demonstration],
    system: str,
    text_of: Callable[[Any], str],
    memory: int | None,
) -> list[dict[str, Any]]:
    """Return the records of all steps: an answer, and the rating that says that it is an example.

    ``text_of``: an observation as the user's message. ``memory``: earlier steps in each prompt, None: all.
    Raises BadDemonstration.
    """
    answers: dict[str, dict[str, Any]] = {}
    for number, steps in enumerate(demonstrations):
        history: list[tuple[str, str]] = []
        for observation, reply in _checked(number, steps):
            text = text_of(observation)
            turns = (
                history[len(history) - memory :] if memory is not None and memory < len(history) else history
            )
            answer = _answer(task, conversation(system, turns, text), reply)
            answers[answer["id"]] = answer
            history.append((text, reply))
    if not answers:
        raise BadDemonstration(
            "there are no demonstrations: give episodes, each a list of (observation, reply)"
        )
    return [*answers.values(), *(_rating(name) for name in answers)]


def store(burnish: Burnish, lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Store records; returns how many demonstrations there are, and how many of them are new.

    Raises Refused if one can't teach, NotRunning. The batches before it are kept, and aren't stored twice.
    """
    counts = Counter[str]()
    for place in range(0, len(lines), BATCH):
        batch = [dict(line) for line in lines[place : place + BATCH]]
        for line, outcome in zip(batch, burnish.import_records(batch), strict=True):
            if why := outcome["refused"] or (outcome["reason"] if line["object"] == "feedback" else None):
                raise Refused(f"a demonstration can't be learnt from: {why}")
            if line["object"] == "completion":
                counts["demonstrations"] += 1
                counts["new"] += bool(outcome["new"])
    return dict(counts)


def _checked(number: int, steps: Demonstration) -> Demonstration:
    """Raises BadDemonstration."""
    if isinstance(steps, str) or not isinstance(steps, Sequence) or not steps:
        raise BadDemonstration(
            f"demonstration {number} must be an episode: a list of (observation, reply), not {str(steps)[:60]!r}"
        )
    for step in steps:
        match step:
            case (_, str(reply)) if reply.strip():
                continue
        raise BadDemonstration(
            f"demonstration {number} has a step {str(step)[:60]!r}: it must be (observation, reply), and the reply "
            "a text that isn't empty"
        )
    return steps


def _answer(task: str, messages: list[dict[str, str]], reply: str) -> dict[str, Any]:
    return {
        "object": "completion",
        "id": "cmpl_" + _digest(task, messages, reply),
        "conversation_id": "conv_" + _digest(task, messages),
        "created_at": 0.0,
        "surface": "chat",
        "model_asked": SOURCE,
        "caller": SOURCE,
        "agent": SOURCE,
        "upstream": SOURCE,
        "model_served": SOURCE,
        "imported_from": SOURCE,
        "outcome": "complete",
        "status": 200,
        "total_s": 0.0,
        "finish_reason": "stop",
        "messages": messages,
        "reply": {"role": "assistant", "content": reply},
    }


def _rating(answer: str) -> dict[str, Any]:
    return {
        "object": "feedback",
        "completion_id": answer,
        "target": "completion_id",
        "reward": 1.0,
        "scale": "binary",
        "rater": SOURCE,
        "tags": ["demonstration"],
        "idempotency_key": f"agents:{answer}",
    }


def _digest(*parts: Any) -> str:
    """Return the part of an ID behind its prefix: the same content has the same one."""
    content = json.dumps(parts, ensure_ascii=False).encode()
    number = int.from_bytes(blake2b(content, digest_size=ID_BYTES).digest())
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(ID_LENGTH)))
