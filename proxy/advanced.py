"""The table ``[train.advanced]``: what presets choose otherwise. ``burnish.training.hyperparameters`` explains each.

A value that is set wins over the preset, the needs of the objective and the size of the model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NEW_ADAPTER = "Of a version that starts from the base model; one that continues a version keeps its."


def _band(edges: tuple[float, float]) -> tuple[float, float]:
    # Only if it is set: commands must start fast.
    from burnish.training.hyperparameters import band

    return band(edges)


Band = Annotated[tuple[float, float], AfterValidator(_band)]


def _number(description: str, *, unit: str | None = None, **limits: Any) -> Any:
    """Return a setting that is unset by default. An error about it names the limits and the unit."""
    extra: dict[str, Any] | None = {"unit": unit} if unit else None
    shown = f"{description} Unit: {unit}." if unit else description
    return Field(None, description=shown, json_schema_extra=extra, **limits)


class AdvancedConfig(BaseModel):
    """The table ``[train.advanced]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: int | None = _number(
        f"LoRA alpha: an adapter counts alpha / rank times. {NEW_ADAPTER}", ge=1, le=1024
    )
    targets: tuple[str, ...] | None = Field(
        None,
        description='Linear layers that get an adapter, by name: ["q_proj", "v_proj"], or ["attention"]. Unset: all, '
        f"but in a mixture of experts only the attention's. {NEW_ADAPTER}",
    )
    lora_plus_ratio: float | None = _number(
        "LoRA+: how many times faster the adapter's B matrices learn than A. Unset: 1, no LoRA+.", ge=1, le=64
    )
    kl_stop: float | None = _number(
        "A run ends when the model is this far from the base model.", unit="nats per token", gt=0, le=10
    )
    beta: float | None = _number("Scale of the implicit reward in kto and dpo.", gt=0, le=10)
    token_band: Band | None = Field(
        None,
        description="Ratios of a token's probability, now / when it was written, between which it teaches, such as "
        "[0.5, 2.0]. For ppo, rloo, grpo and gspo it is the clip range 1 ± ε. Unset: [0.8, 1.2] for those.",
    )
    trajectory_band: Band | None = Field(
        None,
        description="The same for a whole reply (geometric mean of its tokens), such as [0.994, 1.002]. Beyond it, "
        "mis_po lets a reply count less.",
    )
    rewards: Literal["auto", "ratings", "model"] | None = Field(
        None,
        description='Rewards of ppo, rloo, grpo and gspo. "ratings": logged answers with their ratings; "model": the '
        "model answers anew while it trains, and a reward model that learns from the same ratings scores it. Unset: "
        '"auto", the reward model if it orders unseen ratings right, else the ratings.',
    )
    policy_samples: int | None = _number(
        "Answers to each prompt in a round, if a model rewards them. Unset: 4.", unit="answers", ge=2, le=64
    )
    round_prompts: int | None = _number(
        "Prompts in a round, drawn from all prompts of the run. Unset: 16.", unit="prompts", ge=1, le=1024
    )
    rounds: int | None = _number(
        "How many times the model answers anew. Unset: 3. `epochs` are passes over the answers of one round.",
        unit="rounds",
        ge=1,
        le=64,
    )
    warm_epochs: int | None = _number(
        "Passes over the answers that `warm_start` and `successes` imitate. Unset: 2.",
        unit="passes",
        ge=1,
        le=100,
    )
    ema_decay: float | None = _number('Decay of the moving average of baseline = "ema".', ge=0, lt=1)
    advantage_limit: float | None = _number(
        "How much one rating may count at most, in standard deviations.", gt=0, le=100
    )
    discount: float | None = _number(
        "An agent's reward counts so much for the step before, and again for the one before that. Below 1, attempts "
        "that get there sooner are better ones. Unset: 1.",
        gt=0,
        le=1,
    )
    teacher_samples: int | None = _number(
        "Replies that critique samples for each comment.", unit="replies", ge=1, le=64
    )
    teacher_kept: int | None = _number(
        "How many of those critique learns from, at most.", unit="replies", ge=1, le=64
    )
    max_grad_norm: float | None = _number("Gradients are clipped to this norm.", gt=0, le=1000)
    max_tokens: int | None = _number(
        "Longer conversations lose their beginning; longer replies are left out.",
        unit="tokens",
        ge=16,
        le=1_000_000,
    )
    micro_batch_tokens: int | None = _number(
        "Tokens in memory at once. A batch accumulates the gradients of its parts, so this changes memory and speed "
        "only.",
        unit="tokens",
        ge=1,
        le=1_000_000,
    )

    def overrides(self) -> dict[str, Any]:
        """Return the values that are set."""
        return {name: value for name, value in self if value is not None}
