"""The configuration: flag > environment > ``.env`` > file > default, validated in one place.

Environment names are ``BURNISH_`` + the key (``BURNISH_PORT``); keys of a table such as ``[train]`` take two
underscores (``BURNISH_TRAIN__MIN_RATINGS``). The file is TOML with the same keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from burnish.proxy.errors import ConfigError
from burnish.training.job import known_objective

ENV_PREFIX = "BURNISH_"
RENAMED = {"instant": "instructions"}
"""Old names of keys. They are refused with the new name instead of being ignored."""


def default_data_dir() -> Path:
    """Return the folder where the log, the versions and the jobs live unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "burnish"


def default_config_file() -> Path:
    """Return the configuration file that is read when none is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "burnish" / "config.toml"


def _known_objective(name: str) -> str:
    try:
        return name if name == "auto" else known_objective(name)
    except ValueError as error:
        raise ValueError(f"{error}; auto chooses for you") from None


class TrainConfig(BaseModel):
    """The table ``[train]``: when and how ratings become a new version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="Train in the background at all (--no-train: off).")
    min_ratings: int = Field(32, ge=2, description="New ratings before a run starts by itself.")
    min_comments: int = Field(
        16,
        ge=4,
        description="Or so many of them with a comment that says what was wrong, good ones or not; or so many "
        "corrections and preferences, where nothing was rated.",
    )
    min_good: int = Field(8, ge=1, description="Good ratings among the ready ones before a run may start.")
    min_bad: int = Field(4, ge=1, description="Bad ratings among the ready ones before a run may start.")
    schedule: str = Field(
        "auto",
        pattern=r"^(auto|manual|([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)$",
        description='"auto", "manual" (only burnish train), or a local-time window such as "01:00-06:30".',
    )
    base: str | None = Field(
        None,
        description="Base weights to train on: a GGUF file, a Hugging Face directory, or a name on the Hugging Face "
        "hub such as Qwen/Qwen3-0.6B (downloaded if need be), of the very model that the upstream serves. Unset: where "
        "the upstream says that they lie.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,2})?|shared)$",
        description='"auto" (the GPU with most free memory, which must have room; the CPU where there is no '
        'GPU), "shared" (the same, but never the CPU), "cuda" or "cuda:1" (that GPU, without asking for room), or '
        '"cpu".',
    )
    quantize: Literal["none", "8bit", "4bit"] = Field(
        "none",
        description="How the base weights are kept while training on a GPU; needs the extra quantize. Less memory, "
        "slower.",
    )
    objective: Annotated[str, AfterValidator(_known_objective)] = Field(
        "auto",
        description='What to learn by: mis_po, kto, dpo, sft, critique or hybrid; "auto" chooses by the kind of '
        "feedback. A loss of your own is given by its import path, module:function (docs/learning.md).",
    )
    baseline: Literal["batch", "ema"] = Field(
        "batch",
        description='Of mis_po: "batch" normalises the rewards over a run; "ema" counts each one by its difference '
        "from the moving average (.99) of those before it.",
    )
    next_turn: bool = Field(
        False,
        description="Take what a user writes right after an answer that was rated bad as the comment on it, where "
        "there is no other. For users who say what they want in the chat; of one who just asks the next thing it "
        "teaches nonsense.",
    )
    preset: Literal["careful", "balanced", "aggressive"] = Field(
        "balanced", description="Hyper-parameters to start from."
    )
    rater_weights: dict[str, Annotated[float, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="How much raters count, by the name in their feedback, e.g. { alice = 2.0, judge-1 = 0.3 }; others "
        "count 1, and 0 is not heard.",
    )
    label_noise: float | None = Field(
        None,
        ge=0,
        le=0.45,
        description="Overrides .3: the share of ratings that may be mistaken. Each counts as far as the others bear "
        "it out; 0: all are believed.",
    )
    rehearsed: int | None = Field(
        None,
        ge=0,
        le=64,
        description="Overrides 2, and 0 where a rated prompt has no system message: plain questions that each step "
        "goes over beside the ratings, so that the model still knows and says what nobody complained about.",
    )
    replay: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Ratings that the live version has learnt and a run goes over again, so that they are not "
        "forgotten: so many for each new one.",
    )
    learning_rate: float | None = Field(
        None, gt=0, lt=1, description="Overrides the preset, which falls with the width of the model."
    )
    epochs: int | None = Field(None, ge=1, le=100, description="Overrides the preset.")
    batch_size: int | None = Field(None, ge=1, le=512, description="Overrides the preset.")
    rank: int | None = Field(None, ge=1, le=256, description="Overrides the preset: LoRA rank.")
    kl_beta: float | None = Field(None, ge=0, description="Overrides the preset: weight of the KL term.")
    keep_versions: int = Field(
        20,
        ge=1,
        description="How many versions keep their weights: the latest ones, besides what is live, what undoing leads "
        "to, and what is in use. What a version was and how it was judged stays known.",
    )
    threads: int | None = Field(None, ge=1, description="Threads of the trainer (default: half the cores).")
    seed: int = Field(0, description="Seed of a run.")

    def overrides(self) -> dict[str, Any]:
        """Return the hyper-parameters that the user set; they win over any preset."""
        names = (
            "baseline",
            "learning_rate",
            "epochs",
            "batch_size",
            "rank",
            "kl_beta",
            "label_noise",
            "rehearsed",
        )
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class LogConfig(BaseModel):
    """The table ``[log]``: how long what was said is kept. Nothing is taken out unless one of them is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_days: float | None = Field(
        None, gt=0, description="Take completions out of the log when they are older. Unset: never."
    )
    keep_completions: int | None = Field(
        None, ge=1, description="Take the oldest out when there are more. Unset: never."
    )
    keep_rated: bool = Field(
        True,
        description="Keep completions with feedback that counts whatever their age: training learns from them.",
    )


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on; any but loopback needs an api_key.")
    port: int = Field(8787, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    upstream: str | None = Field(
        None,
        description="URL of an OpenAI-compatible server, or several with commas between them: replicas that serve the "
        "same model. Unset: the embedded engine.",
    )
    upstream_api_key: SecretStr | None = Field(
        None,
        description="Key for the upstream, used when the caller sends none of its own; `burnish` and `-` stand for "
        "none.",
    )
    model: str | None = Field(
        None,
        description="Embedded engine: a GGUF file (default: the small model). Upstream: what `default` means there.",
    )
    engine: Literal["auto", "none"] = Field(
        "auto",
        description='"auto": find out which engine the upstream is, and swap versions in it if it can; "none": never.',
    )
    models_preset: Path | None = Field(
        None,
        description="llama.cpp as upstream: the file that llama-server was given with --models-preset.",
    )
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that answer requests. One is enough for thousands of requests a second; more are for "
        "machines with cores to spare, and hundreds of streams at once.",
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="Where log, versions and jobs live.")
    api_key: SecretStr | None = Field(
        None, description="Key that callers must send (Authorization: Bearer … or x-burnish-key)."
    )
    allowed_hosts: tuple[str, ...] = Field((), description="Host names accepted besides loopback's own.")
    allowed_origins: tuple[str, ...] = Field(
        (), description='Web pages that may call, e.g. "http://localhost:3000".'
    )
    max_body_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, description="Largest request body of a completion."
    )
    connect_timeout_s: float = Field(10, gt=0, description="Until the upstream accepts a connection.")
    first_byte_timeout_s: float = Field(600, gt=0, description="Until the upstream begins to answer.")
    idle_timeout_s: float = Field(300, gt=0, description="Longest silence inside an answer.")
    total_timeout_s: float | None = Field(
        None,
        gt=0,
        description="Until the last byte of an answer, from when the request came. Unset: no limit.",
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description="Requests that one upstream server is given at a time; more wait for their turn.",
    )
    queue_timeout_s: float = Field(60, gt=0, description="Longest that they wait.")
    request_timeout_s: float = Field(
        60,
        gt=0,
        description="How long a client may be silent in the middle of its request; a slow one has that long, and a "
        "second for each KiB.",
    )
    owners: tuple[str, ...] = Field(
        (),
        description="Who may type /rl train, /rl rollback, /rl on and /rl off: names as in x-burnish-user; `local` are "
        "those who send none. Unset: nobody.",
    )
    instructions: bool = Field(
        False,
        description="Add what a caller said of earlier answers to the system prompt, until a version has learnt it "
        "(burnish instructions).",
    )
    log: LogConfig = LogConfig()
    train: TrainConfig = TrainConfig()

    @property
    def log_file(self) -> Path:
        """The database with all that was said, and what people thought of it."""
        return self.data_dir / "burnish.db"

    @property
    def server_file(self) -> Path:
        """While burnish runs: {"url", "pid"}, so that the commands find it."""
        return self.data_dir / "server.json"

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The URLs in ``upstream``; more than one are replicas."""
        return tuple(self.upstream.split(",")) if self.upstream else ()

    @field_validator("upstream")
    @classmethod
    def _upstream_is_a_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        urls = [url.strip().rstrip("/") for url in value.split(",")]
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError("must be an http(s) URL such as http://127.0.0.1:8000/v1")
            if parts.username or parts.password:
                raise ValueError("must not contain a password; set upstream_api_key instead")
        if len(set(urls)) < len(urls):
            raise ValueError("names the same server twice")
        return ",".join(urls)

    @field_validator("data_dir", "models_preset")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None

    @model_validator(mode="after")
    def _open_address_needs_a_key(self) -> Config:
        if not is_loopback(self.host) and self.api_key is None:
            raise ValueError(
                f"host {self.host!r} can be reached from other machines: set api_key, or listen on 127.0.0.1"
            )
        return self


TABLES: dict[str, type[BaseModel]] = {"log": LogConfig, "train": TrainConfig}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def load_config(flags: dict[str, Any] | None = None, *, file: Path | None = None) -> Config:
    """Read the configuration; flags that are None were not given.

    Raises ConfigError, which names every wrong key, its value and the fix.
    """
    named = file or os.environ.get(ENV_PREFIX + "CONFIG")
    path = Path(named) if named else default_config_file()
    if named and not path.is_file():
        raise ConfigError(f"the configuration file {path} does not exist: create it, or leave out --config")
    given: dict[str, Any] = {}
    for source in (_from_file(path), _from_dotenv(), _from_environment(os.environ)):
        _merge(given, source)
    _merge(given, {key: value for key, value in (flags or {}).items() if value is not None})
    try:
        return Config.model_validate(given)
    except ValidationError as error:
        raise ConfigError("the configuration is wrong:\n" + _explain(error)) from error


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    import tomllib  # only if there is a file: commands must start fast

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for key in found:
        if key not in Config.model_fields:
            known = ", ".join(Config.model_fields)
            raise ConfigError(f"{path}: {_renamed(key) or f'unknown key {key!r}; the keys are: {known}'}")
    return found


def _from_dotenv() -> dict[str, Any]:
    path = Path(".env")
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # only if there is a file: commands must start fast

    return _from_environment(dotenv_values(path))


def _from_environment(variables: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the settings among the variables. Empty variables count as not set; unknown ones are ignored."""
    found: dict[str, Any] = {}
    for name, text in sorted(variables.items(), key=lambda each: each[0].upper()):
        if not (text and name.upper().startswith(ENV_PREFIX)):
            continue
        *tables, key = name[len(ENV_PREFIX) :].lower().split("__")
        first = (*tables, key)[0]
        if message := _renamed(first):
            raise ConfigError(f"{name}: {message}")
        if first in Config.model_fields:
            value: Any = _parsed(name, text) if _is_json(tables, key) else text
            _merge(found, reduce(lambda inner, table: {table: inner}, reversed(tables), {key: value}))
    return found


def _is_json(tables: Sequence[str], key: str) -> bool:
    model = Config if not tables else TABLES.get(tables[-1])
    field = model.model_fields.get(key) if model else None
    return key in TABLES or (field is not None and get_origin(field.annotation) in (tuple, dict))


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f'{name} must be JSON, such as ["box.lan"] for a list, not {text!r}') from error


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add settings that win over those that are already there; tables are merged key by key."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(there := into.get(key), dict):
            _merge(there, value)
        else:
            into[key] = value


def _renamed(key: str) -> str | None:
    new = RENAMED.get(key)
    return f"the key {key!r} is now called {new!r}: rename it" if new else None


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "configuration"
        shown = "" if "key" in key or not problem["loc"] else f" (given: {problem['input']!r})"
        lines.append(f"  {key}: {problem['msg'].removeprefix('Value error, ')}{shown}")
    return "\n".join(lines)
