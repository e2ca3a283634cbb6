"""Kernel ridge regression of good (+1) and bad (−1) on few replies with many features, with cross-validation.

Each class weighs half of all, so that a rating's base rate isn't learnt. The dual form costs (N, N), not (F, F): there
are fewer ratings than words. λ and view are chosen by the area under the ROC curve on unseen conversations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from burnish.gate.preference.base import Order, Vector, order

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
FOLDS = 5
REPEATS = 2
"""Two different splits: one split of 32 ratings is an accident."""

Mask = NDArray[np.bool_]
Labels = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Regression:
    """score(x) = coefficients · x + constant."""

    coefficients: Vector
    constant: float

    def scores(self, table: Vector) -> Vector:
        """Return (N,) for a table (N, F)."""
        return np.asarray(table @ self.coefficients + self.constant)


def balanced(labels: Labels, weights: Vector) -> Vector:
    """Scale weights so that each class has half of their sum; the mean weight is 1."""
    good = labels > 0
    share = np.where(good, 1 / weights[good].sum(), 1 / weights[~good].sum())
    return np.asarray(weights * share * len(labels) / 2)


def fit(table: Vector, labels: Labels, weights: Vector, penalty: float) -> Regression:
    """Minimise Σ w (y − x·β − c)² + λ |β|², both classes weighing the same. ``table``: (N, F)."""
    scaled = balanced(labels, weights)
    middle = scaled @ table / scaled.sum()
    level = float(scaled @ labels / scaled.sum())
    rows = table - middle
    # (K + λ W⁻¹) α = y, β = Xᵀ α
    system = rows @ rows.T + penalty * np.diag(1 / scaled)
    coefficients = rows.T @ np.linalg.solve(system, labels - level)
    return Regression(coefficients, level - float(middle @ coefficients))


def unseen_order(
    table: Vector, labels: Labels, weights: Vector, groups: Sequence[str], penalty: float
) -> Order | None:
    """Order each reply by a fit that saw no reply of its group; None if a part of the data has a single class."""
    orders = []
    for seed in range(REPEATS):
        scores = np.empty(len(labels))
        for mask in splits(labels, groups, seed):
            if not (labels[mask] > 0).any() or not (labels[mask] < 0).any():
                return None
            scores[~mask] = fit(table[mask], labels[mask], weights[mask], penalty).scores(table[~mask])
        orders.append(order(scores[labels > 0], scores[labels < 0]))
    return Order(
        float(np.mean([repeat.share for repeat in orders])),
        float(np.mean([repeat.error for repeat in orders])),
    )


def best_penalty(
    table: Vector, labels: Labels, weights: Vector, groups: Sequence[str]
) -> tuple[float, Order] | None:
    """Return the penalty whose fits order unseen replies best, and how well."""
    orders = [
        (penalty, ordered)
        for penalty in PENALTIES
        if (ordered := unseen_order(table, labels, weights, groups, penalty))
    ]
    return max(orders, key=lambda pair: (pair[1].share, pair[0])) if orders else None


def redrawn(labels: Labels, generator: np.random.Generator) -> NDArray[np.intp]:
    """Draw the places of as many good and as many bad replies as there are, with replacement."""
    kinds = (np.flatnonzero(labels > 0), np.flatnonzero(labels < 0))
    return np.concatenate([generator.choice(kind, len(kind)) for kind in kinds])


def splits(labels: Labels, groups: Sequence[str], seed: int) -> Iterator[Mask]:
    """Yield masks of the replies that are seen: whole groups are left out, of both classes alike."""
    kinds: dict[str, list[float]] = {}
    for group, label in zip(groups, labels, strict=True):
        kinds.setdefault(group, []).append(float(label))
    digest = partial(_digest, seed=seed)
    folds: dict[str, int] = {}
    for good in (True, False):
        names = sorted((name for name, own in kinds.items() if (own[0] > 0) is good), key=digest)
        folds |= {name: place % FOLDS for place, name in enumerate(names)}
    assigned = np.array([folds[group] for group in groups])
    for fold in sorted(set(folds.values())):
        yield assigned != fold


def _digest(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()
