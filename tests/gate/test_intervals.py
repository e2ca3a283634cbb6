"""The statistics of the gate, against numbers computed by hand."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.gate import GateLimits, allowance, forgetting_by_chance, preference_margin
from burnish.gate.confidence import student_t
from tests.gate.test_gate import held_out


@pytest.mark.parametrize(
    ("rated", "estimate"),
    [
        # Half the difference of the class means.
        ([("a", 1, 0.4), ("b", 1, 0.2), ("c", -1, -0.1), ("d", -1, -0.5)], (0.3 + 0.3) / 2),
        # Classes count the same, however many replies they have.
        ([("a", 1, 0.4), *((f"b{i}", -1, 0.1) for i in range(50))], (0.4 - 0.1) / 2),
        # Means are weighted by weight and by the size of the reward.
        ([("a", 1.0, 0.3, 3), ("b", 0.5, -0.3, 2), ("c", -1, 0.0)], (0.3 * 3 - 0.3 * 1) / 4 / 2),
    ],
)
def test_the_margin_by_hand(rated: list[tuple[str, float, float]], estimate: float) -> None:
    margin = preference_margin([held_out(*reply) for reply in rated], GateLimits())
    assert margin.estimate == pytest.approx(estimate)


@pytest.mark.parametrize(
    "rated",
    [
        [(f"{i}", 1 if i < 4 else -1, 0.2 if i < 4 else -0.2) for i in range(8)],
        # Both classes in one conversation: it is drawn whole, so the common part cancels.
        [(f"c{i}", sign, 0.1 * i + (0.4 if sign > 0 else 0.0)) for i in range(4) for sign in (1, -1)],
    ],
)
def test_equal_differences_leave_no_uncertainty(rated: list[tuple[str, float, float]]) -> None:
    margin = preference_margin([held_out(*each) for each in rated], GateLimits())
    assert (margin.lower, margin.estimate, margin.upper) == pytest.approx((0.2, 0.2, 0.2))


def test_the_bounds_of_few_conversations_are_students() -> None:
    # Half the difference of two means of three: s²/3 = .01/3 of each, four degrees of freedom, t = 2.776.
    rated = [held_out(f"g{i}", 1, x) for i, x in enumerate((0.2, 0.3, 0.4))]
    rated += [held_out(f"b{i}", -1, x) for i, x in enumerate((-0.1, 0.0, 0.1))]
    margin = preference_margin(rated, GateLimits())
    reach = 2.776 * sqrt(2 * 0.01 / 3) / 2
    found = (margin.lower, margin.estimate, margin.upper)
    assert found == pytest.approx((0.15 - reach, 0.15, 0.15 + reach), rel=0.05)


@pytest.mark.parametrize(
    ("confidence", "freedom", "table"),
    [(0.975, 4, 2.776), (0.975, 7, 2.365), (0.975, 47, 2.012), (0.95, 3, 2.353), (0.99, 10, 2.764)],
)
def test_students_t_is_that_of_the_tables(confidence: float, freedom: int, table: float) -> None:
    assert student_t(confidence, freedom) == pytest.approx(table, abs=0.01)


def test_the_bootstrap_spreads_like_the_standard_error() -> None:
    generator = np.random.default_rng(1)
    good, bad = generator.normal(0.3, 0.2, 40), generator.normal(-0.3, 0.2, 40)
    rated = [held_out(f"g{i}", 1, x) for i, x in enumerate(good)]
    rated += [held_out(f"b{i}", -1, x) for i, x in enumerate(bad)]
    margin = preference_margin(rated, GateLimits())
    reach = 1.96 * sqrt(good.var(ddof=1) / 40 + bad.var(ddof=1) / 40) / 2
    found = (margin.estimate - margin.lower, margin.upper - margin.estimate)
    assert found == pytest.approx((reach, reach), rel=0.1)


def test_replies_of_one_conversation_do_not_count_as_independent() -> None:
    gains = [0.9, -0.2, 0.4, -0.3]
    bad = [held_out(f"b{i}", -1, 0.0) for i in range(4)]
    alone = [held_out(f"g{i}{k}", 1, gain) for i, gain in enumerate(gains) for k in range(10)]
    together = [held_out(f"g{i}", 1, gain) for i, gain in enumerate(gains) for _ in range(10)]
    apart, one = preference_margin(alone + bad, GateLimits()), preference_margin(together + bad, GateLimits())
    assert apart.estimate == pytest.approx(one.estimate)
    assert one.lower < 0 < apart.lower


def test_a_candidate_that_guesses_rarely_passes() -> None:
    generator = np.random.default_rng(0)
    passes = 0
    for _ in range(300):
        rated = [held_out(f"g{i}", 1, x) for i, x in enumerate(generator.normal(size=3))]
        rated += [held_out(f"b{i}", -1, x) for i, x in enumerate(generator.normal(size=3))]
        passes += preference_margin(rated, GateLimits(resamples=2000)).lower > 0
    assert passes <= 0.052 * 300  # .025 is expected; three standard errors above


def test_the_allowance_is_the_margin_and_the_standard_error_of_a_difference() -> None:
    # (2 + 0 + 1) / (2 · 24 + 2) = .06
    assert allowance(2, 0, 24, GateLimits()) == pytest.approx(0.02 + 1.645 * sqrt(2 * 0.06 * 0.94 / 24))


def test_of_four_changes_at_least_three_are_losses_in_five_of_sixteen_cases() -> None:
    assert forgetting_by_chance(3, 1) == pytest.approx(5 / 16)
    assert forgetting_by_chance(0, 5) == 1


@given(count=st.integers(8, 200), old=st.integers(0, 200))
def test_more_faults_never_help(count: int, old: int) -> None:
    old = min(old, count)
    limits = (old / count + allowance(new, old, count, GateLimits()) for new in range(count + 1))
    verdicts = [new / count <= limit for new, limit in enumerate(limits)]
    assert verdicts == sorted(verdicts, reverse=True)
    assert all(verdicts[: old + 1]), "no more faults than before always passes"
