"""The formats of settings: text in, text out, with everything that is not ours left as it was written."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import tomlkit

from burnish.proxy.agents import json_text
from burnish.proxy.agents.json_text import Path


class Format(Protocol):
    """How settings are written."""

    name: ClassVar[str]

    def parse(self, text: str) -> dict[str, Any]:
        """Return what a file says; an empty one says nothing. Raises ValueError."""
        ...

    def put(self, text: str, path: Path, value: Any) -> str:
        """Set a key; tables that are not there are made. Raises ValueError where something else stands there."""
        ...

    def remove(self, text: str, path: Path) -> str:
        """Take out a key; one that is not there stays away."""
        ...


class Json:
    """JSON without comments."""

    name: ClassVar[str] = "JSON"

    def parse(self, text: str) -> dict[str, Any]:
        """Return what a file says; an empty one says nothing. Raises ValueError."""
        return json_text.parse(text)

    def put(self, text: str, path: Path, value: Any) -> str:
        """Set a key, or an element at END. Raises ValueError where something else stands there."""
        return json_text.put(text, path, value)

    def remove(self, text: str, path: Path) -> str:
        """Take out a key or an element; one that is not there stays away."""
        return json_text.remove(text, path)


class Toml:
    """TOML, comments and all."""

    name: ClassVar[str] = "TOML"

    def parse(self, text: str) -> dict[str, Any]:
        """Return what a file says; an empty one says nothing. Raises ValueError."""
        return tomlkit.parse(text).unwrap()

    def put(self, text: str, path: Path, value: Any) -> str:
        """Set a key; tables that are not there are made. Raises ValueError where something else stands there."""
        document = tomlkit.parse(text)
        table: Any = document
        *tables, key = path
        for depth, name in enumerate(tables):
            if name not in table:
                table[name] = tomlkit.table(is_super_table=depth + 1 < len(tables))
            table = table[name]
            if not isinstance(table, dict):
                raise ValueError(f"{'.'.join(map(str, path[: depth + 1]))} isn't a table")
        table[key] = value
        return tomlkit.dumps(document)

    def remove(self, text: str, path: Path) -> str:
        """Take out a key; one that is not there stays away."""
        document = tomlkit.parse(text)
        table: Any = document
        *tables, key = path
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict) and key in table:
            del table[key]
        return tomlkit.dumps(document)
