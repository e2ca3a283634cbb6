"""MIS-PO: policy gradient whose off-policy samples are filtered instead of importance-weighted.

Source: "Step 3.5 Flash", arXiv 2602.10604 (Metropolis Independence Sampling-Filtered Policy Optimization). There,
with ``x_t = π(y_t) / μ(y_t)`` (policy / behaviour) and ``ρ = (Π_t x_t)^(1/T)``,

    loss = −E[ 1(x_t in token_band) · 1(ρ in trajectory_band) · A · log π(y_t) ].

Here, a reply whose ρ has left the band is *scaled* by its distance from the band, not dropped:

    s(ρ) = min(1, ρ / low, high / ρ),          taken as a constant (detached).

The paper draws thousands of fresh replies a step and can afford to drop most of them. We have some thirty
ratings and pass over them several times: after the first steps nearly every reply is out of so narrow a band, and
dropping would end the run there. s is detached because its own gradient undoes the learning: above the band
``d(s · log π)`` cancels, so good replies stop teaching, and below it bad ones count double.

The filters look at the ratio only, not at the sign of the advantage, as in the paper. All losses of this package are
``Σ_i w_i · (mean over the reply's tokens)``, so that a long reply counts as much as a short one, plus
``kl_beta · mean_t k3``.
"""

from __future__ import annotations

import math

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Batch, Functions


def mis_po(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −A_it · s_i · m_it · log π_it + kl_beta · k3_it )``; m is the token filter."""
    distance = distance_from(log_rho(batch, batch.behaviour, xp), config.trajectory_band, xp)
    return filtered(batch, xp.exp(-distance), config, xp)


def filtered(batch: Batch, scale: Array, config: Hyperparameters, xp: Functions) -> Array:
    """Return the formula above for any detached scale of each reply, (B,)."""
    pull = xp.where(token_filter(batch, config, xp), batch.policy * batch.advantages, 0.0)
    gain = xp.constant(scale) * pull.sum(axis=1) / batch.tokens(xp)
    return (batch.weights * (batch.penalty(config, xp) - gain)).sum()


def log_rho(batch: Batch, other: Array, xp: Functions) -> Array:
    """Return the mean log ratio of each reply's tokens, detached, (B,)."""
    return xp.constant(batch.log_ratio(other, xp).sum(axis=1) / batch.tokens(xp))


def token_filter(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return where the ratio policy / behaviour lies inside ``token_band``, (B, T)."""
    low, high = (math.log(edge) for edge in config.token_band)
    log_ratio = xp.constant(batch.log_ratio(batch.behaviour, xp))
    return batch.mask & (log_ratio >= low) & (log_ratio <= high)


def distance_from(log_rho: Array, band: tuple[float, float], xp: Functions) -> Array:
    """Return how far (nats, ≥ 0) each log ratio lies outside the band, (B,)."""
    low, high = (math.log(edge) for edge in band)
    return xp.clip(low - log_rho, 0, None) + xp.clip(log_rho - high, 0, None)
