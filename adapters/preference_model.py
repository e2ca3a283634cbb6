"""The preference model: a small classifier of good and bad replies, learnt from all ratings.

Ten held-out ratings seldom show whether a candidate is better. Fifty sampled replies do, if we know which of them users
would like. That is easy for preferences about length, form or address, and impossible for others. So a preference model
must first order unseen ratings right; only then may it judge.

Ridge-penalised logistic regression on standardised features, classes weighted equally, fitted by Newton's method.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from burnish.adapters.replies import on_topic, topics

Vector = NDArray[np.float64]

# Strength of the penalty in units of one rating: a dozen features must not memorise three dozen ratings.
RIDGE = 1.0
# Newton's method on so smooth a problem is exact after half a dozen steps.
NEWTON_STEPS = 12
FOLDS = 10
# Fewer ratings of a class aren't enough to learn from.
MIN_OF_A_CLASS = 4
# Share of (good, bad) pairs in the right order, on unseen ratings: chance is .5, and below .75 it guesses too often …
MIN_ORDERED = 0.75
# … and it must be above chance by so many standard errors.
MIN_SIGMAS = 2.0

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_SENTENCE = re.compile(r"[.!?…。！？]+(?:\s|$)")
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_YOU = frozenset({"you", "your", "yours", "yourself", "you're", "you'll", "you've", "you'd"})
_I = frozenset({"i", "i'm", "i'd", "i'll", "i've", "me", "my", "we", "us", "our"})


@dataclass(frozen=True, slots=True)
class RatedReply:
    conversation_id: str
    prompt: str
    """Text of the last user message."""
    text: str
    finished: bool
    """False when a token limit cut it."""
    reward: float
    weight: float


@dataclass(frozen=True, slots=True)
class PreferenceModel:
    """A classifier that orders unseen ratings well enough to judge by."""

    mean: Vector
    scale: Vector
    coefficients: Vector
    """One a feature, then the constant."""

    def probability_liked(self, prompt: str, text: str, finished: bool) -> float:
        """Return the probability that a user likes the reply, if good and bad ones were equally common."""
        row = (features(prompt, text, finished) - self.mean) / self.scale
        return float(_probability(np.append(row, 1.0) @ self.coefficients))


def features(prompt: str, text: str, finished: bool) -> Vector:
    """Return the features of a reply, (F,)."""
    words = [word.lower() for word in _WORD.findall(text)]
    sentences = max(1, len(_SENTENCE.findall(text)))
    count = max(1, len(words))
    return np.array(
        [
            log1p(len(text)),
            log1p(sentences),
            log1p(len(words) / sentences),
            sum(map(len, words)) / count,
            len(_ITEM.findall(text)) > 0,
            log1p(text.strip().count("\n")),
            "?" in text,
            "!" in text,
            any(character.isdigit() for character in text),
            sum(word in _YOU for word in words) / count,
            sum(word in _I for word in words) / count,
            on_topic(text, topics(prompt)),
            finished,
        ],
        dtype=np.float64,
    )


def fit_preference_model(rated: Sequence[RatedReply]) -> PreferenceModel | None:
    """Fit a preference model; None if there are too few ratings, or the features don't explain them."""
    counted = [each for each in rated if each.reward * each.weight != 0]
    good = np.array([each.reward > 0 for each in counted], dtype=bool)
    if min(good.sum(), (~good).sum()) < MIN_OF_A_CLASS:
        return None
    table = np.stack([features(each.prompt, each.text, each.finished) for each in counted])  # (N, F)
    weights = np.array([each.weight * abs(each.reward) for each in counted])
    digests = (hashlib.sha256(each.conversation_id.encode()).digest() for each in counted)
    folds = np.array([digest[0] % FOLDS for digest in digests])
    unseen = np.zeros(len(counted))
    for fold in set(folds.tolist()):
        seen = folds != fold
        if good[seen].all() or not good[seen].any():
            return None
        unseen[~seen] = _apply(_fit(table[seen], good[seen], weights[seen]), table[~seen])
    ordered, error = _ordered(unseen[good], unseen[~good])
    if ordered < MIN_ORDERED or ordered - MIN_SIGMAS * error <= 0.5:  # noqa: PLR2004  (chance)
        return None
    return PreferenceModel(*_fit(table, good, weights))


def _fit(table: Vector, good: NDArray[np.bool_], weights: Vector) -> tuple[Vector, Vector, Vector]:
    """Return (mean, scale, coefficients); each class weighs half of all ratings."""
    mean, scale = table.mean(axis=0), table.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    rows = np.column_stack([(table - mean) / scale, np.ones(len(table))])  # (N, F + 1)
    balanced = weights * np.where(good, 1 / weights[good].sum(), 1 / weights[~good].sum()) * len(table) / 2
    # The constant goes free; > 0 keeps the system solvable.
    penalty = np.diag([RIDGE] * table.shape[1] + [1e-6])
    coefficients = np.zeros(rows.shape[1])
    for _ in range(NEWTON_STEPS):
        probability = _probability(rows @ coefficients)
        gradient = rows.T @ (balanced * (good - probability)) - penalty @ coefficients
        curvature = (rows * (balanced * probability * (1 - probability))[:, None]).T @ rows + penalty
        coefficients = coefficients + np.linalg.solve(curvature, gradient)
    return mean, scale, coefficients


def _apply(fitted: tuple[Vector, Vector, Vector], table: Vector) -> Vector:
    mean, scale, coefficients = fitted
    return np.column_stack([(table - mean) / scale, np.ones(len(table))]) @ coefficients


def _probability(logit: Vector) -> Vector:
    return np.asarray(0.5 * (1 + np.tanh(logit / 2)))  # the logistic function, without overflow


def _ordered(good: Vector, bad: Vector) -> tuple[float, float]:
    """Return the share of (good, bad) pairs in the right order and its standard error.

    The area under the ROC curve; error by Hanley and McNeil 1982 (doi:10.1148/radiology.143.1.7063747).
    """
    share = float(np.mean((good[:, None] > bad[None, :]) + 0.5 * (good[:, None] == bad[None, :])))
    first, second = share / (2 - share), 2 * share**2 / (1 + share)
    variance = (
        share * (1 - share) + (len(good) - 1) * (first - share**2) + (len(bad) - 1) * (second - share**2)
    )
    return share, sqrt(max(variance, 0.0) / (len(good) * len(bad)))
