"""The preference model: which replies would the raters like, judging by form or by words?

Ten held-out ratings seldom show whether a candidate is better. Fifty sampled replies do, if we know which of them users
would like. A ridge regression on a reply's form or on its words learns that from a few dozen ratings within 40 ms.
``bench.rewards.preference_model`` simulates how often it is believed, and how often it proves what isn't true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from burnish.gate.preference.base import (
    MIN_OF_A_CLASS,
    MIN_RATED,
    CandidateReply,
    Message,
    Order,
    Vector,
    last_question,
)
from burnish.gate.preference.ridge import Regression, best_penalty, fit, redrawn
from burnish.gate.preference.views import VIEWS, Form, PlainReply, View, Words, learnt

MOST_RATED = 256
"""The latest ratings that are learnt from: solving costs the cube of their number. 256 take half a second."""
RESAMPLES = 50
"""Fits to resampled ratings. Their spread is the error that comes from having few ratings."""
SEED = 0


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

    def score(self, prompt: Sequence[Message], replies: Sequence[CandidateReply]) -> list[float]:
        question = last_question(prompt)
        return [
            float(s)
            for s in self.scores([PlainReply(question, reply.text, reply.finished) for reply in replies])
        ]

    def scores(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (N,)."""
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
    ratings: Sequence[RatedReply], views: Sequence[View] = VIEWS
) -> PreferenceModel | None:
    """Fit the view that orders unseen ratings best; None if there are too few ratings, or too few of a class."""
    counted = counting(ratings)
    good = sum(reply.reward > 0 for reply in counted)
    if len(counted) < MIN_RATED or min(good, len(counted) - good) < MIN_OF_A_CLASS:
        return None
    return fit_views(counted, views)


def counting(ratings: Sequence[RatedReply]) -> list[RatedReply]:
    """Return the latest ratings that say good or bad."""
    return [reply for reply in ratings if reply.reward * reply.weight != 0][-MOST_RATED:]


def fit_views(counted: Sequence[RatedReply], views: Sequence[View] = VIEWS) -> PreferenceModel | None:
    """Fit as ``fit_preference_model``, however few there are; None if a part of them has a single class."""
    labels = np.array([1.0 if reply.reward > 0 else -1.0 for reply in counted])
    weights = np.array([reply.weight * abs(reply.reward) for reply in counted])
    groups = [reply.conversation_id for reply in counted]
    replies = [rating.reply for rating in counted]
    choice = None
    for view in views:
        features = learnt(view, replies)
        table = features.table(replies)
        best = best_penalty(table, labels, weights, groups)
        if best and (choice is None or best[1].share > choice[1].share):
            choice = view, best[1], features, table, best[0]
    if choice is None:
        return None
    view, ordered, features, table, penalty = choice
    generator = np.random.default_rng(SEED)
    draws = [redrawn(labels, generator) for _ in range(RESAMPLES)]
    again = tuple(fit(table[rows], labels[rows], weights[rows], penalty) for rows in draws)
    return PreferenceModel(view, ordered, features, fit(table, labels, weights, penalty), again)
