"""The objective that fits the feedback, and starting points for hyper-parameters. Importable without torch.

docs/measurements.md has the figures.

Later ones win: the defaults of ``Hyperparameters``, the values for prompts with a system message, those of the
objective; preset and size of the model scale what these chose; the user's own values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, floor
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.training.job import Hyperparameters, ModelSize, Objective

SYSTEM_ROLES = ("system", "developer")
# Fewer good ones among the ratings than this, and thumbs alone teach next to nothing (brief-cold: 2 of 40).
RARE = 0.2
# With fewer comments, the model's corrected answers are too few to learn from.
MIN_COMMENTS = 4


NOTHING = "nothing in it that {} learns from"
"""For an objective."""


class ReplyFeedback(Protocol):
    @property
    def reward(self) -> float: ...
    @property
    def comment(self) -> str | None: ...
    @property
    def correction(self) -> str | None: ...
    @property
    def worse(self) -> Sequence[object]: ...


class RunFeedback(ReplyFeedback, Protocol):
    @property
    def held_out(self) -> bool: ...


def teaches(sample: ReplyFeedback, objective: Objective) -> bool:
    """Return whether an objective can learn from the feedback on a reply."""
    if objective == "dpo":
        return bool(sample.correction or sample.worse)
    if objective == "critique":
        return bool(sample.comment) and sample.reward <= 0
    if objective == "sft":
        return sample.reward > 0 or bool(sample.correction or sample.worse)
    if objective in POLICY_GRADIENT:
        return sample.reward != 0 or bool(sample.correction or sample.worse)
    return sample.reward != 0 or (objective == "hybrid" and bool(sample.comment))


def one_sided(samples: Sequence[RunFeedback], objective: Objective) -> bool:
    """Return whether all replies are good, or all are bad, for an objective; held-out ones don't count.

    Comments and pairs are never one-sided: they name a reply to move towards, and one to move away from.
    """
    if objective in ("dpo", "critique"):
        return False
    signs = {sample.reward > 0 for sample in samples if sample.reward and not sample.held_out}
    return len(signs) == 1


def choose(samples: Sequence[RunFeedback]) -> Objective:
    """Return the objective for these samples; held-out ones don't count.

    Comments where good replies are rare → ``critique``; ratings of both kinds → ``mis_po``. Without both kinds ratings
    teach nothing, so then comments are preferred, and after them corrections and preferences (``dpo``).
    """
    training = [sample for sample in samples if not sample.held_out]
    good = sum(sample.reward > 0 for sample in training)
    bad = sum(sample.reward < 0 for sample in training)
    comments = sum(bool(sample.comment) and sample.reward <= 0 for sample in training)
    # A comment alone is criticism too, as with a bad rating.
    criticised = sum(sample.reward < 0 or bool(sample.comment and not sample.reward) for sample in training)
    both = good and bad
    if comments >= MIN_COMMENTS and (not both or good <= RARE * (good + criticised)):
        return "critique"
    pairs = sum(bool(sample.correction or sample.worse) for sample in training)
    return "dpo" if pairs and not both else "mis_po"


Preset = Literal["careful", "balanced", "aggressive"]

SCALES: MappingProxyType[Preset, dict[str, float]] = MappingProxyType(
    {
        "careful": {"learning_rate": 1 / 2, "epochs": 5 / 8, "kl_stop": 1 / 3},
        "balanced": {},
        # The gate refuses a KL above .6: with comments this comes to .56.
        "aggressive": {"learning_rate": 5 / 4, "epochs": 5 / 4, "kl_stop": 1.4},
    }
)
"""By what each preset multiplies the values that the feedback and its objective chose.

On "short answers, please" (32 ratings, three seeds, share satisfied before .29) balanced reaches .92 at a KL of .32 per
token.
"""

CLIPPED: dict[str, Any] = {"epochs": 4, "batch_size": 4, "kl_beta": 0.1, "token_band": (0.8, 1.2)}
"""PPO as published: ε = .2, and few passes over the answers of a round."""

BY_OBJECTIVE: MappingProxyType[Objective, dict[str, Any]] = MappingProxyType(
    {
        # The model learns its own answers with comments in the prompt: they start some way off, and take six passes. At
        # 4e-4 a run is a sixth shorter, but the gate rejected three of four (KL .56 to .73 on the rated questions).
        "critique": {"learning_rate": 3e-4, "epochs": 6, "kl_stop": 0.4, "rehearsed": 2},
        # At twice this, replies of the small model leave the topic: .49 of them stay on it, of mis_po's .88.
        "dpo": {"learning_rate": 1e-4},
        **dict.fromkeys(POLICY_GRADIENT, CLIPPED),
    }
)
"""Values of an objective that differ from the defaults."""

INSTRUCTED: MappingProxyType[str, Any] = MappingProxyType({"rehearsed": 2, "kl_stop": 0.2})
"""Values for ratings whose prompts all have a system message: plain questions are rehearsed.

Rehearsal preserves the rest, so a run may go further: brief, seed 1, .725 satisfied at a ``kl_stop`` of
.15, .875 at .2.
"""

AGENT_REWARDS: MappingProxyType[str, Any] = MappingProxyType({"epochs": 2, "batch_size": 16, "kl_beta": 0.02})
"""Values for an agent's rewards. Its distance is measured from where the run starts, and rounds follow each other, so
each may be short; a step over few attempts would be mostly chance."""

# Where the learning rates above were measured: the small model.
MEASURED_HIDDEN = 576
# "LoRA Without Regret" (Thinking Machines, 2025): with alpha fixed the best rate of a LoRA hardly depends on its rank,
# and falls with the model's width to the power of .781 for Llama, .0775 for Qwen. Relative to what we measured, Qwen's
# own formula asks for up to 1.7 times as much as Llama's between widths of 1024 and 4096; the smaller is the safer one,
# and kl_stop ends a run by how far it has come, not by how fast.
WIDTH_EXPONENT = 0.78
# Nothing is known of models beyond 12,000 wide, nor of any below the small one.
LEAST_SCALE, MOST_SCALE = 0.1, 1.0

# In a mixture an adapter changes only the attention, about a third of the linear weights of a dense model.
MIXTURE_RANK = 2
# A small change sends tokens to other experts: with Qwen3-30B-A3B about a tenth of those used, after each step of RL
# (GSPO, arXiv 2507.18071). That moves the KL, too, so a sparser model takes smaller steps and stops earlier. By how
# much is a careful guess; nobody has measured it with so few ratings.
SPARSITY_EXPONENT = -0.25
LEAST_CAUTION = 0.5


def rate_scale(size: ModelSize) -> float:
    """Return by what learning rates are multiplied for a model of this size."""
    scale: float = (MEASURED_HIDDEN / size.hidden) ** WIDTH_EXPONENT
    return min(MOST_SCALE, max(LEAST_SCALE, scale))


def caution(size: ModelSize) -> float:
    """Return by what learning rate and ``kl_stop`` are multiplied in a mixture of experts; 1 in a dense model."""
    if not size.experts:
        return 1.0
    sparsity = size.experts / max(size.experts_used, 1)
    factor: float = sparsity**SPARSITY_EXPONENT
    return max(LEAST_CAUTION, factor)


def hyperparameters(
    preset: Preset = "balanced",
    objective: Objective = "mis_po",
    size: ModelSize | None = None,
    *,
    instructed: bool = False,
    played: bool = False,
    **own: Any,
) -> Hyperparameters:
    """Return the preset for a model of this size (None: as for the small one) with the user's own values over it.

    ``instructed``: whether all prompts have a system message (the function ``instructed``). ``played``: whether an
    agent's rewards teach.
    Raises ValueError when there is no such preset, or a value is wrong (pydantic names the field).
    """
    if preset not in SCALES:
        raise ValueError(f"preset is {preset!r}, expected one of {', '.join(get_args(Preset))}")
    rehearses = instructed and objective != "critique" and own.get("rehearsed") != 0
    needed = dict(INSTRUCTED if rehearses else {}) | BY_OBJECTIVE.get(objective, {})
    if played:
        needed |= AGENT_REWARDS
    defaults = Hyperparameters(**needed)
    defaults = defaults.model_copy(update=_paced(defaults, preset))
    return Hyperparameters(**defaults.model_dump() | (_scaled(defaults, size) if size else {}) | own)


def _paced(defaults: Hyperparameters, preset: Preset) -> dict[str, Any]:
    values = {name: getattr(defaults, name) * scale for name, scale in SCALES[preset].items()}
    if "epochs" in values:
        # Whole ones, and always fewer or more than balanced; one at least.
        epochs = values["epochs"]
        values["epochs"] = max(1, floor(epochs) if epochs < defaults.epochs else ceil(epochs))
    return values


def _scaled(defaults: Hyperparameters, size: ModelSize) -> dict[str, Any]:
    return {
        "learning_rate": defaults.learning_rate * rate_scale(size) * caution(size),
        "kl_stop": defaults.kl_stop * caution(size),
        "rank": defaults.rank * (MIXTURE_RANK if size.experts else 1),
    }


def reasons(size: ModelSize | None, config: Hyperparameters, own: Collection[str]) -> list[str]:
    """Return, in words, the settings that the size of the model changed."""
    sentences = []
    if size and rate_scale(size) != 1 and "learning_rate" not in own:
        sentences.append(
            f"learning rate {config.learning_rate:.1e}: {rate_scale(size):.2f} of that for a model "
            f"{MEASURED_HIDDEN} wide, this one is {size.hidden}"
        )
    if size and size.experts:
        sentences.append(_mixture(size, config, own))
    return sentences


def _mixture(size: ModelSize, config: Hyperparameters, own: Collection[str]) -> str:
    per_token = f", {size.experts_used} for each token" if size.experts_used else ""
    changes = [f"rank {config.rank}"] if "rank" not in own else []
    careful = [name for name in ("learning_rate", "kl_stop") if name not in own]
    if careful:
        changes.append(f"{' and '.join(careful)} at {caution(size):.2f} of a dense model's")
    because = f"; so {', '.join(changes)}" if changes else ""
    return (
        f"a mixture of {size.experts} experts{per_token}: neither they nor their routers are trained{because}"
    )
