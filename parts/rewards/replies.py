"""Answers as reward models see them, the rewards that these give, and ratings as they learn from them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from burnish.gate.rewards import MOST_RATED
from burnish.proxy.log import Rating
from burnish.proxy.log.faults import in_words
from burnish.proxy.messages import text_of, words
from burnish.proxy.records import RatedCompletion
from burnish.proxy.surfaces.ends import finished
from burnish.training.rewards.job import OLDER, RatingLine


class ScorableReply(NamedTuple):
    """A reply as reward models see it."""

    text: str
    """With calls of tools, a line each."""
    finished: bool
    """False when something else than the model ended it."""


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
    return ScorableReply(reply_text(reply), finished(finish_reason))


def reply_text(reply: dict[str, Any]) -> str:
    """Return the text of a reply, and each call of a tool on a line behind it."""
    calls = [call.get("function") for call in reply.get("tool_calls") or () if isinstance(call, dict)]
    call_texts = [f"{call.get('name')} {call.get('arguments')}" for call in calls if isinstance(call, dict)]
    return "\n".join(filter(None, (text_of(reply), *call_texts)))


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
    left_out = Counter(in_words(rating.fault) for rating in ratings if rating.fault)
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
    reply = scorable_reply(completion.reply or {}, completion.ended.finish_reason)
    rows.append(_line(answer, reply.text, finished=reply.finished, reward=reward, worse=tuple(worse)))
    if answer.correction:
        rows.append(_line(answer, answer.correction, worse=(len(rows) - 1,)))


def _line(answer: RatedCompletion, text: str, *, finished: bool = True, **fields: Any) -> RatingLine:
    completion = answer.completion
    return RatingLine(
        conversation_id=completion.conversation_id,
        prompt=completion.prompt,
        text=text,
        finished=finished,
        weight=answer.weight,
        **{"reward": None, **fields},
    )
