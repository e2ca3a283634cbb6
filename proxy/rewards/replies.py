"""Answers as reward models see them, and ratings as they learn from them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from burnish.proxy.log.usability import FAULTS
from burnish.proxy.messages import text_of
from burnish.proxy.people import words
from burnish.proxy.records import RatedCompletion
from burnish.proxy.relay.scoring import reply_text
from burnish.training.reward_job import Rated


def question(messages: Sequence[dict[str, Any]]) -> str:
    """Return what the person asked, as ``Completion.prompt`` is stored."""
    last = next((each for each in reversed(messages) if each.get("role") == "user"), None)
    return (words(last) or text_of(last)) if last else ""


def asking(prompt: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}]


def lines(rated: Sequence[RatedCompletion]) -> tuple[list[Rated], dict[str, int]]:
    """Return what was said as lines of a job, and how many answers can't be learnt from, by reason."""
    left_out = Counter(FAULTS[each.fault] for each in rated if each.fault)
    found: list[Rated] = []
    for each in rated:
        if not each.fault:
            _add(found, each)
    return found, dict(left_out)


def _add(found: list[Rated], rated: RatedCompletion) -> None:
    """Append a rated answer behind the answers that it was preferred over, and the reply that was wanted instead."""
    completion = rated.completion
    worse = [len(found) + place for place in range(len(rated.worse))]
    found += [_line(rated, reply_text(each)) for each in rated.worse]
    said = rated.reward or None
    text, finished = reply_text(completion.reply or {}), completion.ended.finish_reason != "length"
    found.append(_line(rated, text, finished=finished, reward=said, worse=tuple(worse)))
    if rated.correction:
        found.append(_line(rated, rated.correction, worse=(len(found) - 1,)))


def _line(rated: RatedCompletion, text: str, *, finished: bool = True, **said: Any) -> Rated:
    completion = rated.completion
    return Rated(
        conversation_id=completion.conversation_id,
        prompt=completion.prompt,
        messages=completion.messages,
        text=text,
        finished=finished,
        weight=rated.weight,
        **{"reward": None, **said},
    )
