from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.strength import ADVANTAGE_LIMIT, above_average, advantages

rewards = st.lists(st.floats(-1, 1).map(lambda r: round(r, 3)), min_size=2, max_size=40)


def test_by_hand():
    # mean -0.5, standard deviation sqrt(0.75)
    found = advantages([1, -1, -1, -1], [1, 1, 1, 1])
    assert found == pytest.approx([1.5 / 0.75**0.5] + [-0.5 / 0.75**0.5] * 3)


@given(rewards)
def test_agrees_with_numpy_in_float64(values: list[float]):
    array = np.array(values)
    if array.std() < 1e-3:
        return
    expected = np.clip((array - array.mean()) / array.std(), -ADVANTAGE_LIMIT, ADVANTAGE_LIMIT)
    assert advantages(values, [1.0] * len(values)) == pytest.approx(expected.tolist(), abs=1e-9)


@given(st.integers(2, 12), st.integers(2, 12))
def test_good_and_bad_pull_equally_hard_whatever_their_numbers(good: int, bad: int):
    found = advantages([1.0] * good + [-1.0] * bad, [1.0] * (good + bad))
    if max(map(abs, found)) < ADVANTAGE_LIMIT:
        assert sum(found[:good]) == pytest.approx(-sum(found[good:]))


@given(rewards, st.floats(-0.5, 0.5), st.floats(0.1, 3))
def test_a_baseline_and_a_factor_of_all_rewards_cancel(values: list[float], baseline: float, factor: float):
    if np.std(values) < 1e-2:
        return
    ones = [1.0] * len(values)
    moved = [baseline + factor * value for value in values]
    assert advantages(moved, ones) == pytest.approx(advantages(values, ones), abs=1e-6)


def test_a_weight_of_two_is_the_rating_given_twice():
    twice = advantages([1, 1, -1], [1, 1, 1])
    weighted = advantages([1, -1], [2, 1])
    assert weighted == pytest.approx([twice[0], twice[2]])


def test_one_good_rating_among_many_bad_is_limited():
    assert advantages([1.0] + [-1.0] * 31, [1.0] * 32)[0] == ADVANTAGE_LIMIT


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [-0.3, -0.3], [0.1 + 0.2, 0.3]])
def test_equal_rewards_stay_as_they_are(values: list[float]):
    assert advantages(values, [1.0] * len(values)) == values


def test_a_moving_average_starts_at_nothing_and_is_not_corrected():
    # By hand: .99 · 0 + .01 · 1 = .01; .99 · .01 − .01 = −.0001; … reinforceclaw 0.1.0 prints the same, rounded.
    found = above_average([1, -1, 1, 1, -1, 1, 1, 1])
    assert found[:4] == pytest.approx([1.0, -1.01, 1.0001, 0.990099])
    assert [round(each, 2) for each in found] == [1, -1.01, 1, 0.99, -1.02, 0.99, 0.98, 0.97]
    assert above_average([]) == []
