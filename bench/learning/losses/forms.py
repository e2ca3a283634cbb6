"""Other forms of MIS-PO, and plain REINFORCE."""

from __future__ import annotations

from burnish.training.job import Hyperparameters
from burnish.training.objectives import Array, Batch, Functions, distance_from, filtered, log_rho


def published(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """MIS-PO as in arXiv 2602.10604: 1(ρ in band) instead of a scale."""
    distance = distance_from(log_rho(batch, batch.behaviour, xp), config.trajectory_band, xp)
    return filtered(batch, xp.where(distance == 0, xp.exp(distance), 0.0), config, xp)


def rival(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · ( −s(ρ_ref,i) · mean_t min(x_it A_it, clip(x_it) A_it) + kl_beta · mean_t k3_it )``.

    The form of reinforceclaw 0.1.0: a clipped ratio as in PPO instead of the token filter, and the scale taken against
    the reference, ``ρ_ref = exp(mean_t log(π / π_ref))``. Nothing is detached.
    """
    ratio = xp.exp(batch.log_ratio(batch.behaviour, xp)) * batch.advantages  # (B, T)
    low, high = config.token_band
    clipped = xp.clip(xp.exp(batch.log_ratio(batch.behaviour, xp)), low, high) * batch.advantages
    surrogate = xp.where(batch.mask, xp.where(ratio < clipped, ratio, 0.0), 0.0)
    surrogate = surrogate + xp.where(batch.mask & (ratio >= clipped), clipped, 0.0)
    log_rho_reference = batch.log_ratio(batch.reference, xp).sum(axis=1) / batch.tokens(xp)
    scale = xp.exp(-distance_from(log_rho_reference, config.trajectory_band, xp))  # (B,), with its gradient
    loss = -scale * surrogate.sum(axis=1) / batch.tokens(xp)
    return (batch.weights * (loss + batch.penalty(config, xp))).sum()


def reinforce(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −(A_it − kl_beta · log(π_it / π_ref,it)) · log π_it )``, the bracket detached.

    Source: Williams 1992 (doi:10.1007/BF00992696); the penalty inside the advantage as in REINFORCE++ (arXiv
    2501.03262). Replies of other versions are not corrected for, so a comparison shows the effect of ``mis_po``.
    """
    distance = xp.constant(batch.log_ratio(batch.reference, xp))
    pull = xp.where(batch.mask, (batch.advantages - config.kl_beta * distance) * batch.policy, 0.0)
    return -(batch.weights * pull.sum(axis=1) / batch.tokens(xp)).sum()
