"""Answers as reward models see them, and ratings as they learn from them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from burnish.gate.preference import MOST_RATED
from burnish.parts.rewards.scoring import reply_text
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import FAULTS
from burnish.proxy.messages import text_of, words
from burnish.proxy.records import RatedCompletion
from burnish.training.reward_job import OLDER, Rated


def question(messages: Sequence[dict[str, Any]]) -> str:
    """Return what the person asked, as ``Completion.prompt`` is stored."""
    last = next((each for each in reversed(messages) if each.get("role") == "user"), None)
    return (words(last) or text_of(last)) if last else ""


def asking(prompt: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}]


def latest(ratings: Sequence[Rating]) -> tuple[list[Rating], dict[str, int]]:
    """Return the latest ratings, as many as a model learns from, and how many others there are, by reason.

    ``ratings``: the earliest answer comes first, as in the result.
    """
    left_out = Counter(FAULTS[each.fault] for each in ratings if each.fault)
    chosen: list[Rating] = []
    known = 0
    for each in reversed(ratings):
        if each.fault:
            continue
        others = len(each.worse) + bool(each.correction)
        if known < MOST_RATED:
            chosen.append(each)
            known += others + bool(each.reward or others)
        else:
            left_out[OLDER] += others + 1
    return chosen[::-1], dict(left_out)


def lines(rated: Iterable[RatedCompletion]) -> list[Rated]:
    """Return what was said as lines of a job."""
    found: list[Rated] = []
    for each in rated:
        _add(found, each)
    return found


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
