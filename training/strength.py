"""How strongly, and in which direction, each rated reply pulls: its advantage, and trust in its rating."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# With fewer, what the others say is not worth more than what the user rated_good.
MIN_RATINGS, MIN_OF_A_CLASS = 16, 3
ROUNDS = 40
# What is expected of a class's ratings counts like that many of them.
EXPECTED_RATINGS = 4
# Nats: no probability nearer to 0 or 1 than e^-8.
MOST_CERTAIN = 8.0
ERRORS = (0.01, 0.45)
"""Beyond the upper end of what is believed of ε the ratings would mean their opposite."""
SMALL = 1e-9
DISBELIEVED = 0.05
"""Ratings that are believed no more than this are left out."""


def enough(good: Sequence[bool]) -> bool:
    return len(good) >= MIN_RATINGS and min(sum(good), len(good) - sum(good)) >= MIN_OF_A_CLASS


def trust(cosines: Floats, good: Sequence[bool], expected: float) -> list[float]:
    """Return how far each rating is believed, (N,), in [0, 1]: ``2 P(it is right) − 1``, at least 0.

    Among a few dozen ratings, one that contradicts the others does harm.

    Two replies are alike when to learn the one is to learn the other: the cosine of their gradients (TracIn, arXiv
    2002.08484, calls the inner product influence; it is the neural tangent kernel, 1806.07572). A reply is then more
    like the good ones, or more like the bad ones, *leaving itself out*:

        f_i = mean_{j ≠ i} (p_j-weighted) cos(g_i, g_j) − mean_{j ≠ i} ((1 − p_j)-weighted) cos(g_i, g_j)

    with p_j the probability that j is truly good. Expectation–maximisation over the truth (as Dawid & Skene, 1979, with
    an error rate ε for each of "good" and "bad", and f normally distributed within a class) takes turns: from p follow
    f, the classes' means and ε; from these follows p,

        log p_i/(1 − p_i) = log N(f_i; m_good, s) − log N(f_i; m_bad, s) ± log (1 − ε)/ε.

    If similarity has nothing to do with the ratings, the first two terms cancel, and all ratings of a class are
    believed equally. If more ratings would be disbelieved than expected, similarity reflects another difference between
    the replies, such as their length, and all ratings are believed. No rating is ever reversed: at worst its weight is
    0.

    ``cosines`` are those between the gradients of the replies, (N, N). ``expected`` is the assumed share of mistaken
    ratings, in (0, .45]; if more would be disbelieved, all are believed.
    """
    rated_good = np.asarray(good, dtype=bool)
    truly_good = _truly_good(_centred(cosines), rated_good, expected)
    right = np.where(rated_good, truly_good, 1 - truly_good)
    believed = np.maximum(0.0, 2 * right - 1)
    if np.mean(believed <= DISBELIEVED) > expected:
        return [1.0] * len(good)
    return [float(belief) for belief in believed]


def _centred(cosines: Floats) -> Floats:
    """Return cosines without their common part and without a diagonal."""
    rows = cosines.mean(axis=1)
    centred = cosines - rows[:, None] - rows[None, :] + rows.mean()
    np.fill_diagonal(centred, 0.0)
    return np.asarray(centred)


def _truly_good(similarity: Floats, rated_good: NDArray[np.bool_], expected: float) -> Floats:
    probability = np.where(rated_good, 1 - expected, expected)
    for _ in range(ROUNDS):
        wrong = np.where(rated_good, 1 - probability, probability)
        errors = np.where(
            rated_good, _error(wrong[rated_good], expected), _error(wrong[~rated_good], expected)
        )
        own = np.log((1 - errors) / errors)
        score = _towards(similarity, probability) - _towards(similarity, 1 - probability)
        odds = _evidence(score, probability) + np.where(rated_good, own, -own)
        probability = 1 / (1 + np.exp(-np.clip(odds, -MOST_CERTAIN, MOST_CERTAIN)))
    return np.asarray(probability)


def _error(wrong: Floats, expected: float) -> float:
    share = (wrong.sum() + EXPECTED_RATINGS * expected) / (len(wrong) + EXPECTED_RATINGS)
    return float(np.clip(share, *ERRORS))


def _towards(similarity: Floats, weights: Floats) -> Floats:
    """Return the weighted mean similarity to the others, (N,)."""
    return np.asarray(similarity @ weights / np.maximum(weights.sum() - weights, SMALL))


def _evidence(score: Floats, probability: Floats) -> Floats:
    """Return the log likelihood ratio of good to bad by score, (N,); 0 if the classes are in the wrong order."""
    good, bad = (float(score @ weights / weights.sum()) for weights in (probability, 1 - probability))
    if good <= bad:
        return np.zeros_like(score)
    spread = probability @ (score - good) ** 2 + (1 - probability) @ (score - bad) ** 2
    variance = spread / len(score) + SMALL
    return np.asarray(((score - bad) ** 2 - (score - good) ** 2) / (2 * variance))


# A variance below it is an artefact of float64 sums over equal rewards.
ROUNDING = 1e-12


ADVANTAGE_LIMIT = 3.0
"""In standard deviations. With one good rating among 31 its advantage would be 5.6: one reply would steer the run."""
EMA_DECAY = 0.99
"""As in reinforceclaw 0.1.0."""


def limited(advantage: float) -> float:
    return max(-ADVANTAGE_LIMIT, min(ADVANTAGE_LIMIT, advantage))


def advantages(rewards: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return one advantage per rating by the baseline "batch", (N,), each within ±``ADVANTAGE_LIMIT``.

    ``rewards`` are in [-1, 1], (N,). ``weights`` are ≥ 0, (N,): they count in mean and deviation here, and once
    more as factors of the loss. Rewards that do not differ can't be normalised and stay as they are.

    ``A_i = (r_i − mean) / std`` over the ratings of the whole run. Good and bad then pull equally hard in sum, however
    many there are of each, and no further class weight is needed. Not over a step's batch: its accidental composition
    would change the meaning of a rating. A constant baseline or a common factor of all rewards cancels out.
    """
    total = sum(weights)
    if total == 0:
        return list(rewards)
    mean = sum(w * r for r, w in zip(rewards, weights, strict=True)) / total
    variance = sum(w * (r - mean) ** 2 for r, w in zip(rewards, weights, strict=True)) / total
    if variance < ROUNDING:
        return list(rewards)
    deviation = math.sqrt(variance)
    return [limited((r - mean) / deviation) for r in rewards]


def above_average(rewards: Sequence[float]) -> list[float]:
    """Return one advantage per rating by the baseline "ema", (N,); rewards are in the order of the replies.

    ``A_i = r_i − b_i`` with ``b_i`` a moving average of the earlier rewards: whether a reply was better than the user
    had come to expect. The average starts at 0 and is not bias-corrected.
    """
    advantages, average = [], 0.0
    for reward in rewards:
        advantages.append(reward - average)
        average = EMA_DECAY * average + (1 - EMA_DECAY) * reward
    return advantages


def balanced(good: Sequence[bool], weights: Sequence[float]) -> list[float]:
    """Return weights in the same sum, (N,), half of it for each class; one class alone keeps its own."""
    heavy = sum(w for w, is_good in zip(weights, good, strict=True) if is_good)
    light = sum(weights) - heavy
    if not heavy or not light:
        return list(weights)
    half = (heavy + light) / 2
    return [w * half / (heavy if is_good else light) for w, is_good in zip(weights, good, strict=True)]
