"""What a framework must do to train: score replies, make a step, save the adapter. Importable without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from burnish.training.job import Hyperparameters
from burnish.training.rendering import Rendered, Renderer

Policy = Path | Literal["bare", "trained"]
"""Whose probabilities: an adapter in PEFT layout, the bare model, or the adapter under training."""

Logps = tuple[float, ...]
"""Log-probability of each reply token, nats, (R,)."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A reply ready to learn from: all of it is constant during a run."""

    tokens: Rendered
    advantage: float
    weight: float
    behaviour_logps: Logps
    reference_logps: Logps


class TrainerBackend(Protocol):
    """One base model in memory, with one adapter under training on it."""

    renderer: Renderer

    def logps(self, sequences: Sequence[Rendered], policy: Policy) -> list[Logps]:
        """Score replies without learning. Raises JobError when the adapter can't be loaded."""
        ...

    def step(self, batch: Sequence[Rated], config: Hyperparameters) -> dict[str, float]:
        """Make one optimiser step over the batch and return its metrics, ``loss`` and ``grad_norm`` among them.

        Raises Diverged when loss or gradient is not finite; the adapter is then as it was before.
        """
        ...

    def save(self, directory: Path, base_model: str) -> None:
        """Write the adapter under training in PEFT layout (safetensors) into an existing directory."""
        ...
