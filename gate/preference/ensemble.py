"""An ensemble of small models that score a reply; where they disagree, the score is lower.

Each member learnt from resampled ratings. Whoever picks the best of many replies finds those whose score is too high
by accident, and members that learnt from other ratings seldom share the accident. So a reply's score is the mean less
``CAUTION`` standard deviations (Coste et al. 2023, arXiv:2310.02743). Pure; numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from burnish.gate.preference.base import CandidateReply, Message, Vector, last_question
from burnish.gate.preference.preference_model import PreferenceModel
from burnish.gate.preference.views import Form, PlainReply, Words

CAUTION = 1.0
"""Standard deviations of the members that a score is lower than their mean."""
LOGIT = 2.0
"""Logit of a reply like good ones (+1 to a ridge regression): a reward of .88."""


class Members(Protocol):
    """The members of an ensemble, together."""

    def logits(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (M, N): what each of M members says of N replies; above 0 it is rather good."""
        ...


@dataclass(frozen=True, slots=True)
class Ridges:
    """Ridge regressions on a reply's form or words."""

    features: Form | Words
    coefficients: Vector
    """(M, F)."""
    constants: Vector
    """(M,)."""

    def logits(self, replies: Sequence[PlainReply]) -> Vector:
        return LOGIT * (self.coefficients @ self.features.table(replies).T + self.constants[:, None])


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A reward model whose scores are in [0, 1]; .5 says nothing either way."""

    members: Members

    def score(self, prompt: Sequence[Message], replies: Sequence[CandidateReply]) -> list[float]:
        question = last_question(prompt)
        return [
            float(s)
            for s in self.scores([PlainReply(question, reply.text, reply.finished) for reply in replies])
        ]

    def scores(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (N,)."""
        if not replies:
            return np.empty(0)
        with np.errstate(over="ignore", invalid="ignore"):  # callers look for what isn't a number
            return cautious(self.members.logits(replies))


def cautious(logits: Vector) -> Vector:
    """Return the scores by what the members say, (M, N) → (N,)."""
    return np.asarray(1 / (1 + np.exp(CAUTION * logits.std(axis=0) - logits.mean(axis=0))))


def ridges(model: PreferenceModel) -> Ensemble:
    """Return the fits of a preference model to resampled ratings, as an ensemble."""
    coefficients = np.stack([regression.coefficients for regression in model.again])
    return Ensemble(
        Ridges(model.features, coefficients, np.array([regression.constant for regression in model.again]))
    )
