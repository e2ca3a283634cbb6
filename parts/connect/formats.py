"""The formats of settings: text in, text out; everything that isn't ours stays as it was written."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import tomlkit

from burnish.parts.connect import json_text
from burnish.parts.connect.json_text import Path


class Format(Protocol):
    name: ClassVar[str]

    def parse(self, text: str) -> dict[str, Any]:
        """Parse a file; an empty one has no settings. Raises ValueError."""
        ...

    def put(self, text: str, path: Path, content: Any) -> str:
        """Set a key, and make missing tables. Raises ValueError if something else is there."""
        ...

    def remove(self, text: str, path: Path) -> str:
        """Remove a key, if it is there."""
        ...


class Json:
    """JSON without comments. A path may end with an index, or END."""

    name: ClassVar[str] = "JSON"
    parse = staticmethod(json_text.parse)
    put = staticmethod(json_text.put)
    remove = staticmethod(json_text.remove)


class Toml:
    """TOML, comments and all."""

    name: ClassVar[str] = "TOML"

    def parse(self, text: str) -> dict[str, Any]:
        return tomlkit.parse(text).unwrap()

    def put(self, text: str, path: Path, content: Any) -> str:
        document = tomlkit.parse(text)
        table: Any = document
        *tables, key = path
        for depth, name in enumerate(tables):
            if name not in table:
                table[name] = tomlkit.table(is_super_table=depth + 1 < len(tables))
            table = table[name]
            if not isinstance(table, dict):
                raise ValueError(f"{'.'.join(map(str, path[: depth + 1]))} isn't a table")
        table[key] = content
        return tomlkit.dumps(document)

    def remove(self, text: str, path: Path) -> str:
        document = tomlkit.parse(text)
        table: Any = document
        *tables, key = path
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict) and key in table:
            del table[key]
        return tomlkit.dumps(document)
