"""What a cell says of its users: whose turn it is, and when they are settled."""

from __future__ import annotations

import random

import pytest

from bench.learning.cell import Cell, settled, settled_by_chance


def test_users_take_turns_where_everything_is_learnt_at_once() -> None:
    cell = Cell("auto", ("a", "b"), 0, (4,))
    assert [cell.rater(place) for place in range(4)] == ["a", "b", "a", "b"]


def test_in_rounds_users_come_one_after_the_other() -> None:
    cell = Cell("auto", ("a", "b"), 0, (2, 4, 6), "rounds")
    assert [cell.rater(place) for place in range(6)] == ["a", "a", "b", "b", "b", "b"]


@pytest.mark.parametrize(
    ("pleased", "number"), [("", None), ("110110", None), ("111", 3), ("0110111", 7), ("1111", 3)]
)
def test_a_user_is_settled_by_three_in_a_row(pleased: str, number: int | None) -> None:
    assert settled([each == "1" for each in pleased]) == number


def test_by_chance_a_user_is_settled_as_often_as_dice_are() -> None:
    assert settled_by_chance(0.0, 128) == 128
    assert settled_by_chance(1.0, 128) == 3
    # Without a bound: (1 - p³) / ((1 - p) p³).
    assert settled_by_chance(0.5, 1000) == pytest.approx(14)
    dice = random.Random(0)
    thrown = [settled([dice.random() < 0.3 for _ in range(64)]) or 64 for _ in range(4000)]
    assert settled_by_chance(0.3, 64) == pytest.approx(sum(thrown) / len(thrown), abs=1.5)
