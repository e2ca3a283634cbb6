"""What a run learns by, and its hyper-parameters: default, limits and description, for jobs and settings alike.

Commands import it with the settings, so it imports pydantic only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

POLICY_GRADIENT = ("ppo", "rloo", "grpo", "gspo")
"""Objectives that compare answers to one prompt by their rewards."""
WITH_COMMENTS = ("critique", "hybrid")
"""Objectives that have the model answer again, to comments."""
OBJECTIVES = ("mis_po", "kto", "dpo", "sft", *WITH_COMMENTS, *POLICY_GRADIENT)
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
NEW_ADAPTER = "Of a version that starts from the base model; one that continues a version keeps its."
Band = Annotated[tuple[float, float], AfterValidator(band)]


class FrozenRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CommonHyperparameters(FrozenRecord):
    """The table ``[train]`` has these."""

    learning_rate: float = Field(4e-4, gt=0, lt=0.1, description="Step size. Lower for wider models.")
    epochs: int = Field(
        8, ge=1, le=100, description="Passes over the ratings, at most: `kl_stop` usually ends a run before."
    )
    batch_size: int = Field(8, ge=1, le=512, description="Replies in a step.")
    rank: int = Field(16, ge=1, le=256, description="LoRA rank.")
    kl_beta: float = Field(0.0, ge=0, le=100, description="Weight of the KL to the reference policy.")
    baseline: Literal["batch", "ema"] = Field(
        "batch",
        description='Baseline of mis_po: "batch" normalises the rewards over a run; "ema" subtracts the moving average '
        "(.99) of earlier rewards from each one.",
    )
    # Where a fifth of the ratings are mistaken, .2 did not always find them; where none are, more costs nothing.
    label_noise: float = Field(
        0.3,
        ge=0,
        le=0.45,
        description="Expected share of wrong ratings. Ratings that others contradict count less. 0: all ratings count "
        "fully.",
    )
    rehearsed: int = Field(
        0,
        ge=0,
        le=64,
        description="Anchors in each training step: prompts to which the model is to answer as the base model does. "
        "For comments 2 prompts with a request against the comment; for ratings 2 plain questions if all rated prompts "
        "have a system message.",
    )
    warm_start: bool = Field(
        False,
        description="Imitate demonstrations first, in the same run: corrections, preferred answers, and good answers "
        "of other models or people; without any, answers rated good.",
    )
    successes: bool = Field(
        False, description="Imitate the latest answers rated good at the end of each run."
    )


class AdvancedHyperparameters(FrozenRecord):
    """The table ``[train.advanced]`` is this."""

    alpha: int = Field(
        16, ge=1, le=1024, description=f"LoRA alpha: an adapter counts alpha / rank times. {NEW_ADAPTER}"
    )
    targets: tuple[str, ...] = Field(
        (),
        description='Linear layers that get an adapter, by name: ["q_proj", "v_proj"], or ["attention"]. Empty: all, '
        f"but in a mixture of experts only the attention's. {NEW_ADAPTER}",
    )
    # LoRA+, arXiv 2402.12354, finds 16 good where B starts at zero.
    lora_plus_ratio: float = Field(
        1.0,
        ge=1,
        le=64,
        description="LoRA+: how many times faster the adapter's B matrices learn than A. 1: no LoRA+.",
    )
    # Users differ in how much a step teaches; this evens out how far a run goes.
    kl_stop: float = Field(
        0.15,
        gt=0,
        le=10,
        description="A run ends when the model is this far from the base model (mean over an epoch's worth of steps).",
        json_schema_extra={"unit": "nats per token"},
    )
    beta: float = Field(0.1, gt=0, le=10, description="Scale of the implicit reward in kto and dpo.")
    token_band: Band = Field(
        (0.5, 2.0),
        description="Ratios of a token's probability, now / when it was written, between which it teaches. For ppo, "
        "rloo, grpo and gspo it is the clip range 1 ± ε, [0.8, 1.2].",
    )
    trajectory_band: Band = Field(
        (0.994, 1.002),
        description="The same for a whole reply (geometric mean of its tokens). Beyond it, mis_po lets a reply count "
        "less.",
    )
    rewards: Rewards = Field(
        "auto",
        description='Rewards of ppo, rloo, grpo and gspo. "ratings": logged answers with their ratings; "model": the '
        "model answers anew while it trains, and a reward model that learns from the same ratings scores it. "
        '"auto": the reward model if it orders unseen ratings right, else the ratings.',
    )
    rounds: int = Field(
        3,
        ge=1,
        le=64,
        description="How many times the model answers anew, if a model rewards it. `epochs` are passes over the "
        "answers of one round.",
        json_schema_extra={"unit": "rounds"},
    )
    # Sutton and Barto, section 3.3.
    discount: float = Field(
        1.0,
        gt=0,
        le=1,
        description="An agent's reward counts so much for the step before, and again for the one before that. Below 1, "
        "attempts that get there sooner are better ones.",
    )
    max_tokens: int = Field(
        16_384,
        ge=16,
        le=1_000_000,
        description="Longer conversations are left out.",
        json_schema_extra={"unit": "tokens"},
    )
    # A single conversation may be longer: it then trains slower. An NVIDIA GPU with room takes up to 16 times as many.
    micro_batch_tokens: int = Field(
        256,
        ge=1,
        le=1_000_000,
        description="Tokens in memory at once. A batch accumulates the gradients of its parts, so this changes memory "
        "and speed only.",
        json_schema_extra={"unit": "tokens"},
    )


class Hyperparameters(CommonHyperparameters, AdvancedHyperparameters):
    """The hyper-parameters of a run, which are settings; a preset fills those that the user leaves out."""


class ModelSize(FrozenRecord):
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
