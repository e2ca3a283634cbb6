"""Supervised fine-tuning: imitate what was good, and let the rest be."""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions
from burnish.training.objectives.mis_po import penalty


def sft(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −log π_it + kl_beta · k3_it )`` over the good replies."""
    likelihood = xp.where(batch.mask, batch.policy, 0.0).sum(axis=1) / batch.tokens(xp)
    each = penalty(batch, config, xp) - likelihood
    return xp.where(batch.good, batch.weights * each, 0.0).sum()
