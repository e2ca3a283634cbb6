"""What a run learns by, and its hyper-parameters with the values that they may have. Importable without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

POLICY_GRADIENT = ("ppo", "rloo", "grpo", "gspo")
"""Objectives that compare answers to one prompt by their rewards."""
OBJECTIVES = ("mis_po", "kto", "dpo", "sft", "critique", "hybrid", *POLICY_GRADIENT)
IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


def known_objective(name: str, names: Sequence[str] = OBJECTIVES) -> str:
    """Return one of ``names`` or an import path unchanged. Raises ValueError when it is neither."""
    if name in names or IMPORT_PATH.fullmatch(name):
        return name
    raise ValueError(
        f"{name!r} is not an objective; expected {', '.join(names)}, or the import path of a loss, module:function"
    )


LossName = str
"""A loss of ``training.objectives``, or the import path of another: "mis_po", "my_losses:margin"."""
Objective = Annotated[str, AfterValidator(known_objective)]
"""What a run learns by: one of ``OBJECTIVES``, or the import path of a loss for rated replies.

"critique" learns from comments, "hybrid" from ratings and comments."""
Baseline = Literal["batch", "ema"]
Rewards = Literal["auto", "ratings", "model"]


def band(edges: tuple[float, float]) -> tuple[float, float]:
    """Return a band of ratios unchanged. Raises ValueError if a policy that has not moved is outside."""
    low, high = edges
    if not 0 < low <= 1 <= high < MOST_RATIO:
        raise ValueError(
            f"must be two ratios around 1, such as [0.5, 2.0]: the lower one above 0 and at most 1, the higher one at "
            f"least 1 and below {MOST_RATIO:,}"
        )
    return edges


MOST_RATIO = 1_000
Band = Annotated[tuple[float, float], AfterValidator(band)]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hyperparameters(Record):
    """The settings of a run; a preset fills those that the user leaves out (training.presets).

    The same limits hold for the settings of the same names under ``[train]`` and ``[train.advanced]``.
    """

    learning_rate: float = Field(4e-4, gt=0, lt=0.1)
    lora_plus_ratio: float = Field(1.0, ge=1, le=64)
    """How many times faster the matrices B learn than A. Source: LoRA+, arXiv 2402.12354, which finds 16 good where B
    starts at zero; 1: LoRA as published."""
    epochs: int = Field(8, ge=1, le=100)
    """At most; ``kl_stop`` usually ends a run before."""
    batch_size: int = Field(8, ge=1, le=512)
    rank: int = Field(16, ge=1, le=256)
    alpha: int = Field(16, ge=1, le=1024)
    targets: tuple[str, ...] = ()
    """Names of the linear layers that a fresh LoRA changes, such as "q_proj", or "attention"; empty: all of them, but
    of a mixture of experts only the attention's."""
    kl_beta: float = Field(0.0, ge=0, le=100)
    """Weight of the KL to the reference policy."""
    beta: float = Field(0.1, gt=0, le=10)
    """Scale of the implicit reward in ``kto`` and ``dpo``."""
    baseline: Baseline = "batch"
    """Of ``mis_po``. "batch": rewards are normalised over the run's ratings. "ema": a reward counts by its difference
    from the moving average of the rewards before it (training.strength)."""
    ema_decay: float = Field(0.99, ge=0, lt=1)
    """Of that moving average."""
    advantage_limit: float = Field(3.0, gt=0, le=100)
    """A normalised reward counts at most that much. With one good rating among 31 it would be 5.6: one reply would
    steer the whole run."""
    discount: float = Field(1.0, gt=0, le=1)
    """Of an agent's rewards, for each step that they come later. Source: Sutton and Barto, section 3.3."""
    teacher_samples: int = Field(4, ge=1, le=64)
    """Replies sampled for each comment, with the comment in the prompt."""
    teacher_kept: int = Field(2, ge=1, le=64)
    """How many of those are learnt from, at most."""
    rewards: Rewards = "auto"
    """Of the policy-gradient objectives. "ratings": logged answers with their ratings. "model": answers that the policy
    gives while it is trained, scored by a reward model that learns from the same ratings. "auto": the model if it
    orders unseen ratings right, else the ratings (training.reward)."""
    policy_samples: int = Field(4, ge=2, le=64)
    """Answers sampled for each prompt and round, if a model rewards them."""
    round_prompts: int = Field(16, ge=1, le=1024)
    """Prompts in a round, drawn from all of the run. A laptop samples 64 answers of the small model in a minute."""
    rounds: int = Field(3, ge=1, le=64)
    """How many times the policy answers anew, if a model rewards it; ``epochs`` are passes over one round's answers."""
    warm_start: bool = False
    """Imitate demonstrations first, in the same run (training.stages)."""
    warm_epochs: int = Field(2, ge=1, le=100)
    """Passes over them, at most."""
    successes: bool = False
    """Imitate the answers rated good at the end of the run."""
    kl_stop: float = Field(0.15, gt=0, le=10)
    """Training has learnt enough when KL per token to the reference policy (nats), mean over an epoch's worth of
    steps, exceeds it. Users differ in how much a step teaches; this evens out how far a run goes."""
    token_band: Band = (0.5, 2.0)
    """Tokens whose ratio policy/behaviour leaves this band carry no gradient. For policy gradients it is the clip range
    1 ± ε: only a ratio that has already moved the way its advantage pulls carries none."""
    trajectory_band: Band = (0.994, 1.002)
    """Band of the geometric-mean ratio of a whole reply."""
    label_noise: float = Field(0.3, ge=0, le=0.45)
    """Share of ratings expected to be mistaken, before any is looked at. A rating counts as far as the other ratings
    bear it out (training.strength); 0: every rating is believed. Where a fifth are mistaken, .2 did not always find
    them; where none are, and where nothing shows which, more costs nothing."""
    rehearsed: int = Field(0, ge=0, le=64)
    """Plain questions in each step, on which the base model's answers are held (training.lessons); 0: none."""
    max_grad_norm: float = Field(1.0, gt=0, le=1000)
    max_tokens: int = Field(2048, ge=16, le=1_000_000)
    """Longer conversations lose their oldest tokens; the reply is kept whole."""
    micro_batch_tokens: int = Field(256, ge=1, le=1_000_000)
    """Tokens in one forward pass; bounds the memory, since a batch accumulates the gradients of its passes. A single
    conversation may be longer: it then trains slower. An NVIDIA GPU with room takes up to 16 times as many
    (training.device)."""


class ModelSize(Record):
    """The properties of a base model that determine hyper-parameters."""

    hidden: int
    """Width of the residual stream."""
    layers: int
    parameters: int
    """All of them, also those that a token does not pass."""
    experts: int = 0
    """In each layer of a mixture; 0 = a dense model."""
    experts_used: int = 0
    """How many of them a token passes; 0 = a dense model, or unknown."""
