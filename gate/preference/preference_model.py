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
    Candidate,
    Message,
    Order,
    Vector,
    last_question,
)
from burnish.gate.preference.ridge import Fitted, best_penalty, fit, redrawn
from burnish.gate.preference.views import VIEWS, Form, Seen, View, Words, learnt

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
    def seen(self) -> Seen:
        return Seen(self.prompt, self.text, self.finished)


@dataclass(frozen=True, slots=True)
class PreferenceModel:
    """A reward model of words or form; scores are near +1 for replies like good ones, −1 for those like bad ones."""

    view: View
    order: Order
    """On ratings that it didn't see."""
    seen: Form | Words
    fitted: Fitted
    again: tuple[Fitted, ...]
    """Fits to resampled ratings."""

    def score(self, prompt: Sequence[Message], replies: Sequence[Candidate]) -> list[float]:
        question = last_question(prompt)
        return [float(s) for s in self.scores([Seen(question, each.text, each.finished) for each in replies])]

    def scores(self, replies: Sequence[Seen]) -> Vector:
        """Return (N,)."""
        return self.fitted.scores(self.seen.table(replies))

    def gains(self, new: Sequence[Seen], old: Sequence[Seen]) -> tuple[Vector, Vector]:
        """Compare replies to the same prompts.

        Returns the differences of the scores, (n,), and their mean by each fit to resampled ratings, (R,).
        """
        difference = self.seen.table(new) - self.seen.table(old)
        mean: NDArray[np.float64] = difference.mean(axis=0)
        return difference @ self.fitted.coefficients, np.array(
            [mean @ each.coefficients for each in self.again]
        )


def believed_preference_model(rated: Sequence[RatedReply]) -> PreferenceModel | None:
    """Fit the preference model; None if it doesn't order unseen ratings well enough to judge by."""
    found = fit_preference_model(rated)
    return found if found and found.order.believed else None


def fit_preference_model(
    rated: Sequence[RatedReply], views: Sequence[View] = VIEWS
) -> PreferenceModel | None:
    """Fit the view that orders unseen ratings best; None if there are too few ratings, or too few of a class."""
    counted = counting(rated)
    good = sum(each.reward > 0 for each in counted)
    if len(counted) < MIN_RATED or min(good, len(counted) - good) < MIN_OF_A_CLASS:
        return None
    return fit_views(counted, views)


def counting(rated: Sequence[RatedReply]) -> list[RatedReply]:
    """Return the latest ratings that say good or bad."""
    return [each for each in rated if each.reward * each.weight != 0][-MOST_RATED:]


def fit_views(counted: Sequence[RatedReply], views: Sequence[View] = VIEWS) -> PreferenceModel | None:
    """Fit as ``fit_preference_model``, however few there are; None if a part of them has a single class."""
    labels = np.array([1.0 if each.reward > 0 else -1.0 for each in counted])
    weights = np.array([each.weight * abs(each.reward) for each in counted])
    groups = [each.conversation_id for each in counted]
    replies = [each.seen for each in counted]
    chosen = None
    for view in views:
        seen = learnt(view, replies)
        table = seen.table(replies)
        best = best_penalty(table, labels, weights, groups)
        if best and (chosen is None or best[1].share > chosen[1].share):
            chosen = view, best[1], seen, table, best[0]
    if chosen is None:
        return None
    view, ordered, seen, table, penalty = chosen
    generator = np.random.default_rng(SEED)
    draws = [redrawn(labels, generator) for _ in range(RESAMPLES)]
    again = tuple(fit(table[rows], labels[rows], weights[rows], penalty) for rows in draws)
    return PreferenceModel(view, ordered, seen, fit(table, labels, weights, penalty), again)
