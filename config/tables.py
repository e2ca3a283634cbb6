"""The tables of the configuration file, such as ``[train]``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from burnish.config.hyperparameters import (
    OBJECTIVES,
    AdvancedHyperparameters,
    CommonHyperparameters,
    FrozenRecord,
    known_objective,
)
from burnish.config.model_names import plain

ExpandedPath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


def _at_most(usual: int, share: float, *, least: int = 1) -> Callable[[dict[str, Any]], int]:
    """Return a default: ``usual``, or this share of ``min_ratings`` if that is less."""
    return lambda settings: max(least, min(usual, int(settings.get("min_ratings", usual / share) * share)))


class TrainConfig(CommonHyperparameters):
    """The table ``[train]``: when and how to train."""

    enabled: bool = Field(True, description="Train in the background (off: --no-train).")
    min_ratings: int = Field(32, ge=2, description="New ratings needed to start a run automatically.")
    min_comments: int = Field(
        default_factory=_at_most(16, 1, least=4),
        ge=4,
        description="A run also starts after this many ratings with a comment, or after this many corrections and "
        "preferences. Default: 16, or min_ratings if that is less, but not below 4.",
    )
    min_good: int = Field(
        default_factory=_at_most(8, 1 / 2),
        ge=1,
        description="Good ratings needed to start a run. Default: 8, or half of min_ratings if that is less.",
    )
    min_bad: int = Field(
        default_factory=_at_most(4, 1 / 4),
        ge=1,
        description="Bad ratings needed to start a run. Default: 4, or a quarter of min_ratings if that is less.",
    )
    schedule: str = Field(
        "auto",
        pattern=r"^(auto|manual|([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)$",
        description='"auto", "manual" (only burnish train), or a local-time window such as "01:00-06:30".',
    )
    promote: Literal["auto", "manual"] = Field(
        "auto",
        description='"auto": a version that passes the gate goes live; "manual": it waits for burnish adapters '
        "promote, or for /rl promote of an owner.",
    )
    on_battery: bool = Field(
        False, description="Start runs while the machine runs on battery. burnish train always does."
    )
    max_load: float = Field(
        0.7,
        gt=0,
        le=1,
        description="A run waits, for an hour at most, while other programs use a larger share of the processor.",
    )
    memory_gb: float | None = Field(
        None,
        ge=0,
        description="A run waits, for an hour at most, until this much memory is free. Default: the most that a run "
        "took, or an estimate by the size of the model. 0: it never waits.",
    )
    base: str | None = Field(
        None,
        description="Weights of the model that the upstream serves, to train on: a GGUF file, a Hugging Face "
        "directory, or a name on the Hugging Face hub such as Qwen/Qwen3-0.6B, which is downloaded. Unset: the path "
        "that the upstream reports.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,2})?|mps|shared)$",
        description='"auto" (the GPU with the most free memory, if it is enough; without a GPU the CPU), "shared" '
        '(like "auto", but never the CPU), "cuda" or "cuda:1" (that GPU, without checking its memory), "mps" '
        '(Apple\'s GPU, with torch) or "cpu". On Apple silicon "auto" is MLX, if it is installed.',
    )
    quantize: Literal["none", "8bit", "4bit"] = Field(
        "none",
        description="Quantize the base weights while training on a GPU: less memory, but slower. Needs the extra "
        "quantize.",
    )
    objective: Annotated[str, AfterValidator(lambda name: known_objective(name, ("auto", *OBJECTIVES)))] = (
        Field(
            "auto",
            description="Training objective: mis_po, kto, dpo, sft, critique, hybrid, ppo, rloo, grpo or gspo; "
            '"auto" chooses by the kind of feedback. For a loss of your own, give its import path, module:function '
            "(docs/learning.md).",
        )
    )
    next_turn: bool = Field(
        False,
        description="Use the next user message after a bad answer as the comment on it, if there is no other comment. "
        "Only for users who react to the answer in the chat; otherwise it teaches nonsense.",
    )
    preset: Literal["careful", "balanced", "aggressive"] = Field(
        "balanced", description="How fast and how far a run learns."
    )
    rater_weights: dict[str, Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Weights of raters by name, e.g. { alice = 2.0, judge-1 = 0.3 }. Others have weight 1; ratings "
        "with weight 0 are ignored.",
    )
    replay: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Older ratings that a run repeats for each new one, so they aren't forgotten.",
    )
    keep_versions: int = Field(
        20,
        ge=1,
        description="How many of the latest versions keep their weights. The live version, versions in use and the "
        "target of a rollback always keep them; metadata and verdicts are always kept.",
    )
    threads: int | None = Field(None, ge=1, description="Threads of the trainer (default: half the cores).")
    seed: int = Field(0, description="Seed of a run.")
    advanced: AdvancedHyperparameters = AdvancedHyperparameters()

    def overrides(self) -> dict[str, Any]:
        """Return the hyper-parameters that the user set; they override the preset."""
        own = self.model_fields_set & CommonHyperparameters.model_fields.keys()
        return {name: getattr(self, name) for name in own} | self.advanced.model_dump(exclude_unset=True)


class LogConfig(FrozenRecord):
    """The table ``[log]``: how long completions are kept (by default, forever), and which aren't learnt from."""

    keep_days: float | None = Field(
        None, gt=0, description="Delete completions that are older. Unset: never."
    )
    keep_completions: int | None = Field(
        None, ge=1, description="Delete the oldest completions if there are more. Unset: never."
    )
    keep_unrated_days: float | None = Field(
        None,
        gt=0,
        description="Delete completions without feedback that are older. Unset: as keep_days and keep_completions say.",
    )
    keep_rated: bool = Field(
        True, description="Keep completions with feedback, however old: training uses them."
    )
    scrub: bool = Field(
        True,
        description="Don't learn from exchanges that hold a key or a token of a known kind. Their text stays as it is.",
    )


LITELLM = "litellm:"
"""Begins the URL of a provider that litellm asks: ``litellm:PROVIDER/MODEL``; without a model, requests name it."""
_LITELLMS = re.compile(LITELLM + r"[a-z0-9_-]+(/\S+)?")


def upstream_url(url: str, key: str = "api_key") -> str:
    """Return an upstream's URL without space and slash around it. ``key``: its key's setting. Raises ValueError."""
    url = url.strip().rstrip("/")
    if not url.startswith(LITELLM):
        return http_url(url, key)
    if not _LITELLMS.fullmatch(url):
        raise ValueError("must name one of litellm's providers and a model, such as litellm:bedrock/MODEL")
    return url


def http_url(url: str, key: str = "api_key") -> str:
    """Return the URL of a server without space and slash around it. Raises ValueError."""
    url = url.strip().rstrip("/")
    if "@" in url:
        raise ValueError(f"must not contain a user or a password (@); set {key} instead")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http(s) URL such as http://127.0.0.1:8000/v1")
    return url


def _claim(model: str) -> str:
    model = plain(model.strip())
    if not model.removesuffix("*") or "*" in model[:-1]:
        raise ValueError('must be a model name such as "gpt-5", or its beginning and a star such as "gpt-*"')
    return model


def _not_empty(models: tuple[str, ...]) -> tuple[str, ...]:
    if not models:
        raise ValueError("must name a model at least: without one, no request would go there")
    return models


UpstreamName = Annotated[str, Field(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=40)]


class UpstreamConfig(FrozenRecord):
    """A table ``[upstreams.NAME]``: a further upstream, which answers requests for the models that it names."""

    url: Annotated[str, AfterValidator(upstream_url)] = Field(
        description="URL of an OpenAI-compatible server that answers for `models`; or `litellm:PROVIDER/MODEL`."
    )
    api_key: SecretStr | None = Field(
        None,
        description="Key for it; callers' keys then stay here. Unset: they go through, but not to litellm.",
    )
    api_base: Annotated[str, AfterValidator(http_url)] | None = Field(
        None, description="Address of the provider, if litellm shouldn't use the usual one."
    )
    models: Annotated[tuple[Annotated[str, AfterValidator(_claim)], ...], AfterValidator(_not_empty)] = Field(
        description='Models that it answers for, such as ["gpt-5", "o4-*"]. A star stands for any ending.'
    )
    teaches: bool = Field(
        False,
        description="Whether ratings of its answers teach the local model. Many providers' terms forbid to train other "
        "models on their answers: read them first.",
    )

    @model_validator(mode="after")
    def _only_litellm_has_a_base(self) -> UpstreamConfig:
        if self.api_base and not self.url.startswith(LITELLM):
            raise ValueError(f"api_base is only for {LITELLM}…: put the address into url")
        return self

    def claims(self, model: str) -> bool:
        return any(_covers(pattern, plain(model)) for pattern in self.models)

    def shared_with(self, rival: UpstreamConfig) -> str | None:
        """Return a name or a beginning that both claim; None if there is none."""
        for pattern in self.models:
            for rival_pattern in rival.models:
                if _covers(pattern, rival_pattern) or _covers(rival_pattern, pattern):
                    return max(pattern, rival_pattern, key=len)
        return None


def _covers(claim: str, model: str) -> bool:
    """Return whether a claim, such as ``gpt-*``, covers a model or all models of another claim."""
    return model.startswith(claim[:-1]) if claim.endswith("*") else model == claim


class LitellmConfig(FrozenRecord):
    """The table ``[litellm]``: where litellm is."""

    python: ExpandedPath | None = Field(
        None,
        description="Interpreter of an environment that has litellm. Unset: burnish's own, with the extra cloud.",
    )


class FeedbackConfig(FrozenRecord):
    """The table ``[feedback]``: how agents let people rate."""

    mode: Literal["prompt", "reactions", "command"] = Field(
        "reactions",
        description='How connected agents take ratings. "command": only /rl. "reactions": also thumbs on messages in '
        'channels. "prompt": also a choice after each answer, in agents that can show one. After a change, connect '
        "the agent again.",
    )


class RewardConfig(FrozenRecord):
    """The table ``[reward]``: what scores answers."""

    model: str | None = Field(
        None,
        min_length=1,
        description="Another reward model: the directory of a sequence classifier of transformers with "
        "one label, or its name on the Hugging Face hub if it was downloaded before. It runs in a process of its own. "
        "Unset: the one that `burnish reward train` learns.",
    )
    best_of_max: int = Field(
        16,
        ge=1,
        le=16,
        description="Most answers that a request for the best of several may ask for. Each costs the engine a whole "
        "answer. 1: none is chosen.",
    )


class CaptureConfig(FrozenRecord):
    """The table ``[capture]``: what is kept of a completion besides its texts."""

    tokens: bool = Field(
        False,
        description="Ask the engine for the token ids and log-probabilities of each completion, and keep them. Such "
        "requests reach the engine [changed](engines.md#token-ids).",
    )


class SignalsConfig(FrozenRecord):
    """The table ``[signals]``: feedback from what coding agents' tools find out."""

    enabled: bool = Field(
        False,
        description="Read from the results of coding agents' tools whether tests passed, and whether edits were kept, "
        "and rate the turn by it: with weight .3, and never where a person said something (docs/signals.md).",
    )


class ChatConfig(FrozenRecord):
    """The table ``[chat]``: what `burnish chat` asks for."""

    temperature: float | None = Field(
        None, ge=0, le=2, description="0: always the likeliest word. Unset: the engine's default."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, description="Choose among the likeliest words of this total probability."
    )
    top_k: int | None = Field(None, ge=1, description="Choose among this many of the likeliest words.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Longest answer, in tokens. Default: 512 for a small embedded model, "
        "which may never stop by itself.",
    )
    rate: Literal["line", "key", "off"] = Field(
        "line",
        description='Ask for a rating after each answer: "line" (a letter and Enter), "key" (one key press), or "off".',
    )
