"""Ratings → advantages: how strongly, and in which direction, each rated reply pulls.

Three ways; each objective knows which one it means (``lessons``):

- *normalised*: ``A_i = (r_i − mean) / std`` over the ratings of the whole run, weights counted. Good and bad then pull
  equally hard in sum, however many there are of each – few good replies get a louder voice – so the classes are
  balanced and no further class weight is applied. Not over a batch: a batch's accident of composition would change
  what a rating means. A constant baseline or a common factor of all rewards cancels out.
- *raw*: ``A_i = r_i``. Keeps what the rewards say in absolute terms; mostly bad ratings then mostly push down.
- *above a baseline*: ``A_i = r_i − b_i``, where ``b_i`` is a moving average of the rewards before. It tells whether a
  reply was better than what the user had come to expect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# With one good rating among 31 the normalised advantage would be 5.6: one reply would steer the whole run.
ADVANTAGE_LIMIT = 3.0
# A variance below it is an artefact of float64 sums over equal rewards.
ROUNDING = 1e-12


def advantages(rewards: Sequence[float], weights: Sequence[float], *, normalise: bool) -> list[float]:
    """Return one advantage per rating, (N,), each within ±``ADVANTAGE_LIMIT``.

    ``rewards`` are in [-1, 1], (N,). ``weights`` are ≥ 0, (N,): they count in mean and deviation here, and once
    more as factors of the loss. Rewards that do not differ can't be normalised and stay raw.
    """
    total = sum(weights)
    if not normalise or total == 0:
        return list(rewards)
    mean = sum(w * r for r, w in zip(rewards, weights, strict=True)) / total
    variance = sum(w * (r - mean) ** 2 for r, w in zip(rewards, weights, strict=True)) / total
    if variance < ROUNDING:
        return list(rewards)
    deviation = math.sqrt(variance)
    return [max(-ADVANTAGE_LIMIT, min(ADVANTAGE_LIMIT, (r - mean) / deviation)) for r in rewards]


def above_baseline(rewards: Sequence[float], decay: float) -> list[float]:
    """Return each reward less the moving average of those before it, (N,), in the order in which they were given.

    The average has no memory of a start value (bias correction as in Adam, arXiv 1412.6980): before the first rating
    it is 0, after a few it is their mean.
    """
    found, total, mass = [], 0.0, 0.0
    for reward in rewards:
        found.append(reward - (total / mass if mass else 0.0))
        total, mass = decay * total + (1 - decay) * reward, decay * mass + (1 - decay)
    return found


def balanced(good: Sequence[bool], weights: Sequence[float]) -> list[float]:
    """Return weights in the same sum, (N,), half of it for each class; one class alone keeps its own."""
    heavy = sum(w for w, is_good in zip(weights, good, strict=True) if is_good)
    rest = sum(weights) - heavy
    if not heavy or not rest:
        return list(weights)
    half = (heavy + rest) / 2
    return [w * half / (heavy if is_good else rest) for w, is_good in zip(weights, good, strict=True)]
