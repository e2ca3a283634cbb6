"""Settings as they are given: the file, then files of variables, then the environment, which wins. Misspelt names are
refused.

Environment names are ``BURNISH_`` + the key (``BURNISH_PORT``); keys of a table such as ``[train]`` take two
underscores (``BURNISH_TRAIN__MIN_RATINGS``, ``BURNISH_TRAIN__ADVANCED__ALPHA``), as do the names of tables such as
``[upstreams.cloud]`` (``BURNISH_UPSTREAMS__CLOUD__URL``). The file is TOML with the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

from burnish.proxy.http.errors import ConfigError
from burnish.system.regular import SETTINGS_BYTES, check_regular

ENV_PREFIX = "BURNISH_"
URL_VARIABLE = "BURNISH_URL"
"""The address of the burnish that commands talk to."""
OTHER_VARIABLES = frozenset(
    {"BURNISH_CONFIG", "BURNISH_ENV_FILE", URL_VARIABLE, "BURNISH_CACHE_DIR", "BURNISH_ANY_KEY"}
)
"""Read elsewhere, or set for an agent; they aren't settings."""
NOT_IN_ENV_FILES = frozenset({"host", "upstream", "url", "engine_args", "objective", "parts"})
"""Keys that lead elsewhere or run a program, like those of paths. Files of variables get copied and checked in."""
ONLY_IN_THE_FILE = frozenset({"parts"})
"""Keys that have burnish run a program of the user's."""
REMOVED = {
    "workers": "burnish answers in one process, and several brought no more throughput",
    "train.advanced.advantage_limit": "burnish always takes 3 standard deviations",
    "train.advanced.ema_decay": "burnish always takes .99",
    "train.advanced.max_grad_norm": "burnish always takes 1",
    "train.advanced.policy_samples": "burnish always takes 4 answers to a prompt",
    "train.advanced.round_prompts": "burnish always takes 16 prompts a round",
    "train.advanced.teacher_kept": "burnish always takes 2 replies for each comment",
    "train.advanced.teacher_samples": "burnish always takes 4 replies for each comment",
    "train.advanced.warm_epochs": "burnish always takes 2 passes",
}
"""Keys that are gone, and why. They are refused, because what somebody set must not be ignored in silence."""


class SettingSources:
    """Reads the settings of a schema, whose tables are models of their own. Raises ConfigError."""

    def __init__(self, schema: type[BaseModel]) -> None:
        self.tables: dict[str, type[BaseModel]] = {}
        """By their names in the file; those in a table are called "train.advanced"."""
        self.named: dict[str, type[BaseModel]] = {}
        """Tables of which there may be any number, each with a name: ``[upstreams.NAME]``."""
        self._kinds: dict[str, Any] = {}
        """Type of each setting: "port", "train.rank", "upstreams.*.url"."""
        self._declare(schema, "")

    def _declare(self, table: type[BaseModel], prefix: str) -> None:
        for name, field in table.model_fields.items():
            key, kind = f"{prefix}{name}", field.annotation
            self._kinds[key] = kind
            if _is_table(kind):
                self.tables[key] = kind
                self._declare(kind, f"{key}.")
            elif get_origin(kind) is dict and _is_table(of_each := get_args(kind)[1]):
                self.named[key] = of_each
                self._declare(of_each, f"{key}.*.")

    def read(self, file: Path, env_files: Sequence[Path], environment: Mapping[str, str]) -> dict[str, Any]:
        settings = self._from_file(file)
        for path in env_files:
            merge(settings, self._from_env_file(path))
        merge(settings, self._from_environment(environment))
        return settings

    def _from_file(self, path: Path) -> dict[str, Any]:
        if not path.is_file():
            return {}
        import tomllib  # only if there is a file: commands must start fast

        try:
            settings = tomllib.loads(_text(path))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
        self._check_names(settings, path)
        return settings

    def _check_names(self, table: dict[str, Any], path: Path, prefix: str = "") -> None:
        for name, setting in table.items():
            key = f"{prefix}{name}"
            if fault := removed(key):
                raise ConfigError(f"{path}: {fault}")
            if self._kind(key) is None:
                near, keys = self._nearest(key), ", ".join(self._keys(key))
                advice = f"did you mean {near!r}?" if near else f"the keys are: {keys}"
                raise ConfigError(f"{path}: unknown key {key!r}; {advice}")
            if isinstance(setting, dict) and self._inside(key):
                self._check_names(setting, path, f"{key}.")

    def _from_env_file(self, path: Path) -> dict[str, Any]:
        variables = variables_in(path)
        for name in variables:
            if self._steers(name.upper()):
                raise ConfigError(
                    f"{path} sets {name}, and a file of variables can't: that leads to another server, folder or "
                    "program. Write it into burnish's configuration file (config.toml)"
                )
        return self._from_environment(variables)

    def _steers(self, variable: str) -> bool:
        """Whether a variable leads burnish to another server or folder, or has it run a program."""
        if variable in OTHER_VARIABLES:
            return variable != URL_VARIABLE
        key = _key(variable)
        kinds = self._inside(key) | {key: self._kind(key)}
        return any(
            name.rpartition(".")[2] in NOT_IN_ENV_FILES or _is_path(kind) for name, kind in kinds.items()
        )

    def _from_environment(self, variables: Mapping[str, str | None]) -> dict[str, Any]:
        """Empty variables count as not set. Names unlike any setting belong to somebody else."""
        settings: dict[str, Any] = {}
        for name, text in sorted(variables.items(), key=lambda variable: variable[0].upper()):
            if not (text and name.upper().startswith(ENV_PREFIX)) or name.upper() in OTHER_VARIABLES:
                continue
            key = _key(name)
            *tables, last = key.split(".")
            if last in ONLY_IN_THE_FILE:
                raise ConfigError(
                    f"{name}: {last} runs a program, so it counts only in burnish's configuration file"
                )
            if fault := removed(key):
                raise ConfigError(f"{name}: {fault}")
            kind = self._kind(key)
            if kind is not None:
                setting: Any = _parsed(name, text) if _is_json(kind) else text
                merge(
                    settings, reduce(lambda inner, table: {table: inner}, reversed(tables), {last: setting})
                )
            elif near := self._nearest(key):
                right = ENV_PREFIX + near.upper().replace(".", "__")
                raise ConfigError(f"there is no setting {name}; did you mean {right}?")
        return settings

    def _kind(self, key: str) -> Any:
        """Return the type of a setting, or of an entry of one, such as "train.rater_weights.alice"; None: unknown."""
        declared = self._declared(key)
        if (kind := self._kinds.get(declared)) is not None:
            return kind
        whole = self._kinds.get(declared.rpartition(".")[0])
        return get_args(whole)[1] if get_origin(whole) is dict else None

    def _inside(self, key: str) -> dict[str, Any]:
        """Return the settings in a table."""
        prefix = f"{self._declared(key)}."
        return {name: kind for name, kind in self._kinds.items() if name.startswith(prefix)}

    def _declared(self, key: str) -> str:
        """Return a key with a star for the name of a table, such as "cloud" in "upstreams.cloud.url"."""
        table, *names = key.split(".")
        return ".".join((table, "*", *names[1:])) if table in self.named and names else key

    def _keys(self, like: str) -> Sequence[str]:
        """Return all keys; those of named tables with the name that is in ``like``."""
        name = "".join(like.split(".")[1:2])
        return [key.replace("*", name) for key in self._kinds if name or "*" not in key]

    def _nearest(self, key: str) -> str | None:
        from difflib import get_close_matches  # only for an error: commands must start fast

        return next(iter(get_close_matches(key, self._keys(key), n=1)), None)


def removed(key: str) -> str | None:
    """Return what to do about a key that is gone; None if it isn't one of those."""
    reason = REMOVED.get(key)
    return reason and f"there is no setting {key!r} any more: {reason}. Remove it"


def _key(variable: str) -> str:
    return variable[len(ENV_PREFIX) :].lower().replace("__", ".")


def _is_table(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_path(kind: Any) -> bool:
    return kind is Path or any(map(_is_path, get_args(kind)))


def _is_json(kind: Any) -> bool:
    if _is_table(kind) or get_origin(kind) in (tuple, dict):
        return True
    return get_origin(kind) in (Union, UnionType, Annotated) and any(map(_is_json, get_args(kind)))


def merge(into: dict[str, Any], additions: Mapping[str, Any]) -> None:
    """Add settings that win over those that are already there; tables are merged key by key."""
    for key, setting in additions.items():
        if isinstance(setting, dict) and isinstance(there := into.get(key), dict):
            merge(there, setting)
        else:
            into[key] = setting


def variables_in(path: Path) -> dict[str, str]:
    """Return burnish's variables in a file of lines NAME=value; {} if there is no file. Raises ConfigError."""
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # only if there is a file: commands must start fast

    variables = dotenv_values(stream=StringIO(_text(path)))
    return {name: text for name, text in variables.items() if text and name.upper().startswith(ENV_PREFIX)}


def _text(path: Path) -> str:
    try:
        check_regular(path, SETTINGS_BYTES)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it isn't UTF-8 ({error})") from error


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f'{name} must be JSON, such as ["box.lan"] for a list, not {text!r}') from error
