"""Counts that are kept up to date are those of a full read."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.proxy.ids import feedback_id
from burnish.proxy.log import Log, RatingCounts, RatingTally, ReadyCounts
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.feedback import in_conversations
from burnish.proxy.log.ratings import rater_figures, raters, rating_figures
from burnish.proxy.log.tally import RATINGS, RatingSummary, counted
from tests.proxy.log.exchanges import all_rated, answered, assistant, capture, opened, rate, user
from tests.proxy.log.life import EVENTS, Life

WEIGHTS = {"bob": 0.5, "eve": 0.0, "judge": 3.0}


async def full_read(log: Log, next_turns: bool, learnt: Collection[str], since: str) -> RatingCounts:
    rated = await all_rated(log, rater_weights=WEIGHTS, next_turns=next_turns)
    summaries = [
        RatingSummary(each.feedback_ids, (each.reward > 0) - (each.reward < 0), commented, paired, each.fault)
        for each in rated
        for commented in [each.comment is not None]
        for paired in [each.correction is not None or bool(each.worse)]
    ]
    return counted(summaries, learnt, since)


async def totals(log: Log) -> list[object]:
    return [await log.counts(), await log.raters(), await log.agreement_with_judges()]


def resolved_anew(path: Path) -> list[object]:
    """What ``totals`` returns, of all feedback at once."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            """SELECT count(*), count(DISTINCT conversation_id), (SELECT count(*) FROM passthrough),
            (SELECT count(*) FROM feedback) FROM completion"""
        ).fetchone()
        figures = rating_figures(*in_conversations(db, None))
        found = raters(rater_figures(*in_conversations(db, None, {})))
    counts = dict(zip(("completions", "conversations", "passthrough", "feedback"), rows, strict=True))
    counts |= {name: figures[name] for name in RATINGS}
    return [counts, found, (figures["judged_as_rated"], figures["judged_and_rated"])]


EVENTFUL = st.lists(st.sampled_from(EVENTS), min_size=30, max_size=80)


@given(EVENTFUL, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=20)
def test_counts_are_those_of_all_feedback_at_once(events: list[str], chance: random.Random, next_turns: bool):
    async def live(folder: Path) -> None:
        path = folder / "log" / "log.sqlite3"
        tally, learnt, since = RatingTally(Rules(WEIGHTS, next_turns=next_turns)), frozenset[str](), ""
        async with opened(folder) as log:
            life = Life(log, chance)
            for event in events:
                await getattr(life, event)()
                if chance.random() < 0.1:
                    learnt = frozenset(life.feedback[: len(life.feedback) // 2])
                    since = feedback_id().partition("_")[2]
                if chance.random() < 0.5:
                    assert await totals(log) == resolved_anew(path)
                    expected = await full_read(log, next_turns, learnt, since)
                    assert await log.rating_counts(tally, learnt, since) == expected
            assert await totals(log) == resolved_anew(path)
            expected = await full_read(log, next_turns, learnt, since)
        async with opened(folder) as log:  # after a restart
            again = RatingTally(Rules(WEIGHTS, next_turns=next_turns))
            assert await log.rating_counts(again, learnt, since) == expected

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))


async def test_a_grade_moves_others_of_its_rater_between_good_and_bad(log: Log):
    tally = RatingTally(Rules())
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
    counts = ReadyCounts(new=2, good=1, bad=1)
    assert counted([*turn, summary("fb_2", sign=-1)], (), "") == (counts, counts, {})
    assert counted([*turn, summary("fb_0", "fb_3"), summary("fb_2")], (), "1").all.new == 2
    assert counted(turn, {"fb_1"}, "").ready == ReadyCounts()


def test_answers_with_a_fault_are_left_out_until_they_are_learnt():
    cut = summary("fb_1")._replace(fault="incomplete")
    assert counted([cut, cut], (), "") == (ReadyCounts(), ReadyCounts(), {"incomplete": 2})
    assert counted([cut], {"fb_1"}, "").left_out == {}


async def test_a_read_that_fails_is_made_good_by_the_next(log: Log):
    tally = RatingTally(Rules())
    made = capture(log, [user("Hi")], chunks=(answered(assistant("Hello.")),))
    await rate(log, made)

    class Broken(frozenset[str]):
        def __contains__(self, each: object) -> bool:
            raise LookupError

    with pytest.raises(LookupError):
        await log.rating_counts(tally, Broken({"fb_1"}), "")
    assert (await log.rating_counts(tally, (), "")).ready == ReadyCounts(new=1, good=1)
