"""Advantages, and trust in ratings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.training.strength import (
    ADVANTAGE_LIMIT,
    MIN_OF_A_CLASS,
    MIN_RATINGS,
    Floats,
    above_average,
    advantages,
    enough,
    trust,
)

rewards = st.lists(st.floats(-1, 1).map(lambda r: round(r, 3)), min_size=2, max_size=40)


@given(rewards)
def test_agrees_with_numpy_in_float64(values: list[float]):
    array = np.array(values)
    if array.std() < 1e-3:
        return
    expected = np.clip((array - array.mean()) / array.std(), -ADVANTAGE_LIMIT, ADVANTAGE_LIMIT)
    assert advantages(values, [1.0] * len(values)) == pytest.approx(expected.tolist(), abs=1e-9)


def test_a_weight_of_two_is_the_rating_given_twice():
    twice = advantages([1, 1, -1], [1, 1, 1])
    weighted = advantages([1, -1], [2, 1])
    assert weighted == pytest.approx([twice[0], twice[2]])


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [-0.3, -0.3], [0.1 + 0.2, 0.3]])
def test_equal_rewards_stay_as_they_are(values: list[float]):
    assert advantages(values, [1.0] * len(values)) == values


def test_a_moving_average_starts_at_nothing_and_is_not_corrected():
    # By hand: .99 · 0 + .01 · 1 = .01; .99 · .01 − .01 = −.0001; … reinforceclaw 0.1.0 prints the same, rounded.
    found = above_average([1, -1, 1, 1, -1, 1, 1, 1])
    assert found[:4] == pytest.approx([1.0, -1.01, 1.0001, 0.990099])
    assert [round(each, 2) for each in found] == [1, -1.01, 1, 0.99, -1.02, 0.99, 0.98, 0.97]
    assert above_average([]) == []


EXPECTED = 0.3


def cosines(truly_good: list[bool], dice: np.random.Generator, *, apart: float) -> Floats:
    """Gradients in 60 dimensions, of which one says what kind a reply is."""
    gradients = dice.normal(size=(len(truly_good), 60))
    gradients[:, 0] += np.where(truly_good, apart, -apart)
    gradients += 3.0  # what all replies have in common
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.asarray(gradients @ gradients.T)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), good=st.integers(8, 24), bad=st.integers(8, 40), noise=st.floats(0, 0.2))
def test_mistaken_ratings_that_replies_belie_weigh_less(seed: int, good: int, bad: int, noise: float) -> None:
    dice = np.random.default_rng(seed)
    truth = [True] * good + [False] * bad
    mistaken = np.zeros(len(truth), dtype=bool)
    mistaken[dice.permutation(len(truth))[: round(noise * min(good, bad))]] = True
    given_ = [bool(each) for each in np.array(truth) ^ mistaken]
    believed = np.array(trust(cosines(truth, dice, apart=12.0), given_, EXPECTED))
    assert (believed >= 0).all()
    assert (believed <= 1).all()
    assert believed[~mistaken].mean() > 0.9
    assert not mistaken.any() or believed[mistaken].mean() < 0.1


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), good=st.integers(3, 30), bad=st.integers(3, 30))
def test_neither_order_nor_which_side_is_called_good_matters(seed: int, good: int, bad: int) -> None:
    dice = np.random.default_rng(seed)
    said = [True] * good + [False] * bad
    alike = cosines(said, dice, apart=3.0)
    believed = np.array(trust(alike, said, EXPECTED))
    order = dice.permutation(len(said))
    assert trust(alike[np.ix_(order, order)], [said[place] for place in order], EXPECTED) == pytest.approx(
        believed[order].tolist(), abs=1e-6
    )
    assert trust(alike, [not each for each in said], EXPECTED) == pytest.approx(believed.tolist(), abs=1e-6)


def test_where_similarity_says_nothing_every_rating_of_a_kind_is_believed_alike() -> None:
    said = [True] * 8 + [False] * 24
    believed = trust(np.eye(32), said, EXPECTED)
    assert max(believed[:8]) - min(believed[:8]) < 1e-9
    assert max(believed[8:]) - min(believed[8:]) < 1e-9
    assert min(believed) > 0


def test_similarity_that_would_disbelieve_too_many_is_not_heard() -> None:
    dice = np.random.default_rng(0)
    # What the replies differ by, their length say, has to do with the ratings, and is not what was rated.
    short = [True] * 24 + [False] * 24
    said = [place % 8 < 4 if is_short else place % 8 < 1 for place, is_short in enumerate(short)]
    alike = cosines(short, dice, apart=12.0)
    assert trust(alike, said, EXPECTED) == [1.0] * 48
    assert min(trust(alike, said, 0.45)) < 0.05


@pytest.mark.parametrize(
    ("good", "bad", "is_enough"),
    [
        (MIN_RATINGS // 2, MIN_RATINGS // 2, True),
        (MIN_OF_A_CLASS, MIN_RATINGS, True),
        (MIN_OF_A_CLASS - 1, 2 * MIN_RATINGS, False),
        (MIN_RATINGS // 2, MIN_RATINGS // 2 - 1, False),
    ],
)
def test_a_few_ratings_cannot_bear_each_other_out(good: int, bad: int, is_enough: bool) -> None:
    assert enough([True] * good + [False] * bad) is is_enough
