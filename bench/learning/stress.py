"""Users who rate otherwise than they should: what a user's ratings become before they are sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Literal

Stress = Literal["none", "flip10", "flip20", "flip30", "only_good", "only_bad", "turn"]

_Change = Callable[[bool, int, int, random.Random], bool | None]
"""(good, place, ratings, dice) → what is said; None: nothing."""


def _flipped(share: float) -> _Change:
    return lambda good, place, ratings, dice: good != (dice.random() < share)


_CHANGES: Mapping[Stress, _Change] = {
    "none": lambda good, place, ratings, dice: good,
    "flip10": _flipped(0.1),
    "flip20": _flipped(0.2),
    "flip30": _flipped(0.3),
    "only_good": lambda good, place, ratings, dice: True if good else None,
    "only_bad": lambda good, place, ratings, dice: None if good else False,
    # Wanted the opposite in the first half; judged by what is wanted in the end.
    "turn": lambda good, place, ratings, dice: good == (place >= ratings // 2),
}


def stressed(kind: Stress, pleased: list[bool], seed: int) -> list[bool | None]:
    """Return what is said of each reply: good, bad, or nothing."""
    dice = random.Random(seed)
    return [_CHANGES[kind](good, place, len(pleased), dice) for place, good in enumerate(pleased)]
