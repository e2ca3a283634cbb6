"""MIS-PO: policy gradient whose off-policy samples are filtered instead of importance-weighted.

Source: "Step 3.5 Flash", arXiv 2602.10604 (Metropolis Independence Sampling-Filtered Policy Optimization). There,
with ``x_t = π(y_t) / μ(y_t)`` (policy / behaviour) and ``ρ = (Π_t x_t)^(1/T)``,

    loss = −E[ 1(x_t in token_band) · 1(ρ in trajectory_band) · A · log π(y_t) ].

Where we differ: a reply whose ρ has left the trajectory band is *scaled* by how far out it is, not dropped,

    s(ρ) = min(1, ρ / low, high / ρ),          taken as a constant (detached).

The paper draws thousands of fresh replies a step and can afford to drop most of them. We have some thirty
ratings and pass over them several times: after the first steps nearly every reply is out of so narrow a band, and
dropping would end the run there. s is detached because its own gradient undoes the learning: above the band
``d(s · log π)`` cancels, so good replies stop teaching, and below it bad ones count double.

Both filters look at the ratio only, not at the sign of the advantage, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Array, Functions


def mis_po(  # noqa: PLR0917 - the arrays come in the order of the formula
    policy_logps: Array,
    behaviour_logps: Array,
    reference_logps: Array,
    mask: Array,
    advantages: Array,
    weights: Array,
    config: Hyperparameters,
    xp: Functions,
) -> tuple[Array, dict[str, Array]]:
    """Return the summed loss of some replies, and sums from which ``step_metrics`` makes means.

    ``loss = Σ_i w_i · mean_t( −A_i · s_i · m_it · log π_it + kl_beta · k3_it )``, the mean over the reply's
    tokens, so that a long reply counts as much as a short one; ``m`` is the token filter and
    ``k3 = r − 1 − log r`` with ``r = π_ref / π``.

    ``policy_logps`` (B, T): log π of each reply token; carries the gradient. ``behaviour_logps`` (B, T): log μ,
    of the version that generated the reply. ``reference_logps`` (B, T): log π_ref, of the bare model. ``mask``
    (B, T): True at reply tokens, False at padding. ``advantages`` (B,). ``weights`` (B,): of the ratings. ``xp``:
    functions of the framework that the arrays belong to.
    """
    tokens = xp.clip(mask.sum(axis=1), 1, None)  # (B,)
    policy_logps = xp.where(mask, policy_logps, 0.0)
    now = xp.constant(policy_logps)
    log_ratio = xp.where(mask, now - behaviour_logps, 0.0)  # (B, T)
    log_rho = log_ratio.sum(axis=1) / tokens  # (B,)
    token_low, token_high = (math.log(edge) for edge in config.token_band)
    kept = mask & (log_ratio >= token_low) & (log_ratio <= token_high)  # (B, T)
    distance = distance_from(log_rho, config.trajectory_band, xp)
    scale = xp.exp(-distance)  # (B,), without gradient: made of `now`

    gain = (policy_logps * kept).sum(axis=1) / tokens
    loss = -advantages * scale * gain
    log_r = xp.where(mask, reference_logps - policy_logps, 0.0)
    k3 = xp.exp(log_r) - 1 - log_r  # (B, T), ≥ 0
    if config.kl_beta:
        loss = loss + config.kl_beta * k3.sum(axis=1) / tokens

    good, bad = advantages > 0, advantages < 0
    sums = {
        "tokens": mask.sum(),
        "sequences": mask.any(axis=1).sum(),
        # Of KL(π ‖ π_ref): k3, importance-weighted because the replies are the behaviour's, not the policy's. The
        # weight is truncated (Ionides 2008): one token that became a hundred times likelier would be the estimate.
        "kl": (xp.exp(xp.clip(log_ratio, None, token_high)) * xp.constant(k3)).sum(),
        "ratio": (xp.exp(log_ratio) * mask).sum(),
        "clipped": (mask & ~kept).sum(),
        "in_band": (distance == 0).sum(),
        "good": good.sum(),
        "bad": bad.sum(),
        "good_shift": xp.where(good, log_rho, 0.0).sum(),
        "bad_shift": xp.where(bad, log_rho, 0.0).sum(),
    }
    return (weights * loss).sum(), sums


def distance_from(log_rho: Array, band: tuple[float, float], xp: Functions) -> Array:
    """Return how far (nats, ≥ 0) each log ratio lies outside the band, (B,)."""
    low, high = (math.log(edge) for edge in band)
    return xp.clip(low - log_rho, 0, None) + xp.clip(log_rho - high, 0, None)


def step_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Turn sums over a step's replies into the means that ``metrics.jsonl`` shows.

    kl_per_token (nats, to the bare model), ratio_mean (policy / behaviour), clip_share (of tokens without
    gradient), in_band_share (of replies), good_shift and bad_shift (mean log ratio per token of the replies that
    are made likelier and of the others).
    """
    tokens, sequences = max(sums["tokens"], 1.0), max(sums["sequences"], 1.0)
    return {
        "tokens": sums["tokens"],
        "kl_per_token": sums["kl"] / tokens,
        "ratio_mean": sums["ratio"] / tokens,
        "clip_share": sums["clipped"] / tokens,
        "in_band_share": sums["in_band"] / sequences,
        "good_shift": sums["good_shift"] / max(sums["good"], 1.0),
        "bad_shift": sums["bad_shift"] / max(sums["bad"], 1.0),
    }
