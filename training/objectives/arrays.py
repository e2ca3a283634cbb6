"""The array functions that a loss may use; each framework computes and differentiates the loss itself.

Arithmetic, comparisons, ``&``, ``~``, slices and ``x.sum(axis=…)`` are the same for torch and for mlx; the functions
here are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from burnish.training.job import Hyperparameters

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
