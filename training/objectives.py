"""The losses, and the metrics of a step, which are the same for all of them.

All losses are ``Σ_i w_i · (mean over the reply's tokens)``, so that a long reply counts as much as a short one, plus
``kl_beta · mean_t k3``. Only ``kto`` and ``dpo`` look at the implicit reward of a whole reply,
``β · log(π(y) / π_ref(y))``.

Each framework computes and differentiates them itself. Arithmetic, comparisons, ``&``, ``~``, slices and
``x.sum(axis=…)`` are the same for torch and for mlx; ``Functions`` has what isn't.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import fmean
from typing import Any, Protocol

from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, LossName

Array = Any
"""A torch.Tensor or an mlx.core.array."""


class Functions(Protocol):
    """Of one framework, e.g. ``burnish.training.backends.torch_peft.TorchFunctions``."""

    def exp(self, x: Array, /) -> Array: ...

    def log_sigmoid(self, x: Array, /) -> Array:
        """Return log(1 / (1 + e^−x)), also where x is far below 0."""

    def where(self, condition: Array, x: Array, otherwise: float, /) -> Array:
        """Return x where the condition holds, and the other without a gradient elsewhere."""

    def clip(self, x: Array, low: float | None, high: float | None, /) -> Array: ...

    def constant(self, x: Array, /) -> Array:
        """Return x without its gradient."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some replies as an objective sees them: log-probabilities in nats, padding at the right."""

    policy: Array
    """(B, T): log π of each reply token, of the adapter under training; carries the gradient."""
    behaviour: Array
    """(B, T): log μ, of the version that generated the reply."""
    reference: Array
    """(B, T): log π_ref, of the base model."""
    mask: Array
    """(B, T): True at reply tokens, False at padding."""
    advantages: Array
    """(B, T): how strongly each token pulls, and in which direction."""
    good: Array
    """(B,): True where the reply is one to be made likelier."""
    weights: Array
    """(B,): of the ratings."""
    point: float = 0.0
    """Reference point of the implicit reward (nats per reply); only ``kto`` looks at it."""
    teacher: Array = None
    """(B, T, K + 1): probabilities of a teacher's K likeliest tokens, and of all others together; only ``distil`` looks
    at it."""
    student: Array = None
    """(B, T, K + 1): log π of the same, of the adapter under training; carries the gradient."""

    def tokens(self, xp: Functions) -> Array:
        """Return how many tokens each reply has, at least 1, (B,)."""
        return xp.clip(self.mask.sum(axis=1), 1, None)

    def log_ratio(self, logps: Array, xp: Functions) -> Array:
        """Return log π − log of another policy, 0 at padding, (B, T)."""
        return xp.where(self.mask, self.policy - logps, 0.0)

    def k3(self, xp: Functions) -> Array:
        """Return r − 1 − log r with r = π_ref / π, ≥ 0: an estimate of KL(π ‖ π_ref) a token, (B, T).

        Source: J. Schulman, "Approximating KL divergence" (2020), estimator k3.
        """
        log_r = -self.log_ratio(self.reference, xp)
        return xp.exp(log_r) - 1 - log_r

    def penalty(self, config: Hyperparameters, xp: Functions) -> Array:
        """Return ``kl_beta · mean_t k3``, (B,), or 0.0 without a computation."""
        if not config.kl_beta:
            return 0.0
        return config.kl_beta * self.k3(xp).sum(axis=1) / self.tokens(xp)


Loss = Callable[[Batch, Hyperparameters, Functions], Array]
"""Returns the summed loss of a batch's replies, each already multiplied with its weight: a scalar."""


def mis_po(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −A_it · s_i · m_it · log π_it + kl_beta · k3_it )``; m is the token filter.

    Policy gradient whose off-policy samples are filtered instead of importance-weighted. Source: "Step 3.5 Flash",
    arXiv 2602.10604 (Metropolis Independence Sampling-Filtered Policy Optimization). There, with
    ``x_t = π(y_t) / μ(y_t)`` (policy / behaviour) and ``ρ = (Π_t x_t)^(1/T)``,

        loss = −E[ 1(x_t in token_band) · 1(ρ in trajectory_band) · A · log π(y_t) ].

    Here, a reply whose ρ has left the band is *scaled* by its distance from the band, not dropped:

        s(ρ) = min(1, ρ / low, high / ρ),          taken as a constant (detached).

    The paper draws thousands of fresh replies a step and can afford to drop most of them. We have some thirty
    ratings and pass over them several times: after the first steps nearly every reply is out of so narrow a band, and
    dropping would end the run there. s is detached because its own gradient undoes the learning: above the band
    ``d(s · log π)`` cancels, so good replies stop teaching, and below it bad ones count double. The filters look at
    the ratio only, not at the sign of the advantage, as in the paper.
    """
    distance = distance_from(log_rho(batch, batch.behaviour, xp), config.trajectory_band, xp)
    return filtered(batch, xp.exp(-distance), config, xp)


def filtered(batch: Batch, scale: Array, config: Hyperparameters, xp: Functions) -> Array:
    """Return the formula above for any detached scale of each reply, (B,)."""
    pull = xp.where(token_filter(batch, config, xp), batch.policy * batch.advantages, 0.0)
    gain = xp.constant(scale) * pull.sum(axis=1) / batch.tokens(xp)
    return (batch.weights * (batch.penalty(config, xp) - gain)).sum()


def ppo(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −min(x_it A_it, clip(x_it) A_it) + kl_beta · k3_it )``.

    With ``x_t = π(y_t) / μ(y_t)`` (policy / behaviour) and ``clip`` to ``token_band``, 1 ± ε. Source: PPO, arXiv
    1707.06347, equation 7; the KL to the reference as a term of the loss as in GRPO, arXiv 2402.03300. ``rloo`` and
    ``grpo`` differ from ``ppo`` in their advantages only (training.policy_gradient).
    """
    ratio = xp.exp(batch.log_ratio(batch.behaviour, xp))  # (B, T)
    gain = xp.where(batch.mask, surrogate(ratio, batch.advantages, config.token_band, xp), 0.0)
    return (batch.weights * (batch.penalty(config, xp) - gain.sum(axis=1) / batch.tokens(xp))).sum()


def gspo(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · ( −min(s_i A_i, clip(s_i) A_i) + kl_beta · mean_t k3_it )``, ``s_i = (Π_t x_it)^(1/T)``.

    As ``ppo``, but a reply is clipped as a whole. Source: GSPO, arXiv 2507.18071, equation 5.
    """
    mean = batch.log_ratio(batch.behaviour, xp).sum(axis=1) / batch.tokens(xp)
    gain = surrogate(xp.exp(mean), batch.advantages[:, 0], config.token_band, xp)  # (B,)
    return (batch.weights * (batch.penalty(config, xp) - gain)).sum()


def surrogate(ratio: Array, advantages: Array, band: tuple[float, float], xp: Functions) -> Array:
    """Return ``min(x A, clip(x, low, high) A)`` for each ratio: no more is gained by moving beyond the band."""
    low, high = band
    gained = xp.where(advantages > 0, advantages * xp.clip(ratio, None, high), 0.0)
    return gained + xp.where(advantages <= 0, advantages * xp.clip(ratio, low, None), 0.0)


def log_rho(batch: Batch, logps: Array, xp: Functions) -> Array:
    """Return the mean log ratio of each reply's tokens, detached, (B,)."""
    return xp.constant(batch.log_ratio(logps, xp).sum(axis=1) / batch.tokens(xp))


def token_filter(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return where the ratio policy / behaviour lies inside ``token_band``, (B, T)."""
    low, high = (math.log(edge) for edge in config.token_band)
    log_ratio = xp.constant(batch.log_ratio(batch.behaviour, xp))
    return batch.mask & (log_ratio >= low) & (log_ratio <= high)


def distance_from(log_rho: Array, band: tuple[float, float], xp: Functions) -> Array:
    """Return how far (nats, ≥ 0) each log ratio lies outside the band, (B,)."""
    low, high = (math.log(edge) for edge in band)
    return xp.clip(low - log_rho, 0, None) + xp.clip(log_rho - high, 0, None)


def sft(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −log π_it + kl_beta · k3_it )`` over the good replies."""
    likelihood = xp.where(batch.mask, batch.policy, 0.0).sum(axis=1) / batch.tokens(xp)
    losses = batch.penalty(config, xp) - likelihood
    return xp.where(batch.good, batch.weights * losses, 0.0).sum()


def distil(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · mean_t( −Σ_k p_itk · log q_itk + kl_beta · k3_it )``; p is the teacher, q the student.

    That is ``KL(p ‖ q)`` plus the entropy of p, which has no gradient. Sources: soft targets, Hinton et al., arXiv
    1503.02531, at a temperature of 1; a model with something in its context teaches the same model without, arXiv
    2209.15189. (2601.20802 minimises KL(student ‖ teacher) on the student's replies. These replies are given, so
    nothing is sampled during the run.)

    The teacher is scored before the run, and only its K likeliest tokens are kept. All other tokens are one more
    group: with p and q renormalised over the K, a student could give its probability to any other token and pay
    nothing. By the log-sum inequality the divergence between groups is at most the one between tokens; with
    K = V − 1 both are equal.
    """
    cross_entropy = xp.where(batch.mask, -(batch.teacher * batch.student).sum(axis=2), 0.0)
    losses = cross_entropy.sum(axis=1) / batch.tokens(xp) + batch.penalty(config, xp)
    return (batch.weights * losses).sum()


def kto(batch: Batch, config: Hyperparameters, xp: Functions) -> Array:
    """Return ``Σ_i w_i · (1 − σ(±(β · log_ratio_i − β · point)))``, + for good replies, − for bad ones.

    Source: arXiv 2402.01306, equation 8 with λ_D = λ_U = 1 (classes are balanced by the weights); ``point`` ≥ 0 is an
    estimate of KL(π ‖ π_ref) a reply. Its authors estimate it by extra passes over mismatched prompts and replies. We
    take it from the replies of the steps before: the importance-weighted estimate of ``diagnose`` is free, and replies
    that fit no prompt don't bias it.
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


LOSSES: Mapping[LossName, Loss] = {
    "mis_po": mis_po,
    "kto": kto,
    "dpo": dpo,
    "sft": sft,
    "distil": distil,
    "ppo": ppo,
    "rloo": ppo,
    "grpo": ppo,
    "gspo": gspo,
}


def loss_named(name: str) -> Loss:
    """Return a loss by its name, or by its import path, ``module:function``. Raises JobError."""
    if loss := LOSSES.get(name):
        return loss
    module, _, function = name.partition(":")
    try:
        attribute = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(
            f"cannot load the objective {name!r}: {error}. It must be module:function, "
            "importable by the trainer (set PYTHONPATH)"
        ) from error
    if not callable(attribute):
        raise JobError(f"the objective {name!r} is not a function")
    loaded: Loss = attribute
    return loaded
