"""The configuration: flag > environment > file of variables > file > default, validated in one place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from burnish.config.hyperparameters import IMPORT_PATH, FrozenRecord
from burnish.config.model_names import DEFAULT_MODEL, OLLAMA, ManagedKind
from burnish.config.setting_faults import explain
from burnish.config.settings import ENV_PREFIX, URL_VARIABLE, SettingSources, merge, variables_in
from burnish.config.tables import (
    LITELLM,
    CaptureConfig,
    ChatConfig,
    ExpandedPath,
    FeedbackConfig,
    LitellmConfig,
    LogConfig,
    RewardConfig,
    SignalsConfig,
    TrainConfig,
    UpstreamConfig,
    UpstreamName,
    upstream_url,
)
from burnish.proxy.http.errors import ConfigError

ENV_FILE = ".env"
ENV_FILE_VARIABLE = ENV_PREFIX + "ENV_FILE"
"""Names one more file of variables, as ``--env-file`` does."""


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "burnish"


def default_config_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "burnish" / "config.toml"


class Local(NamedTuple):
    """Where a process of burnish's own answers for an upstream."""

    url: str
    token: SecretStr
    """Bearer token for it."""


ImportPath = Annotated[str, StringConstraints(pattern=IMPORT_PATH)]
"""A class in a module: "my_module:Part"."""


def _urls(value: str) -> str:
    urls = [upstream_url(url, "upstream_api_key") for url in value.split(",")]
    if len(set(urls)) < len(urls):
        raise ValueError("must not contain the same server twice")
    if len(urls) > 1 and any(url.startswith(LITELLM) for url in urls):
        raise ValueError(f"must be the only one if it begins with {LITELLM}: those have no replicas")
    return ",".join(urls)


def _network(address: str) -> str:
    try:
        ip_network(address, strict=False)
    except ValueError as error:
        raise ValueError(f"{address!r} isn't an address or a network such as 10.0.0.0/8") from error
    return address


def _split(line: Any) -> Any:
    """Take one line of a shell, too: the option of ``burnish up``."""
    try:
        return shlex.split(line) if isinstance(line, str) else line
    except ValueError as error:
        raise ValueError(f"can't be split into options ({error}): close the quote") from error


class Config(FrozenRecord):
    _file: Path | None = PrivateAttr(None)
    _local: Mapping[str | None, Local] = PrivateAttr(default_factory=dict)
    _upstream_is_ours: bool = PrivateAttr(default=False)

    host: str = Field("127.0.0.1", description="Address to listen on; any but loopback needs an api_key.")
    port: int = Field(8787, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    engine_page_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the page that the upstream has of its own: with an address of its own it can't reach "
        "burnish's. Unset: the next free one after `port`.",
    )
    upstream: Annotated[str, AfterValidator(_urls)] | None = Field(
        None,
        description="URL of an OpenAI-compatible server, or several URLs separated by commas for replicas of the same "
        "model; or `litellm:PROVIDER/MODEL`. Unset: the embedded engine.",
    )
    upstream_api_key: SecretStr | None = Field(
        None,
        description="Key for the upstream, used if the caller sends none; `burnish` and `-` count as none.",
    )
    model: str | None = Field(
        None,
        description="Embedded engine and llama-server: a name from `burnish models`, `OWNER/NAME[:QUANTISATION]` on "
        "the Hugging Face hub, a GGUF file, or `ollama:NAME` from Ollama's store (default: the small model). vLLM and "
        "MLX, if burnish starts them: a Hugging Face directory or a model on the hub. Upstream: the model that "
        "`default` stands for.",
    )
    context: int | None = Field(
        None,
        ge=512,
        description="Embedded engine: tokens of a request with its answer, at most what the model was trained for. "
        "Unset: 4,096 to 32,768, by the free memory.",
    )
    parallel: int | None = Field(
        None, ge=1, le=64, description="Embedded engine: requests that it answers at a time. Unset: 4."
    )
    engine: Literal["auto", "none", ManagedKind] = Field(
        "auto",
        description='"auto": detect the engine behind the upstream, and swap versions in it if possible; "none": '
        'never. "vllm", "mlx" or "llama-server": start this engine instead, and keep it running.',
    )
    engine_python: ExpandedPath | None = Field(
        None,
        description="Python of the environment that has the engine to start (vllm, mlx). Unset: burnish's own.",
    )
    engine_args: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        (), description='Further options for the engine to start, e.g. ["--max-model-len", "8192"].'
    )
    models_preset: ExpandedPath | None = Field(
        None, description="llama.cpp as upstream: the file passed to llama-server with --models-preset."
    )
    data_dir: ExpandedPath = Field(
        default_factory=default_data_dir, description="Directory for the log, versions and jobs."
    )
    api_key: SecretStr | None = Field(
        None, description="Key that callers must send (Authorization: Bearer … or x-burnish-key)."
    )
    admin_key: SecretStr | None = Field(
        None,
        description="Key for everything that is neither inference nor feedback: steering, others' texts, erasing, "
        "import and export. Unset: on loopback everybody who may ask, on other hosts nobody.",
    )
    allow_management: bool = Field(
        False,
        description="Pass on Ollama's own routes that create, pull, push, copy and delete models. Only on loopback.",
    )
    allowed_hosts: tuple[str, ...] = Field((), description="Host names to accept besides those of loopback.")
    allowed_origins: tuple[str, ...] = Field(
        (), description='Web pages that may call, e.g. "http://localhost:3000".'
    )
    parts: tuple[ImportPath, ...] = Field(
        (),
        description='[Parts](parts.md) of your own, e.g. ["my_module:Part"] for the class Part in my_module.py beside '
        "this file. Only in the file: the environment can't set it.",
    )
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        (),
        description="Reverse proxies whose x-burnish-user is the truth, by address or network, e.g. "
        '["127.0.0.1"]. They must replace that header of every request. Unset: a name proves nothing.',
    )
    max_body_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, description="Largest request body of a completion."
    )
    connect_timeout_s: float = Field(
        10, gt=0, description="Time limit for the upstream to accept a connection."
    )
    first_byte_timeout_s: float = Field(600, gt=0, description="Time limit for the first byte of an answer.")
    idle_timeout_s: float = Field(300, gt=0, description="Longest pause within an answer.")
    total_timeout_s: float | None = Field(
        None, gt=0, description="Time limit for the whole request. Unset: no limit."
    )
    max_connections: int = Field(
        10_000, ge=1, description="Requests that one upstream server gets at a time; others wait in a queue."
    )
    queue_timeout_s: float = Field(60, gt=0, description="Longest wait in that queue.")
    request_timeout_s: float = Field(
        60,
        gt=0,
        description="Longest pause of a client within its request. A slow client gets this time for the whole request, "
        "plus a second per KiB.",
    )
    stop_timeout_s: int = Field(
        5,
        ge=0,
        description="How long answers under way may go on when burnish stops. A service gives them 75 s.",
    )
    owners: tuple[str, ...] = Field(
        (),
        description="Users who may type /rl train, /rl promote, /rl rollback, /rl reset, /rl on and /rl off: names in "
        "x-burnish-user, or `local` for requests without it. With an admin_key the request must send it, too. Unset: "
        "no users, but whoever sends the admin_key.",
    )
    instructions: bool = Field(
        False,
        description="Add a caller's comments on earlier answers to the system prompt, until a version has learnt them "
        "(burnish instructions).",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description='What burnish prints and writes to burnish.log in the data directory: "warning" and "error" leave '
        'out events such as the start of a run; "debug" adds a line for each request.',
    )
    chat: ChatConfig = ChatConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    log: LogConfig = LogConfig()
    capture: CaptureConfig = CaptureConfig()
    train: TrainConfig = TrainConfig()
    reward: RewardConfig = RewardConfig()
    signals: SignalsConfig = SignalsConfig()
    litellm: LitellmConfig = LitellmConfig()
    upstreams: dict[UpstreamName, UpstreamConfig] = Field({}, description="Further upstreams by name.")

    @property
    def log_file(self) -> Path:
        """The database with completions and feedback."""
        return self.data_dir / "burnish.db"

    @property
    def program_log(self) -> Path:
        """What burnish printed, and when. Older files end in .1, .2 …"""
        return self.data_dir / "burnish.log"

    @property
    def chat_history_file(self) -> Path:
        """What was typed in `burnish chat`."""
        return self.data_dir / "chat_history"

    @property
    def parts_dir(self) -> Path:
        """The events that parts have not taken yet."""
        return self.data_dir / "parts"

    @property
    def file(self) -> Path | None:
        """The configuration file; None if the settings come from elsewhere."""
        return self._file

    @property
    def server_file(self) -> Path:
        """Exists while burnish runs: {"url", "pid"}, for the commands."""
        return self.data_dir / "server.json"

    @property
    def upstream_urls(self) -> tuple[str, ...]:
        return tuple(self.upstream.split(",")) if self.upstream else ()

    @property
    def teachers(self) -> frozenset[str]:
        """The further upstreams whose answers teach the local model."""
        return frozenset(name for name, upstream in self.upstreams.items() if upstream.teaches)

    def with_local(self, local: Mapping[str | None, Local]) -> Config:
        """Return a copy that knows the processes that answer for upstreams, by table; None: for the main one."""
        copy = self.model_copy()
        copy._local = local
        return copy

    def local(self, table: str | None) -> Local | None:
        """Return the process that answers for the upstream of a table; None: for the main one."""
        return self._local.get(table)

    def check_unclaimed(self, model: str) -> None:
        """Raise ConfigError if a further upstream claims the main one's base model."""
        if fault := self._claimed(model) or self._claimed(f"{model}@base"):
            raise ConfigError(fault, param="upstreams")

    @property
    def upstream_is_ours(self) -> bool:
        """Whether ``upstream`` is an engine that burnish started: nobody can set that."""
        return self._upstream_is_ours

    def before_own(self, url: str, key: str | None, model: str, preset: Path | None) -> Config:
        """Return the configuration with an engine that burnish started as the upstream."""
        upstream: dict[str, Any] = {"upstream": url, "model": model, "models_preset": preset}
        upstream["upstream_api_key"] = SecretStr(key) if key else None
        copy = self.model_copy(update=upstream | {"engine": "auto", "engine_python": None, "engine_args": ()})
        copy._upstream_is_ours = True
        return copy

    @property
    def managed(self) -> ManagedKind | None:
        """The engine that burnish starts itself."""
        match self.engine:
            case "auto" | "none":
                return None
        return self.engine

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        if fault := next(self._faults(), None):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        if self.managed is None and (self.engine_args or self.engine_python):
            yield (
                "engine_args and engine_python need an engine that burnish starts: set engine (--engine) to vllm, "
                "mlx or llama-server"
            )
        if self.managed and self.upstream:
            yield (
                f"engine = {self.managed} starts an engine, and upstream {self.upstream} names one that runs "
                "already: leave one of them out"
            )
        if self.managed and self.models_preset:
            yield f"models_preset is for an upstream: leave it out with engine = {self.managed}"
        if self.managed == "llama-server" and self.engine_python:
            yield "llama-server needs no Python: leave engine_python out"
        for setting, wrong in (
            ("set api_key (BURNISH_API_KEY)", self.api_key is None),
            ("leave allow_management out", self.allow_management),
        ):
            if wrong and not is_loopback(self.host):
                yield f"other machines can reach host {self.host!r}: {setting}, or listen on 127.0.0.1"
        if self.api_key and self.api_key == self.admin_key:
            yield "admin_key must differ from api_key, which callers get"
        if self.upstream and self.model and self.model.startswith(OLLAMA):
            yield (
                f"model {self.model!r} is for the embedded engine: leave upstream out, or name a model that the "
                "upstream has"
            )
        if (self.upstream or self.managed) and (self.context or self.parallel):
            advice = (
                "leave them out, or leave upstream out; the upstream has its own settings for that"
                if self.upstream
                else f"with engine = {self.managed}, give its own options in engine_args"
            )
            yield f"context and parallel are for the embedded engine: {advice}"
        upstream = self.upstream or ""
        if upstream.startswith(LITELLM) and "/" not in upstream and not self.model:
            yield f"upstream {upstream!r} names no model: write {upstream}/MODEL, or set model"
        yield from self._shared_models()

    def _shared_models(self) -> Iterator[str]:
        for (name, upstream), (rival_name, rival) in combinations(self.upstreams.items(), 2):
            if shared := upstream.shared_with(rival):
                yield (
                    f"upstreams.{name} and upstreams.{rival_name} both claim the model {shared!r}: "
                    "take it out of one of them"
                )
        own = [DEFAULT_MODEL] + ([self.model] if self.model and self.upstream else [])
        yield from filter(None, map(self._claimed, own))

    def _claimed(self, model: str) -> str | None:
        for name, upstream in self.upstreams.items():
            if upstream.claims(model):
                return (
                    f"upstreams.{name} claims the model {model!r}, which the main upstream answers for: "
                    "take it out of its models"
                )
        return None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def config_file(file: Path | None, variables: Mapping[str, str]) -> Path:
    """Return the configuration file, which is named or need not exist. Raises ConfigError."""
    named = file or variables.get(ENV_PREFIX + "CONFIG")
    path = Path(named) if named else default_config_file()
    if named and not path.is_file():
        what = "is not a regular file: name another" if path.exists() else "does not exist: create it"
        raise ConfigError(f"the configuration file {path} {what}, or leave out --config")
    return path


def env_files(file: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the files of variables: the one beside the configuration file, and the one that is named; it wins.

    Never that of the current folder, which may be somebody else's repository. Raises ConfigError.
    """
    files = [file.with_name(ENV_FILE)]
    if named := variables.get(ENV_FILE_VARIABLE):
        if not Path(named).is_file():
            raise ConfigError(
                f"the file of variables {named} isn't there, or isn't a regular file: name another"
            )
        files.append(Path(named))
    return files


def server_url(file: Path | None = None) -> str | None:
    """Return BURNISH_URL, from the environment or a file of variables. Raises ConfigError."""
    if url := os.environ.get(URL_VARIABLE):
        return url
    files = env_files(config_file(file, os.environ), os.environ)
    given = [url for each in files if (url := variables_in(each).get(URL_VARIABLE))]
    return given[-1] if given else None


def load_config(
    flags: dict[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration; flags that are None were not given.

    ``environment`` stands for that of another process. Raises ConfigError, which names every wrong key, its value and
    the fix.
    """
    variables = os.environ if environment is None else environment
    path = config_file(file, variables)
    given = SettingSources(Config).read(path, env_files(path, variables), variables)
    merge(given, {key: value for key, value in (flags or {}).items() if value is not None})
    try:
        config = Config.model_validate(given)
    except ValidationError as error:
        raise ConfigError("the configuration is wrong:\n" + explain(error, Config)) from error
    config._file = path
    return config
