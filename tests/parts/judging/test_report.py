"""A judge's habits in figures."""

from __future__ import annotations

import pytest

from burnish.parts.judging.answers import Pick
from burnish.parts.judging.judgement import ReplyJudgement, preferred
from burnish.parts.judging.principles import Principles
from burnish.parts.judging.report import LONGER, PLACE, SHORTER, TIES, JudgeReport, Share, report, share


def judged(first: Pick, second: Pick, reply: int = 10, revision: int = 20) -> ReplyJudgement:
    """A comparison of a reply with a revision of these lengths."""
    outcome = preferred(first, second)
    return ReplyJudgement(
        "cmpl_1", outcome, revision="x" * revision, reply_characters=reply, picks=(first, second)
    )


def reported(*judgements: ReplyJudgement) -> JudgeReport:
    return report(judgements, Principles(("Be brief.",)), model="m", created_at=1.0, end_reason=None)


def counts(found: Share) -> tuple[int, int]:
    return found.count, found.of


def test_the_longer_one_is_counted_whichever_it_is() -> None:
    found = reported(
        judged("B", "A"),  # the revision, which is longer
        judged("A", "B", reply=30),  # the reply, which is longer
        judged("A", "B"),  # the reply, which is shorter
        judged("B", "A", reply=30),  # the revision, which is shorter
        judged("B", "A", reply=20),  # of one length
        judged("A", "A"),  # a tie
    )
    assert counts(found.longer_preferred) == (2, 4)
    assert counts(found.ties) == (1, 6)
    assert found.warnings() == []


def test_only_picks_of_one_place_in_both_orders_show_a_favoured_place() -> None:
    first = judged("A", "A")
    found = reported(first, first, judged("B", "B"), judged("A", "B"), judged("equal", "A"))
    assert counts(found.first_picked) == (2, 3)
    assert counts(found.ties) == (4, 5)
    assert found.warnings() == [TIES]


def test_habits_that_chance_does_not_explain_are_said() -> None:
    assert reported(*[judged("B", "A")] * 8).warnings() == [LONGER]
    assert reported(*[judged("A", "B")] * 8).warnings() == [SHORTER]
    assert reported(*[judged("B", "B")] * 8).warnings() == [TIES, PLACE]
    assert reported(*[judged("B", "A")] * 3).warnings() == [], "three of three may be chance"


@pytest.mark.parametrize(
    ("count", "of", "lower", "upper"),
    # Method 3 in table I of Newcombe 1998, "Two-sided confidence intervals for the single proportion".
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(count: int, of: int, lower: float, upper: float) -> None:
    found = share(count, of)
    assert [found.lower, found.upper] == pytest.approx([lower, upper], abs=1e-4)


def test_no_comparison_says_nothing() -> None:
    assert share(0, 0) == Share(0, 0, 0.0, 1.0)
