"""Counts that are kept up to date are those of a full read."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from burnish.proxy.ids import feedback_id
from burnish.proxy.log import Keep, Log, RatingCounts, RatingTally, ReadyCounts
from burnish.proxy.log.tally import RatingSummary, counted
from burnish.proxy.records import FeedbackDraft
from tests.proxy.log.exchanges import Message, answered, assistant, capture, opened, rate, user

WEIGHTS = {"bob": 0.5, "eve": 0.0, "judge": 3.0}


async def full_read(log: Log, next_turns: bool, learnt: Collection[str], since: str) -> RatingCounts:
    rated = await log.rated(WEIGHTS, next_turns=next_turns)
    summaries = [
        RatingSummary(
            each.feedback_ids,
            (each.reward > 0) - (each.reward < 0),
            each.comment is not None,
            each.correction is not None or bool(each.worse),
            each.fault,
        )
        for each in rated
    ]
    return counted(summaries, learnt, since)


class Life:
    """A log to which anything happens."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.chance = random.Random(seed)
        self.talks: list[tuple[list[Message], str]] = []
        """Histories that can go on, and the last completion of each."""
        self.feedback: list[str] = []

    async def happen(self) -> None:
        happening = self.chance.choices(
            (self.talk, self.rate, self.grade, self.compare, self.undo, self.prune, self.forget),
            (8, 8, 5, 3, 3, 0.2, 0.2),
        )[0]
        await happening()

    async def talk(self) -> None:
        chance = self.chance
        history: list[Message] = []
        if self.talks and chance.random() < 0.8:
            history, _ = chance.choice(self.talks)  # a branch, when it went on from there already
        asked = {"role": "tool", "tool_call_id": "c", "content": "ok"} if chance.random() < 0.3 else None
        asked = asked if asked and history else user(f"{chance.randrange(3)}?")
        if chance.random() < 0.2:
            asked = dict(reversed(asked.items()))  # the same message, logged differently
        reply = f"{chance.randrange(10**6)}."
        changes: dict[str, Any] = {"caller": chance.choice(("ann", "bob"))}
        if chance.random() < 0.1:
            changes |= chance.choice(({"outcome": "cut"}, {"status": 500}, {"chunks": ()}))
        if chance.random() < 0.05:
            changes |= {
                "surface": "ollama_generate",
                "request_body": b'{"model":"m","prompt":"Hi","raw":true}',
                "chunks": (b'{"model":"m","response":"Hello","done":true,"done_reason":"stop"}',),
            }
        made = capture(self.log, [*history, asked], reply, **changes)
        self.talks.append(([*history, asked, assistant(reply)], made))

    async def _add(self, **draft: Any) -> None:
        if self.talks:
            target = self.chance.choice(self.talks[-12:])[1]
            key = self.chance.choice((None, "api_key", "admin_key"))
            made = FeedbackDraft(target, "completion_id", given_with=key, **draft)
            try:
                self.feedback.append((await self.log.add_feedback(made))[0].id)
            except LookupError:
                self.talks = [each for each in self.talks if each[1] != target]  # it was deleted

    async def rate(self) -> None:
        chance = self.chance
        await self._add(
            reward=chance.choice((1.0, -1.0, -1.0, None)),
            scale="binary",
            rater=chance.choice(("ann", "bob", "eve")),
            scope=chance.choice(("completion", "completion", "turn", "conversation")),
            comment=chance.choice((None, "too long", "wrong")),
            correction=chance.choice((None, None, "Short.")),
        )

    async def grade(self) -> None:
        reward = self.chance.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        await self._add(reward=reward, scale="scalar", rater=self.chance.choice(("judge", "bob")))

    async def compare(self) -> None:
        if self.talks:
            await self._add(preferred_over=self.chance.choice(self.talks)[1], rater="ann")

    async def undo(self) -> None:
        if self.feedback:
            chosen = self.chance.choice(self.feedback)
            self.feedback.remove(chosen)
            with suppress(LookupError):  # it may have been deleted with its completion
                await self.log.undo_feedback(chosen)

    async def prune(self) -> None:
        await self.log.prune(Keep(completions=20, rated=self.chance.random() < 0.5))

    async def forget(self) -> None:
        await self.log.forget("bob")


@pytest.mark.parametrize("next_turns", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_a_tally_counts_what_a_full_read_counts(tmp_path: Path, seed: int, next_turns: bool):
    async with opened(tmp_path) as log:
        life = Life(log, seed)
        tally = RatingTally(WEIGHTS, next_turns=next_turns)
        learnt, since = frozenset[str](), ""
        seen = ReadyCounts()
        for _ in range(120):
            await life.happen()
            if life.chance.random() < 0.1:
                some = len(life.feedback) // 2
                learnt, since = frozenset(life.feedback[:some]), feedback_id().partition("_")[2]
            if life.chance.random() < 0.6:
                expected = await full_read(log, next_turns, learnt, since)
                assert await log.rating_counts(tally, learnt, since) == expected
                seen = ReadyCounts(*map(max, seen, expected.all))
        assert all(seen), seen
        expected = await full_read(log, next_turns, learnt, since)
    async with opened(tmp_path) as log:  # after a restart
        again = RatingTally(WEIGHTS, next_turns=next_turns)
        assert await log.rating_counts(again, learnt, since) == expected


async def test_a_grade_moves_others_of_its_rater_between_good_and_bad(log: Log):
    tally = RatingTally({}, next_turns=False)
    for number, grade in enumerate((0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.75)):
        made = capture(log, [user(str(number))])
        await rate(log, made, grade, scale="likert")
    assert (await log.rating_counts(tally, (), "")).ready == ReadyCounts(new=7, good=7)
    made = capture(log, [user("last")])
    await rate(log, made, scale="likert")
    assert (await log.rating_counts(tally, (), "")).ready == ReadyCounts(new=8, good=2, bad=6)


def summary(*feedback_ids: str, sign: int = 1) -> RatingSummary:
    return RatingSummary(feedback_ids, sign, commented=False, paired=False, fault=None)


def test_a_rating_of_many_answers_is_one_and_new_is_what_was_rated_since():
    turn = [summary("fb_1")] * 5
    assert counted([*turn, summary("fb_2", sign=-1)], (), "") == (
        ReadyCounts(new=2, good=1, bad=1),
        ReadyCounts(new=2, good=1, bad=1),
        {},
    )
    assert counted([*turn, summary("fb_0", "fb_3"), summary("fb_2")], (), "1").all.new == 2
    assert counted(turn, {"fb_1"}, "").ready == ReadyCounts()


def test_answers_with_a_fault_are_left_out_until_they_are_learnt():
    cut = summary("fb_1")._replace(fault="incomplete")
    assert counted([cut, cut], (), "") == (ReadyCounts(), ReadyCounts(), {"incomplete": 2})
    assert counted([cut], {"fb_1"}, "").left_out == {}


async def test_a_read_that_fails_is_made_good_by_the_next(log: Log):
    tally = RatingTally({}, next_turns=False)
    made = capture(log, [user("Hi")], chunks=(answered(assistant("Hello.")),))
    await rate(log, made)

    class Broken(frozenset[str]):
        def __contains__(self, each: object) -> bool:
            raise LookupError

    with pytest.raises(LookupError):
        await log.rating_counts(tally, Broken({"fb_1"}), "")
    assert (await log.rating_counts(tally, (), "")).ready == ReadyCounts(new=1, good=1)
