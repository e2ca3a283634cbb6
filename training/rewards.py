"""Ratings → advantages: how strongly, and in which direction, each rated reply pulls.

- *batch*: ``A_i = (r_i − mean) / std`` over the ratings of the whole run, weights counted. Good and bad then pull
  equally hard in sum, however many there are of each, and no further class weight is needed. Not over a step's batch:
  its accidental composition would change the meaning of a rating. A constant baseline or a common factor of all rewards
  cancels out.
- *ema*: ``A_i = r_i − b_i`` with ``b_i`` a moving average of the rewards before. It tells whether a reply was better
  than the user had come to expect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# With one good rating among 31 the normalised advantage would be 5.6: one reply would steer the whole run.
ADVANTAGE_LIMIT = 3.0
# A variance below it is an artefact of float64 sums over equal rewards.
ROUNDING = 1e-12
# As in reinforceclaw 0.1.0.
EMA_DECAY = 0.99


def advantages(rewards: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return one advantage per rating by the baseline "batch", (N,), each within ±``ADVANTAGE_LIMIT``.

    ``rewards`` are in [-1, 1], (N,). ``weights`` are ≥ 0, (N,): they count in mean and deviation here, and once
    more as factors of the loss. Rewards that do not differ can't be normalised and stay as they are.
    """
    total = sum(weights)
    if total == 0:
        return list(rewards)
    mean = sum(w * r for r, w in zip(rewards, weights, strict=True)) / total
    variance = sum(w * (r - mean) ** 2 for r, w in zip(rewards, weights, strict=True)) / total
    if variance < ROUNDING:
        return list(rewards)
    deviation = math.sqrt(variance)
    return [max(-ADVANTAGE_LIMIT, min(ADVANTAGE_LIMIT, (r - mean) / deviation)) for r in rewards]


def above_average(rewards: Sequence[float]) -> list[float]:
    """Return one advantage per rating by the baseline "ema", (N,); rewards are in the order of the replies.

    The average starts at 0 and is not bias-corrected, as in reinforceclaw 0.1.0.
    """
    found, average = [], 0.0
    for reward in rewards:
        found.append(reward - average)
        average = EMA_DECAY * average + (1 - EMA_DECAY) * reward
    return found


def balanced(good: Sequence[bool], weights: Sequence[float]) -> list[float]:
    """Return weights in the same sum, (N,), half of it for each class; one class alone keeps its own."""
    heavy = sum(w for w, is_good in zip(weights, good, strict=True) if is_good)
    rest = sum(weights) - heavy
    if not heavy or not rest:
        return list(weights)
    half = (heavy + rest) / 2
    return [w * half / (heavy if is_good else rest) for w, is_good in zip(weights, good, strict=True)]
