"""The few functions in which an objective is written, so that each framework computes and differentiates it itself.

Arithmetic, comparisons, ``&``, ``~`` and ``x.sum(axis=…)`` are the same for torch and for mlx; these are not.
"""

from __future__ import annotations

from typing import Any, Protocol

Array = Any
"""A torch.Tensor or an mlx.core.array."""


class Functions(Protocol):
    """Of one framework, e.g. ``burnish.training.backends.torch_peft.TorchFunctions``."""

    def exp(self, x: Array, /) -> Array:
        """Return e to the power of x."""
        ...

    def where(self, condition: Array, x: Array, other: float, /) -> Array:
        """Return x where the condition holds, and the other without a gradient elsewhere."""
        ...

    def clip(self, x: Array, low: float | None, high: float | None, /) -> Array:
        """Return x within limits."""
        ...

    def constant(self, x: Array, /) -> Array:
        """Return x without its gradient."""
        ...
