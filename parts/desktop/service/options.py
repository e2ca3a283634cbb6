"""The command that a service runs, made from settings, and read back from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.adapters.hosts.ollama_store import STORE
from burnish.config.config import Config, default_config_file, load_config
from burnish.config.settings import ENV_PREFIX, removed
from burnish.proxy.http.errors import ConfigError

CARRIED = (
    "BURNISH_CACHE_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT",
    STORE,
)  # fmt: skip
"""Variables of the shell that a service gets too: they say where burnish finds its files."""
OPTIONS = (
    "host", "port", "upstream", "model", "context", "parallel", "engine", "engine_python", "engine_args", "data_dir",
)  # fmt: skip
STOP_S = 75
"""How long answers under way may go on when a service stops: any login waits 90 s for its programs."""
END_S = 15
"""How long burnish needs to end after that."""
NO_TRAIN = "--no-train"


def command(flags: Mapping[str, Any], file: Path | None) -> list[str]:
    """Return the command with these options of ``burnish up``. Paths are made absolute."""
    line = [sys.executable, "-m", "burnish", "up"]
    for name in OPTIONS:
        if (setting := flags.get(name)) is not None:
            line += [f"--{name.replace('_', '-')}", str(_absolute(name, setting))]
    if not flags.get("train", {}).get("enabled", True):
        line.append(NO_TRAIN)
    return [*line, "--config", str(file.absolute())] if file else line


def read_back(line: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the flags and the configuration file of a command. Raises ConfigError for an option that is gone."""
    words = [word for word in line[line.index("up") + 1 :] if word != NO_TRAIN]
    flags: dict[str, Any] = {
        name[2:].replace("-", "_"): text for name, text in zip(words[::2], words[1::2], strict=True)
    }
    if fault := next(filter(None, map(removed, flags)), None):
        raise ConfigError(
            f"the service was installed with an option that is gone. {fault}: run `burnish service install` again, "
            "with your other options"
        )
    file = flags.pop("config", None)
    if NO_TRAIN in line:
        flags["train"] = {"enabled": False}
    return flags, Path(file) if file else None


def environment() -> dict[str, str]:
    """Return the variables that the service needs besides those of the login."""
    return {name: text for name in CARRIED if (text := os.environ.get(name))}


def settings(flags: Mapping[str, Any], file: Path | None) -> Config:
    """Return the configuration as the service will read it.

    Raises ConfigError if it is wrong, or if variables of this shell change it, which the service won't see.
    """
    shell_config = load_config(dict(flags), file=file)
    service_config = load_config(dict(flags), file=file, environment=environment())
    differ = [
        name
        for name in type(service_config).model_fields
        if getattr(service_config, name) != getattr(shell_config, name)
    ]
    if differ:
        variables = ", ".join(f"{ENV_PREFIX}{name.upper()}" for name in differ)
        raise ConfigError(
            f"this shell sets {variables}, and a service doesn't see that: give it as an option of "
            f"`burnish service install`, or write it into {file or default_config_file()}",
            param=differ[0],
        )
    if not service_config.port:
        raise ConfigError("a service needs a port of its own: give one with --port, e.g. 8787", param="port")
    return service_config


def _absolute(name: str, setting: Any) -> Any:
    # A model may also be a name, e.g. on the hub or in the upstream.
    is_path = name in ("data_dir", "engine_python") or (name == "model" and Path(setting).exists())
    return Path(setting).expanduser().absolute() if is_path else setting
