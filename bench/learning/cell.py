"""One cell of the grid: who talks to burnish, how it learns from them, and how often."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.learning.stress import Stress

HELD_OUT = 80
IN_A_ROW = 3
"""Satisfying first answers in a row after which a user is settled."""

Way = Literal["anew", "rounds", "online"]
"""anew: each number of ratings is learnt from the base model, out of the same answers of it; users take turns.
rounds: a version stays live, and answers the next questions; of several users, each has a round.
online: the same until the user is settled, and the gate decides what goes live; otherwise it is overruled."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The setup of one measurement."""

    arm: str
    users: tuple[str, ...]
    """What they want; all of them use the same program. The last one's instruction is what counts in the end."""
    seed: int
    counts: tuple[int, ...]
    """Ratings given, in all, whenever burnish trains."""
    way: Way = "anew"
    stress: Stress = "none"
    held_out: int = HELD_OUT
    widely: bool = True
    """Whether its exams ask for facts and for answers at length, too."""

    @property
    def key(self) -> str:
        """Its name in the results."""
        ratings = "-".join(map(str, self.counts))
        users = "+".join(self.users)
        return f"{users}/{self.arm}/{self.way}/{self.stress}/{ratings}/{self.held_out}/{self.seed}"

    def rater(self, place: int) -> str:
        """Return whose question has this place."""
        if self.way == "anew":
            return self.users[place % len(self.users)]
        return self.users[min(bisect_right(self.counts, place), len(self.users) - 1)]


def settled(pleased: Sequence[bool]) -> int | None:
    """Return after how many first answers the last ``IN_A_ROW`` of them satisfied; None: never."""
    row = 0
    for number, good in enumerate(pleased, start=1):
        row = row + 1 if good else 0
        if row == IN_A_ROW:
            return number
    return None


def settled_by_chance(share: float, most: int) -> float:
    """Return the mean of ``settled``, ``most`` at most, over answers of which a share satisfies: nothing is learnt."""
    rows = [1.0] + [0.0] * (IN_A_ROW - 1)  # probability of a row so long, not settled yet
    mean = 0.0
    for _ in range(most):
        mean += sum(rows)
        rows = [(1 - share) * sum(rows)] + [share * row for row in rows[:-1]]
    return mean
