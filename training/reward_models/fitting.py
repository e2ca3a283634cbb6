"""Fits the members of an ensemble by gradient descent, all at once. Needs torch.

The loss of a member is the sum of three means, each over the ratings of its kind (s: logit of a reply):

- thumbs: −log σ(±s), both classes weighing the same (logistic regression);
- grades: (σ(s) − (r + 1) / 2)², r in (−1, 1);
- pairs: −log σ(s_better − s_worse) (Bradley and Terry 1952).

Each member sees the ratings as often as they were drawn for it, with replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from burnish.training.reward_models.ratings import THUMB, Ratings

MEMBERS = 5
STEPS = 100
LEARNING_RATE = 0.02

Logits = Callable[[], Tensor]
"""Returns (M, N): what each member says of the replies that it learns from."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What was said of N replies, as often as each of M members sees it."""

    thumbs: Tensor
    """+1, −1, or 0 if there is none, (N,)."""
    thumb_weights: Tensor
    """(M, N); they sum to 1, half of it for each class, or are all 0."""
    grades: Tensor
    """In [0, 1], (N,)."""
    grade_weights: Tensor
    """(M, N)."""
    better: Tensor
    """(P,)."""
    worse: Tensor
    """(P,)."""
    pair_weights: Tensor
    """(M, P)."""


def targets(ratings: Ratings, seed: int) -> Targets:
    generator = np.random.default_rng(seed)
    rewards = np.array([line.reward or 0.0 for line in ratings.lines])
    weights = np.array([line.weight for line in ratings.lines])
    thumbs = np.where(np.abs(rewards) == THUMB, np.sign(rewards), 0.0)
    graded = (rewards != 0) & (thumbs == 0)
    drawn = _drawn(generator, len(rewards)) * weights
    halves = [_shares(drawn * (thumbs == sign)) for sign in (1.0, -1.0)]
    pairs = np.array(ratings.pairs, dtype=np.int64).reshape(-1, 2)
    return Targets(
        torch.tensor(thumbs, dtype=torch.float32),
        torch.tensor(sum(halves) / 2, dtype=torch.float32),
        torch.tensor((rewards + 1) / 2, dtype=torch.float32),
        torch.tensor(_shares(drawn * graded), dtype=torch.float32),
        torch.tensor(pairs[:, 0]),
        torch.tensor(pairs[:, 1]),
        torch.tensor(_shares(_drawn(generator, len(pairs)) * weights[pairs[:, 0]]), dtype=torch.float32),
    )


def _drawn(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return how often each is drawn for each member, (M, N)."""
    if not count:
        return np.zeros((MEMBERS, 0))
    drawn: NDArray[np.int64] = generator.multinomial(count, np.full(count, 1 / count), size=MEMBERS)
    return drawn.astype(np.float64)


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    totals = weights.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = weights / np.where(totals > 0, totals, 1.0)
    return shares


def loss(logits: Tensor, targets: Targets) -> Tensor:
    """Return the sum of the members' losses; ``logits``: (M, N)."""
    thumbs = -(logsigmoid(targets.thumbs * logits) * targets.thumb_weights).sum()
    grades = ((logits.sigmoid() - targets.grades).square() * targets.grade_weights).sum()
    pairs = -(logsigmoid(logits[:, targets.better] - logits[:, targets.worse]) * targets.pair_weights).sum()
    return thumbs + grades + pairs


def fit(parameters: Sequence[Tensor], logits: Logits, targets: Targets, decay: float) -> None:
    """Change the parameters so that the logits fit what was said. ``decay``: weight decay, apart from the gradient."""
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=decay, fused=True)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss(logits(), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
