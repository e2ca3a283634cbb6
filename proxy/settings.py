"""Settings as they are given: the file, then ``.env``, then the environment, which wins. Misspelt names are refused.

Environment names are ``BURNISH_`` + the key (``BURNISH_PORT``); keys of a table such as ``[train]`` take two
underscores (``BURNISH_TRAIN__MIN_RATINGS``). The file is TOML with the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from io import StringIO
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from burnish.adapters.regular import SETTINGS_BYTES, check_regular
from burnish.proxy.errors import ConfigError

ENV_PREFIX = "BURNISH_"
OTHER_VARIABLES = frozenset({"BURNISH_CONFIG", "BURNISH_URL", "BURNISH_CACHE_DIR", "BURNISH_ANY_KEY"})
"""Read elsewhere, or set for an agent; they aren't settings."""
RENAMED = {"instant": "instructions"}
"""Old names of keys. They are refused with the new name instead of being ignored."""


class Sources:
    """Reads the settings of a schema, whose tables are models of their own. Raises ConfigError."""

    def __init__(self, schema: type[BaseModel]) -> None:
        self._keys = schema.model_fields
        self.tables: dict[str, type[BaseModel]] = {
            name: field.annotation
            for name, field in self._keys.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        }

    def read(self, file: Path, environment: Mapping[str, str], *, dotenv: bool = True) -> dict[str, Any]:
        given = self._from_file(file)
        if dotenv:
            merge(given, self._from_dotenv())
        merge(given, self._from_environment(environment))
        return given

    def _from_file(self, path: Path) -> dict[str, Any]:
        if not path.is_file():
            return {}
        import tomllib  # only if there is a file: commands must start fast

        try:
            found = tomllib.loads(_text(path))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
        for key, value in found.items():
            inner = value if key in self.tables and isinstance(value, dict) else {}
            for name in (key, *(f"{key}.{each}" for each in inner)):
                if fault := self._fault(name):
                    raise ConfigError(f"{path}: {fault}")
        return found

    def _from_dotenv(self) -> dict[str, Any]:
        path = Path(".env")
        if not path.is_file():
            return {}
        from dotenv import dotenv_values  # only if there is a file: commands must start fast

        return self._from_environment(dotenv_values(stream=StringIO(_text(path))))

    def _from_environment(self, variables: Mapping[str, str | None]) -> dict[str, Any]:
        """Empty variables count as not set. Names unlike any setting belong to somebody else."""
        found: dict[str, Any] = {}
        for name, text in sorted(variables.items(), key=lambda each: each[0].upper()):
            if not (text and name.upper().startswith(ENV_PREFIX)) or name.upper() in OTHER_VARIABLES:
                continue
            *tables, key = name[len(ENV_PREFIX) :].lower().split("__")
            if not self._is_known(*tables, key):
                self._refuse_if_misspelt(name, ".".join((*tables, key)))
                continue
            value: Any = _parsed(name, text) if self._is_json(tables, key) else text
            merge(found, reduce(lambda inner, table: {table: inner}, reversed(tables), {key: value}))
        return found

    def _is_known(self, first: str, *rest: str) -> bool:
        inner = self.tables.get(first)
        return first in self._keys and not (rest and inner and rest[0] not in inner.model_fields)

    def _refuse_if_misspelt(self, variable: str, key: str) -> None:
        if new := RENAMED.get(key):
            raise ConfigError(f"{variable}: the key {key!r} is now called {new!r}: rename it")
        if near := self._nearest(key):
            right = ENV_PREFIX + near.upper().replace(".", "__")
            raise ConfigError(f"there is no setting {variable}; did you mean {right}?")

    def _fault(self, key: str) -> str | None:
        """Return what to do about a key of the file, such as "train.seeed"; None if there is such a key."""
        if self._is_known(*key.split(".")):
            return None
        if new := RENAMED.get(key):
            return f"the key {key!r} is now called {new!r}: rename it"
        near = self._nearest(key)
        advice = f"did you mean {near!r}?" if near else f"the keys are: {', '.join(self._names())}"
        return f"unknown key {key!r}; {advice}"

    def _names(self) -> Sequence[str]:
        inner = (f"{table}.{key}" for table, model in self.tables.items() for key in model.model_fields)
        return [*self._keys, *inner]

    def _nearest(self, key: str) -> str | None:
        from difflib import get_close_matches  # only for an error: commands must start fast

        return next(iter(get_close_matches(key, self._names(), n=1)), None)

    def _is_json(self, tables: Sequence[str], key: str) -> bool:
        keys = self.tables[tables[-1]].model_fields if tables and tables[-1] in self.tables else self._keys
        return key in self.tables or (key in keys and get_origin(keys[key].annotation) in (tuple, dict))


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add settings that win over those that are already there; tables are merged key by key."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(there := into.get(key), dict):
            merge(there, value)
        else:
            into[key] = value


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
