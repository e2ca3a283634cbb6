"""The losses, all of the same signature (``arrays.Loss``)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from burnish.training.errors import JobError
from burnish.training.job import LossName
from burnish.training.objectives.arrays import Loss
from burnish.training.objectives.losses import distil, dpo, gspo, kto, mis_po, ppo, sft

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


__all__ = ["LOSSES", "loss_named"]
