"""Objectives on the implicit reward ``β · log(π(y) / π_ref(y))`` of a whole reply: KTO, BCO, DPO.

``point`` is what KTO and BCO measure it from. Both papers estimate theirs beside the loss. So do we, from the replies
of the steps before, and without the extra passes over mismatched prompts and replies that KTO's authors make: the
importance-weighted estimate of ``diagnostics`` is free, and not biased by replies that fit no prompt.
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
    return (batch.weights * (1 - xp.exp(xp.log_sigmoid(_agreement(batch, config, xp))))).sum()


def bco(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i −w_i · log σ(±(β · log_ratio_i − β · point))``: a classifier of good and bad whose logit it is.

    Source: arXiv 2404.04656, equation 11 (reward shift, no underlying-distribution matching); ``point`` is the mean
    implicit reward of both classes.
    """
    return -(batch.weights * xp.log_sigmoid(_agreement(batch, config, xp))).sum()


def dpo(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_pairs −w · log σ(β · (log_ratio of the preferred − of the other))``.

    Source: arXiv 2305.18290, equation 7. Rows come in pairs: 2i is preferred over 2i + 1. A pair's weight is the mean
    of its rows', and the pair counts as its two replies.
    """
    ratio = batch.log_ratio(batch.reference, xp).sum(axis=1)  # (B,)
    margin = config.beta * (ratio[0::2] - ratio[1::2])
    return -((batch.weights[0::2] + batch.weights[1::2]) * xp.log_sigmoid(margin)).sum()


def _agreement(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return the implicit reward above the point, with its sign turned for bad replies, (B,)."""
    above = config.beta * (batch.log_ratio(batch.reference, xp).sum(axis=1) - batch.point)
    return above * (2.0 * batch.good - 1.0)


def kl_point(steps: Sequence[Mapping[str, float]]) -> float:
    """Return KTO's point (nats a reply, ≥ 0) from the metrics of the latest steps."""
    return max(0.0, fmean(step["kl_per_reply"] for step in steps)) if steps else 0.0


def reward_point(steps: Sequence[Mapping[str, float]]) -> float:
    """Return BCO's point: the mean log ratio of a reply (nats) over the latest steps."""
    return fmean(step["implicit_reward"] for step in steps) if steps else 0.0
