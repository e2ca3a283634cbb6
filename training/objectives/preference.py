"""Objectives on the implicit reward ``β · log(π(y) / π_ref(y))`` of a whole reply: KTO and DPO.

KTO measures the reward from ``point``. Its authors estimate the point by extra passes over mismatched prompts and
replies. We take it from the replies of the steps before: the importance-weighted estimate of ``diagnostics`` is free,
and replies that fit no prompt don't bias it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions


def kto(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · (1 − σ(±(β · log_ratio_i − β · point)))``, + for good replies, − for bad ones.

    Source: arXiv 2402.01306, equation 8 with λ_D = λ_U = 1 (classes are balanced by the weights); ``point`` ≥ 0 is an
    estimate of KL(π ‖ π_ref) a reply.
    """
    above = config.beta * (batch.log_ratio(batch.reference, xp).sum(axis=1) - batch.point)  # (B,)
    agreement = above * (2.0 * batch.good - 1.0)
    return (batch.weights * (1 - xp.exp(xp.log_sigmoid(agreement)))).sum()


def dpo(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_pairs −w · log σ(β · (log_ratio of the preferred − of the other))``.

    Source: arXiv 2305.18290, equation 7. Rows come in pairs: 2i is preferred over 2i + 1. A pair's weight is the mean
    of its rows', and the pair counts as its two replies.
    """
    ratio = batch.log_ratio(batch.reference, xp).sum(axis=1)  # (B,)
    margin = config.beta * (ratio[0::2] - ratio[1::2])
    return -((batch.weights[0::2] + batch.weights[1::2]) * xp.log_sigmoid(margin)).sum()


def kl_point(steps: Sequence[Mapping[str, float]]) -> float:
    """Return KTO's point (nats a reply, ≥ 0) from the metrics of the latest steps."""
    return max(0.0, fmean(step["kl_per_reply"] for step in steps)) if steps else 0.0
