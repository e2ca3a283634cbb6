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
from burnish.training.reward_job import OLDER, RatingLine


def question(messages: Sequence[dict[str, Any]]) -> str:
    """Return what the person asked, as ``Completion.prompt`` is stored."""
    last = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    return (words(last) or text_of(last)) if last else ""


def asking(prompt: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}]


def latest(ratings: Sequence[Rating]) -> tuple[list[Rating], dict[str, int]]:
    """Return the latest ratings, as many as a model learns from, and how many others there are, by reason.

    ``ratings``: the earliest answer comes first, as in the result.
    """
    left_out = Counter(FAULTS[rating.fault] for rating in ratings if rating.fault)
    newest: list[Rating] = []
    total = 0
    for rating in reversed(ratings):
        if rating.fault:
            continue
        further_count = len(rating.worse) + bool(rating.correction)
        if total < MOST_RATED:
            newest.append(rating)
            total += further_count + bool(rating.reward or further_count)
        else:
            left_out[OLDER] += further_count + 1
    return newest[::-1], dict(left_out)


def lines(answers: Iterable[RatedCompletion]) -> list[RatingLine]:
    """Return what was said as lines of a job."""
    rows: list[RatingLine] = []
    for answer in answers:
        _add(rows, answer)
    return rows


def _add(rows: list[RatingLine], answer: RatedCompletion) -> None:
    """Append a rated answer behind the answers that it was preferred over, and the reply that was wanted instead."""
    completion = answer.completion
    worse = [len(rows) + place for place in range(len(answer.worse))]
    rows += [_line(answer, reply_text(reply)) for reply in answer.worse]
    reward = answer.reward or None
    text, finished = reply_text(completion.reply or {}), completion.ended.finish_reason != "length"
    rows.append(_line(answer, text, finished=finished, reward=reward, worse=tuple(worse)))
    if answer.correction:
        rows.append(_line(answer, answer.correction, worse=(len(rows) - 1,)))


def _line(answer: RatedCompletion, text: str, *, finished: bool = True, **fields: Any) -> RatingLine:
    completion = answer.completion
    return RatingLine(
        conversation_id=completion.conversation_id,
        prompt=completion.prompt,
        messages=completion.messages,
        text=text,
        finished=finished,
        weight=answer.weight,
        **{"reward": None, **fields},
    )
