"""Reward models score replies. One is believed once it orders unseen ratings right.

Order: the share of (better, worse) pairs in the right order. It is the area under the ROC curve.

A learnt model is an ensemble of small ones, each of which learnt from resampled ratings. Whoever picks the best of many
replies finds those whose score is too high by accident, and members that learnt from other ratings seldom share the
accident. So a reply's score is the mean less ``CAUTION`` standard deviations (Coste et al. 2023, arXiv:2310.02743).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from burnish.gate.confidence import ONE_SIDED, order_error
from burnish.gate.rewards.features import Embedding, Form, PlainReply, Vector, Words

MIN_RATED = 32
"""Ratings from which a reward model may be learnt: with fewer, random ratings are believed too often."""
MIN_OF_A_CLASS = 4
"""Good ratings and bad ones that are needed for that."""
BELIEVED_ABOVE = 0.65
"""Lower bound of the order (chance is .5). At .6, 9 % of random ratings were believed; at .65 it is 1 %."""
CAUTION = 1.0
LOGIT = 2.0
"""Logit of a reply like good ones (+1 to a ridge regression): a reward of .88."""


class RewardModel(Protocol):
    def scores(self, replies: Sequence[PlainReply]) -> Vector:
        """Return one score for each reply, (N,); a higher one is better. Those to one question can be compared."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    share: float
    """Of (better, worse) pairs in the right order, in [0, 1]; chance is .5."""
    error: float
    """Its standard error."""

    @property
    def lower(self) -> float:
        return self.share - ONE_SIDED * self.error

    @property
    def upper(self) -> float:
        return min(1.0, self.share + ONE_SIDED * self.error)

    @property
    def believed(self) -> bool:
        return self.lower > BELIEVED_ABOVE


def order(good: ArrayLike, bad: ArrayLike) -> Order:
    """Compare scores of good replies, (n,), with scores of bad ones, (m,); neither may be empty."""
    better, worse = np.asarray(good, dtype=np.float64), np.asarray(bad, dtype=np.float64)
    above = better[:, None] > worse[None, :]
    share = float(np.mean(above + 0.5 * (better[:, None] == worse[None, :])))
    return Order(share, order_error(share, len(better), len(worse)))


@dataclass(frozen=True, slots=True)
class Ridges:
    """Ridge regressions on a reply's form or words."""

    features: Form | Words
    coefficients: Vector
    """(M, F)."""
    constants: Vector
    """(M,)."""

    def logits(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (M, N): what each of M members says of N replies; above 0 it is rather good."""
        return LOGIT * (self.coefficients @ self.features.table(replies).T + self.constants[:, None])


@dataclass(frozen=True, slots=True)
class Perceptrons:
    """Multilayer perceptrons with one hidden layer: w₂ · tanh(W₁ (x − m) / s + b₁) + b₂."""

    embedding: Embedding
    mean: Vector
    """Of the features, (2 D,)."""
    scale: Vector
    """(2 D,)."""
    hidden: Vector
    """W₁, (M, 2 D, H)."""
    hidden_bias: Vector
    """(M, H)."""
    out: Vector
    """(M, H)."""
    out_bias: Vector
    """(M,)."""

    def logits(self, replies: Sequence[PlainReply]) -> Vector:
        """Return (M, N), as of ``Ridges``."""
        features = (self.embedding.table(replies) - self.mean) / self.scale
        layer = np.tanh(np.einsum("nf,mfh->mnh", features, self.hidden) + self.hidden_bias[:, None])
        return np.asarray(np.einsum("mnh,mh->mn", layer, self.out) + self.out_bias[:, None])


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A reward model whose scores are in [0, 1]; .5 says nothing either way."""

    members: Ridges | Perceptrons

    def scores(self, replies: Sequence[PlainReply]) -> Vector:
        if not replies:
            return np.empty(0)
        with np.errstate(over="ignore", invalid="ignore"):  # callers look for what isn't a number
            logits = self.members.logits(replies)
            return np.asarray(1 / (1 + np.exp(CAUTION * logits.std(axis=0) - logits.mean(axis=0))))
