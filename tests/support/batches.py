"""Random batches for the objectives, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives import Batch, Loss

CONFIG = Hyperparameters()
B, T, K = 4, 6, 5
Case = dict[str, np.ndarray]


def case(seed: int, spread: float = 0.3) -> Case:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, T + 1, B)
    behaviour = -draw.exponential(1.5, (B, T))
    advantages = draw.normal(0, 1, (B, 1))
    return {
        "policy": behaviour + draw.normal(0, spread, (B, T)),
        "behaviour": behaviour,
        "reference": behaviour + draw.normal(0, spread, (B, T)),
        "mask": np.arange(T)[None] < lengths[:, None],
        "advantages": np.repeat(advantages, T, axis=1),
        "good": advantages[:, 0] > 0,
        "weights": draw.uniform(0.5, 2, B),
        "teacher": draw.dirichlet(np.ones(K), (B, T)),
        "student": np.log(draw.dirichlet(np.ones(K), (B, T))),
    }


def one(policy: float, advantage: float, behaviour: float = -1.0, tokens: int = 3) -> Case:
    """One reply whose tokens all have the same log-probability."""
    row = np.ones((1, tokens))
    return {
        "policy": row * policy,
        "behaviour": row * behaviour,
        "reference": row * behaviour,
        "mask": row > 0,
        "advantages": row * advantage,
        "good": np.array([advantage > 0]),
        "weights": np.ones(1),
    }


def batch(c: Case, point: float = 0.0) -> Batch:
    tensors: dict[str, Any] = {name: torch.tensor(value) for name, value in c.items()}
    for name in tensors.keys() & {"policy", "student"}:
        tensors[name].requires_grad_()
    return Batch(**tensors, point=point)


def run(
    loss: Loss, c: Case, config: Hyperparameters = CONFIG, point: float = 0.0, *, of: str = "policy"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a loss and its gradient with respect to the policy's log-probabilities, or the student's."""
    given = batch(c, point)
    found = loss(given, config, TorchFunctions)
    (gradient,) = torch.autograd.grad(found, getattr(given, of))
    return found.detach(), gradient
