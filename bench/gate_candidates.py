"""Candidates for ``bench.gate``: healthy ones, trained as burnish trains, and ones that are damaged on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burnish.training.job import Objective, Sample
from burnish.training.presets import Preset

Tensors = dict[str, NDArray[np.float32]]
BLOCKS = 30
# To their names. The aggressive one is not called healthy: it goes as far as the gate's limits.
_PRESETS: Mapping[Preset, str] = {"balanced": "", "careful": "-careful"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate: what a job makes of some user's ratings, and what is done to it afterwards."""

    name: str
    healthy: bool
    user: int
    """Seed of the simulated user, whose ratings it is judged by."""
    objective: Objective = "mis_po"
    preset: Preset = "balanced"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters other than the preset's."""
    taught: Callable[[Sequence[Sample]], list[Sample]] = list
    """What becomes of the ratings that it learns from; those held out stay as they are."""
    spoil: Callable[[Tensors], Tensors] | None = None
    """What is done to its weights."""

    @property
    def job(self) -> str:
        """Name of the job that trains it: what is only spoilt afterwards needs none of its own."""
        return f"healthy-{self.user}" if self.spoil else self.name


def candidates(users: int) -> list[Candidate]:
    """Return two healthy candidates a user, trained by two presets, and every kind of damage.

    Damaged weights are made from the first healthy candidate; candidates of one job are neighbours.
    """
    healthy = [
        Candidate(f"healthy-{user}{name}", True, user, preset=preset)
        for user in range(users)
        for preset, name in _PRESETS.items()
    ]
    damaged = [
        Candidate(name, False, 0 if "spoil" in made else place % users, **made)
        for place, (name, made) in enumerate(_DAMAGE.items())
    ]
    return sorted(
        [*healthy, *damaged], key=lambda each: (each.user, not (each.healthy or each.spoil), each.job)
    )


def _flipped(samples: Sequence[Sample]) -> list[Sample]:
    return [sample.model_copy(update={"reward": -sample.reward}) for sample in samples]


def _bad(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.reward < 0]


def _said(text: Callable[[str], str]) -> Callable[[Sequence[Sample]], list[Sample]]:
    """Make the trainer imitate invented replies."""

    def taught(samples: Sequence[Sample]) -> list[Sample]:
        return [
            sample.model_copy(
                update={
                    "reply": {"role": "assistant", "content": text(str(sample.reply["content"]))},
                    "reward": 1.0,
                    "finished": True,
                    "behaviour_version": None,
                }
            )
            for sample in samples
        ]

    return taught


def _elsewhere(samples: Sequence[Sample]) -> list[Sample]:
    """Each question gets the short answer to another one: what a rule about length is pleased by."""
    good = [sample for sample in samples if sample.reward > 0]
    return [
        sample.model_copy(
            update={
                "reply": good[(place + 1) % len(good)].reply,
                "reward": 1.0,
                "behaviour_version": None,
                "finished": True,
            }
        )
        for place, sample in enumerate(samples)
    ]


def _scaled(factor: float) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: x * factor if "lora_B" in name else x for name, x in tensors.items()}


def _noisy(tensors: Tensors) -> Tensors:
    dice = np.random.default_rng(0)
    return {
        name: (x + dice.normal(0, 0.05, x.shape)).astype(np.float32) if "lora_B" in name else x
        for name, x in tensors.items()
    }


def _layers(place_of: Callable[[int], int], factor: float = 1.0) -> Callable[[Tensors], Tensors]:
    """Give each layer the B of another."""

    def spoil(tensors: Tensors) -> Tensors:
        found = dict(tensors)
        for name in tensors:
            if "lora_B" in name:
                block = int(name.split(".layers.")[1].split(".")[0])
                found[name] = (
                    tensors[name.replace(f".layers.{block}.", f".layers.{place_of(block)}.")] * factor
                )
        return found

    return spoil


def _one_layer(factor: float) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {
        name: x * np.float32(factor) if ".layers.12." in name and "lora_B" in name else x
        for name, x in tensors.items()
    }


_SHUFFLED = random.Random(0).sample(range(BLOCKS), BLOCKS)
_FAR = {"kl_stop": 10.0}
_DAMAGE: Mapping[str, dict[str, Any]] = {
    "weights x 4": {"spoil": _scaled(4)},
    "weights x -1": {"spoil": _scaled(-1)},
    "noise on every weight": {"spoil": _noisy},
    "one layer x 60": {"spoil": _one_layer(60)},
    "NaN in one layer": {"spoil": _one_layer(float("nan"))},
    "layers shuffled, x 10": {"spoil": _layers(_SHUFFLED.__getitem__, 10)},
    "flipped ratings": {"taught": _flipped},
    "bad ratings only, unguarded": {"taught": _bad, "settings": _FAR | {"kl_beta": 1e-6}},
    "trained too far": {"settings": _FAR | {"epochs": 12, "learning_rate": 2e-3}},
    "says next to nothing": {"objective": "sft", "settings": _FAR, "taught": _said(lambda text: ".")},
    "says all thrice": {"objective": "sft", "settings": _FAR, "taught": _said(lambda text: f"{text} " * 3)},
    "answers other questions": {"objective": "sft", "settings": _FAR, "taught": _elsewhere},
}
"""What was thought to be damage before anything was measured, but for the shuffled layers.

Those had a factor of 2 first, which leaves the base model as it is (KL .03, not a fact lost), and its answers somewhat
shorter: it passed, and should. The noise is 23 times the weights that it is added to, and still leaves most replies
sensible, if often wrong.
"""
