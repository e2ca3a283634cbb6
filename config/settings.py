"""Settings as they are given: the file, then files of variables, then the environment, which wins. Misspelt names are
refused.

Environment names are ``BURNISH_`` + the key (``BURNISH_PORT``); keys of a table such as ``[train]`` take two
underscores (``BURNISH_TRAIN__MIN_RATINGS``, ``BURNISH_TRAIN__ADVANCED__ALPHA``), as do the names of tables such as
``[upstreams.cloud]`` (``BURNISH_UPSTREAMS__CLOUD__URL``). The file is TOML with the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from burnish.config.setting_faults import REMOVED
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
RENAMED = {"instant": "instructions"}
"""Old names of keys. They are refused with the new name instead of being ignored."""


class SettingSources:
    """Reads the settings of a schema, whose tables are models of their own. Raises ConfigError."""

    def __init__(self, schema: type[BaseModel]) -> None:
        self._keys = schema.model_fields
        self.tables: dict[str, type[BaseModel]] = {}
        """By their names in the file; those in a table are called "train.advanced"."""
        self.named: dict[str, type[BaseModel]] = {}
        """Tables of which there may be any number, each with a name: ``[upstreams.NAME]``."""
        for name, field in self._keys.items():
            kind, of_each = field.annotation, get_args(field.annotation)[-1:]
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                self._add_table(name, kind)
            elif (
                get_origin(kind) is dict
                and isinstance(of_each[0], type)
                and issubclass(of_each[0], BaseModel)
            ):
                self.named[name] = of_each[0]

    def _add_table(self, path: str, kind: type[BaseModel]) -> None:
        self.tables[path] = kind
        for name, field in kind.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                self._add_table(f"{path}.{name}", inner)

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
        for key, setting in settings.items():
            for name in (key, *self._inside(key, setting)):
                if fault := self._fault(name):
                    raise ConfigError(f"{path}: {fault}")
        return settings

    def _inside(self, key: str, table: Any) -> Iterator[str]:
        """Yield the keys in a table of the file."""
        if (key in self.tables or key in self.named) and isinstance(table, dict):
            for inner_key, inner in table.items():
                yield f"{key}.{inner_key}"
                if f"{key}.{inner_key}" in self.tables:
                    yield from self._inside(f"{key}.{inner_key}", inner)
                if key in self.named and isinstance(inner, dict):
                    yield from (f"{key}.{inner_key}.{name}" for name in inner)

    def _from_env_file(self, path: Path) -> dict[str, Any]:
        variables = variables_in(path)
        for name in variables:
            if self._steers(name.upper()):
                raise ConfigError(
                    f"{path} sets {name}, and a file of variables can't: that leads to another server, folder or "
                    "program. Write it into burnish's configuration file (config.toml)"
                )
        return self._from_environment(variables)

    def _steers(self, name: str) -> bool:
        """Whether a variable leads burnish to another server or folder, or has it run a program."""
        if name in OTHER_VARIABLES:
            return name != URL_VARIABLE
        parts = name.removeprefix(ENV_PREFIX).lower().split("__")
        if parts[-1] in NOT_IN_ENV_FILES:
            return True
        keys, (key, *_) = self._keys_of(parts)
        return key in keys and _is_path(keys[key].annotation)

    def _from_environment(self, variables: Mapping[str, str | None]) -> dict[str, Any]:
        """Empty variables count as not set. Names unlike any setting belong to somebody else."""
        settings: dict[str, Any] = {}
        for name, text in sorted(variables.items(), key=lambda variable: variable[0].upper()):
            if not (text and name.upper().startswith(ENV_PREFIX)) or name.upper() in OTHER_VARIABLES:
                continue
            *tables, key = name[len(ENV_PREFIX) :].lower().split("__")
            if key in ONLY_IN_THE_FILE:
                raise ConfigError(
                    f"{name}: {key} runs a program, so it counts only in burnish's configuration file"
                )
            if not self._is_known(*tables, key):
                self._refuse_if_misspelt(name, ".".join((*tables, key)))
                continue
            setting: Any = _parsed(name, text) if self._is_json(tables, key) else text
            merge(settings, reduce(lambda inner, table: {table: inner}, reversed(tables), {key: setting}))
        return settings

    def _is_known(self, first: str, *names: str) -> bool:
        if first in self.named:
            *_, key = "", *names[1:2]
            return not key or key in self.named[first].model_fields
        keys, (key, *_) = self._keys_of((first, *names))
        return not key or key in keys

    def _keys_of(self, parts: Sequence[str]) -> tuple[Mapping[str, FieldInfo], Sequence[str]]:
        """Return the keys of the innermost table that a name leads into, and the rest of the name ("" at its end)."""
        for cut in range(len(parts), 0, -1):
            if table := self.tables.get(".".join(parts[:cut])):
                return table.model_fields, (*parts[cut:], "")
        return self._keys, (*parts, "") if len(parts) == 1 else (".".join(parts), "")

    def _refuse_if_misspelt(self, variable: str, key: str) -> None:
        if fault := withdrawn(key):
            raise ConfigError(f"{variable}: {fault}")
        if near := self._nearest(key):
            right = ENV_PREFIX + near.upper().replace(".", "__")
            raise ConfigError(f"there is no setting {variable}; did you mean {right}?")

    def _fault(self, key: str) -> str | None:
        """Return what to do about a key of the file, such as "train.seeed"; None if there is such a key."""
        if self._is_known(*key.split(".")):
            return None
        if fault := withdrawn(key):
            return fault
        near, names = self._nearest(key), ", ".join(self._names(key))
        advice = f"did you mean {near!r}?" if near else f"the keys are: {names}"
        return f"unknown key {key!r}; {advice}"

    def _names(self, key: str) -> Sequence[str]:
        """Return all keys; those of named tables with the name that is in ``key``."""
        inner = [f"{table}.{field}" for table, model in self.tables.items() for field in model.model_fields]
        names = key.split(".")[1:2]
        inner += [
            f"{table}.{name}.{field}"
            for table, model in self.named.items()
            for name in names
            for field in model.model_fields
        ]
        return [*self._keys, *inner]

    def _nearest(self, key: str) -> str | None:
        from difflib import get_close_matches  # only for an error: commands must start fast

        return next(iter(get_close_matches(key, self._names(key), n=1)), None)

    def _is_json(self, tables: Sequence[str], key: str) -> bool:
        if ".".join((*tables, key)) in self.tables:
            return True
        if tables and tables[0] in self.named:
            keys: Mapping[str, FieldInfo] = self.named[tables[0]].model_fields
        else:
            keys, _ = self._keys_of((*tables, key))
        return key in keys and _is_list_or_table(keys[key].annotation)


def withdrawn(key: str) -> str | None:
    """Return what to do about a key of an earlier burnish; None if there was none."""
    if new := RENAMED.get(key):
        return f"the key {key!r} is now called {new!r}: rename it"
    if reason := REMOVED.get(key):
        return f"there is no setting {key!r} any more: {reason}. Remove it"
    return None


def _is_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_is_path, get_args(annotation)))


def _is_list_or_table(annotation: Any) -> bool:
    kind = get_origin(annotation)
    if kind in (tuple, dict):
        return True
    return kind in (Union, UnionType, Annotated) and any(map(_is_list_or_table, get_args(annotation)))


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
