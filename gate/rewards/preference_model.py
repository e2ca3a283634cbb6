"""The preference model: which replies would the raters like, judging by form or by words?

Ten held-out ratings seldom show whether a candidate is better. Fifty sampled replies do, if we know which of them users
would like. A ridge regression on a reply's form or on its words learns that from a few dozen ratings within 40 ms.
``bench.rewards.preference_model`` simulates how often it is believed, and how often it proves what isn't true.

Kernel ridge regression of good (+1) and bad (−1): each class weighs half of all, so that a rating's base rate isn't
learnt. The dual form costs (N, N), not (F, F): there are fewer ratings than words. λ and view are chosen by the area
under the ROC curve on unseen conversations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from burnish.gate.rewards.features import VIEWS, Form, PlainReply, Vector, View, Words
from burnish.gate.rewards.model import MIN_OF_A_CLASS, MIN_RATED, Ensemble, Order, Ridges, order

MOST_RATED = 256
"""The latest ratings that are learnt from: solving costs the cube of their number. 256 take half a second."""
RESAMPLES = 50
"""Fits to resampled ratings. Their spread is the error that comes from having few ratings."""
SEED = 0
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


@dataclass(frozen=True, slots=True)
class Rows:
    """N rated replies as numbers."""

    table: Vector
    """(N, F)."""
    labels: Labels
    weights: Vector
    groups: Sequence[str]

    def fit(self, penalty: float, places: Mask | NDArray[np.intp] | slice = slice(None)) -> Regression:
        """Minimise Σ w (y − x·β − c)² + λ |β|² over some rows, both classes weighing half of Σ w = N."""
        table, labels, weights = self.table[places], self.labels[places], self.weights[places]
        good = labels > 0
        share = np.where(good, 1 / weights[good].sum(), 1 / weights[~good].sum())
        scaled = weights * share * len(labels) / 2
        middle = scaled @ table / scaled.sum()
        level = float(scaled @ labels / scaled.sum())
        rows = table - middle
        # (K + λ W⁻¹) α = y, β = Xᵀ α
        system = rows @ rows.T + penalty * np.diag(1 / scaled)
        coefficients = rows.T @ np.linalg.solve(system, labels - level)
        return Regression(coefficients, level - float(middle @ coefficients))

    def unseen_order(self, penalty: float) -> Order | None:
        """Order each reply by a fit that saw no reply of its group; None if a part of the data has a single class."""
        good, orders = self.labels > 0, []
        for seed in range(REPEATS):
            scores = np.empty(len(good))
            for mask in splits(self.labels, self.groups, seed):
                if good[mask].all() or not good[mask].any():
                    return None
                scores[~mask] = self.fit(penalty, mask).scores(self.table[~mask])
            orders.append(order(scores[good], scores[~good]))
        share, error = np.mean([(repeat.share, repeat.error) for repeat in orders], axis=0)
        return Order(float(share), float(error))

    def best_penalty(self) -> tuple[float, Order] | None:
        """Return the penalty whose fits order unseen replies best, and how well."""
        orders = [(penalty, ordered) for penalty in PENALTIES if (ordered := self.unseen_order(penalty))]
        return max(orders, key=lambda pair: (pair[1].share, pair[0])) if orders else None


def splits(labels: Labels, groups: Sequence[str], seed: int) -> Iterator[Mask]:
    """Yield masks of the replies that are seen: whole groups are left out, of both classes alike."""
    first: dict[str, float] = {}
    for group, label in zip(groups, labels, strict=True):
        first.setdefault(group, float(label))
    folds: dict[str, int] = {}
    for good in (True, False):
        alike = (name for name, label in first.items() if (label > 0) is good)
        names = sorted(alike, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
        folds |= {name: place % FOLDS for place, name in enumerate(names)}
    assigned = np.array([folds[group] for group in groups])
    for fold in sorted(set(folds.values())):
        yield assigned != fold


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

    @property
    def reply(self) -> PlainReply:
        return PlainReply(self.prompt, self.text, self.finished)


@dataclass(frozen=True, slots=True)
class PreferenceModel:
    """A reward model of words or form; scores are near +1 for replies like good ones, −1 for those like bad ones."""

    view: View
    order: Order
    """On ratings that it didn't see."""
    features: Form | Words
    fitted: Regression
    again: tuple[Regression, ...]
    """Fits to resampled ratings."""

    def scores(self, replies: Sequence[PlainReply]) -> Vector:
        return self.fitted.scores(self.features.table(replies))

    def gains(self, new: Sequence[PlainReply], old: Sequence[PlainReply]) -> tuple[Vector, Vector]:
        """Compare replies to the same prompts.

        Returns the differences of the scores, (n,), and their mean by each fit to resampled ratings, (R,).
        """
        difference = self.features.table(new) - self.features.table(old)
        mean: NDArray[np.float64] = difference.mean(axis=0)
        return difference @ self.fitted.coefficients, np.array(
            [mean @ regression.coefficients for regression in self.again]
        )


def believed_preference_model(ratings: Sequence[RatedReply]) -> PreferenceModel | None:
    """Fit the preference model; None if it doesn't order unseen ratings well enough to judge by."""
    model = fit_preference_model(ratings)
    return model if model and model.order.believed else None


def fit_preference_model(
    ratings: Sequence[RatedReply], views: Iterable[View] = VIEWS
) -> PreferenceModel | None:
    """Fit the view that orders unseen ratings best; None if there are too few ratings, or too few of a class."""
    counted = [reply for reply in ratings if reply.reward * reply.weight != 0][-MOST_RATED:]
    good = sum(reply.reward > 0 for reply in counted)
    if len(counted) < MIN_RATED or min(good, len(counted) - good) < MIN_OF_A_CLASS:
        return None
    return fit_views(counted, views)


def fit_views(counted: Sequence[RatedReply], views: Iterable[View] = VIEWS) -> PreferenceModel | None:
    """Fit as ``fit_preference_model``, however few there are; None if a part of them has a single class."""
    labels = np.array([1.0 if reply.reward > 0 else -1.0 for reply in counted])
    weights = np.array([reply.weight * abs(reply.reward) for reply in counted])
    groups = [reply.conversation_id for reply in counted]
    replies = [rating.reply for rating in counted]
    choice = None
    for view in views:
        features: Form | Words = VIEWS[view].of(replies)
        rows = Rows(features.table(replies), labels, weights, groups)
        best = rows.best_penalty()
        if best and (choice is None or best[1].share > choice[1].share):
            choice = view, best[1], features, rows, best[0]
    if choice is None:
        return None
    view, ordered, features, rows, penalty = choice
    generator = np.random.default_rng(SEED)
    kinds = (np.flatnonzero(labels > 0), np.flatnonzero(labels < 0))
    again = []
    for _ in range(RESAMPLES):  # as many good and as many bad replies as there are
        drawn = np.concatenate([generator.choice(kind, len(kind)) for kind in kinds])
        again.append(rows.fit(penalty, drawn))
    return PreferenceModel(view, ordered, features, rows.fit(penalty), tuple(again))


def ridges(model: PreferenceModel) -> Ensemble:
    """Return the fits of a preference model to resampled ratings, as an ensemble."""
    coefficients = np.stack([regression.coefficients for regression in model.again])
    return Ensemble(
        Ridges(model.features, coefficients, np.array([regression.constant for regression in model.again]))
    )
