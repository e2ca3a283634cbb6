"""Metrics of a step, the same for all losses: sums over micro-batches, and their means."""

from __future__ import annotations

import math
from collections.abc import Mapping

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions
from burnish.training.objectives.mis_po import distance_from, log_rho, token_filter


def diagnose(batch: Batch, config: Hyperparameters, xp: Functions) -> dict[str, Array]:
    """Return sums over a batch; ``step_metrics`` turns them into means."""
    log_ratio = xp.constant(batch.log_ratio(batch.behaviour, xp))  # (B, T)
    moved = log_rho(batch, batch.behaviour, xp)  # (B,)
    # Of KL(π ‖ π_ref): k3, importance-weighted because the replies are the behaviour's, not the policy's. The
    # weight is truncated (Ionides 2008): one token that became a hundred times likelier would be the estimate.
    truncated = xp.exp(xp.clip(log_ratio, None, math.log(config.token_band[1])))
    kl = (truncated * xp.constant(batch.k3(xp))).sum()
    return {
        "tokens": batch.mask.sum(),
        "sequences": batch.mask.any(axis=1).sum(),
        "kl": kl,
        "ratio": (xp.exp(log_ratio) * batch.mask).sum(),
        "clipped": (batch.mask & ~token_filter(batch, config, xp)).sum(),
        "in_band": (distance_from(moved, config.trajectory_band, xp) == 0).sum(),
        "implicit_reward": xp.constant(batch.log_ratio(batch.reference, xp)).sum(),
        "good": batch.good.sum(),
        "bad": (~batch.good).sum(),
        "good_shift": xp.where(batch.good, moved, 0.0).sum(),
        "bad_shift": xp.where(~batch.good, moved, 0.0).sum(),
    }


def step_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Turn sums over a step's replies into the means that ``metrics.jsonl`` shows.

    - kl_per_token, kl_per_reply: nats, to the base model
    - ratio_mean: policy / behaviour
    - clip_share: share of tokens whose ratio is outside ``token_band``
    - in_band_share: share of replies
    - implicit_reward: mean of log π − log π_ref of a reply, nats
    - good_shift, bad_shift: mean log ratio per token, of good and of bad replies
    """
    tokens, sequences = max(sums["tokens"], 1.0), max(sums["sequences"], 1.0)
    return {
        "tokens": sums["tokens"],
        "kl_per_token": sums["kl"] / tokens,
        "kl_per_reply": sums["kl"] / sequences,
        "ratio_mean": sums["ratio"] / tokens,
        "clip_share": sums["clipped"] / tokens,
        "in_band_share": sums["in_band"] / sequences,
        "implicit_reward": sums["implicit_reward"] / sequences,
        "good_shift": sums["good_shift"] / max(sums["good"], 1.0),
        "bad_shift": sums["bad_shift"] / max(sums["bad"], 1.0),
    }
