"""Named starting points for hyper-parameters; the user's own values always win. Importable without torch."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal, get_args

from burnish.training.job import Critique, Hyperparameters, Objective

Preset = Literal["careful", "balanced", "aggressive"]

OVERRIDES: MappingProxyType[Preset, dict[str, Any]] = MappingProxyType(
    {
        "careful": {"learning_rate": 2e-4, "epochs": 5, "kl_stop": 0.05},
        "balanced": {},
        "aggressive": {"learning_rate": 4e-4, "kl_stop": 0.2},
    }
)
"""What each preset sets differently from the defaults of ``Hyperparameters``.

On "short answers, please" (32 ratings, share satisfied before .35) careful reaches .81 at a KL of .08 per token,
balanced .92 at .23.
"""


BY_OBJECTIVE: MappingProxyType[Objective, dict[str, Any]] = MappingProxyType(
    {
        # What is learnt was said by a model that was told: it starts some way off, and six passes bring it home.
        **{form: {"epochs": 6, "kl_stop": 0.4} for form in get_args(Critique)},
        # At twice this, replies of the small model leave the topic: .49 of them stay on it, of mis_po's .88.
        "dpo": {"learning_rate": 1e-4},
    }
)
"""What an objective needs otherwise than the defaults; a preset goes over it."""


def hyperparameters(
    preset: Preset = "balanced", objective: Objective = "mis_po", **own: Any
) -> Hyperparameters:
    """Return a preset with the user's own values over it.

    Raises ValueError when there is no such preset, or a value is wrong (pydantic names the field).
    """
    if preset not in OVERRIDES:
        raise ValueError(f"preset is {preset!r}, expected one of {', '.join(get_args(Preset))}")
    return Hyperparameters(**BY_OBJECTIVE.get(objective, {}) | OVERRIDES[preset] | own)
