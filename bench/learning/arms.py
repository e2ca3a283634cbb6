"""The arms of the comparison: an objective, its settings, and the kind of feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to learn."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the burnish under test."""
    comments: bool = False
    """The user says in words what was wrong with a bad reply."""
    turns: bool = False
    """The user says it in the next turn of the conversation instead."""
    grades: bool = False
    """The user gives 1 to 5 instead of good or bad."""
    pairs: bool = False
    """The user asks each question twice, and says which reply is better when only one of them pleases."""


LOSSES = "bench.learning.losses"


def _objective(name: str, **more: str) -> dict[str, str]:
    return {"BURNISH_TRAIN__OBJECTIVE": name} | {
        f"BURNISH_TRAIN__{key.upper()}": v for key, v in more.items()
    }


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("auto", _objective("auto")),  # mis_po, from thumbs
        Arm("auto_words", _objective("auto"), comments=True),
        Arm("auto_grades", _objective("auto"), grades=True),
        Arm("mis_po_published", _objective(f"{LOSSES}.forms:published")),
        # Their mathematics with our learning rate and passes: with their own (8e-6 on this size) nothing moves. They
        # believe every rating.
        Arm("mis_po_rival", _objective(f"{LOSSES}.forms:rival", kl_beta="0.001", label_noise="0")),
        Arm("reinforce", _objective(f"{LOSSES}.forms:reinforce", kl_beta="0.01", baseline="ema")),
        Arm("kto", _objective("kto")),
        Arm("bco", _objective(f"{LOSSES}.bco:loss")),
        Arm("sft", _objective("sft")),
        # From 64 ratings on, a reward model scores the model's own answers; with fewer, the ratings are the rewards.
        Arm("ppo", _objective("ppo")),
        Arm("ppo_warm", _objective("ppo", warm_start="true")),
        Arm("grpo", _objective("grpo"), pairs=True),
        # What one part is worth: the same without it, or with more or less of it.
        Arm("ppo_without_model", _objective("ppo", advanced__rewards="ratings")),
        Arm("kl_weight_0.1", _objective("auto", kl_beta="0.1")),
        Arm("kl_weight_1", _objective("auto", kl_beta="1")),
        Arm("kl_stop_off", _objective("auto", advanced__kl_stop="10")),
        Arm("batch_2", _objective("auto", batch_size="2")),
        Arm("batch_32", _objective("auto", batch_size="32")),
        Arm("dpo", _objective("dpo"), pairs=True),
        Arm("critique", _objective("critique"), comments=True),
        Arm("critique_turns", _objective("critique", next_turn="true"), turns=True),
        Arm("hybrid", _objective("hybrid"), comments=True),
    )
}

ABLATIONS = ("ppo_without_model", "kl_weight_0.1", "kl_weight_1", "kl_stop_off", "batch_2", "batch_32")
"""Measured on one kind of user only."""
