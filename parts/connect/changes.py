"""Changes of settings files, and how to make and undo each; the rest stays as it was written. Pure.

Undoing is a three-way merge of the settings before our change, after it, and now. An entry gets its old value back
only if it is unchanged since. A *unit* is a table that belongs to us, such as a provider. It is removed as a whole,
with everything that the agent wrote into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import tomlkit

from burnish.parts.connect import json_text
from burnish.parts.connect.base import Keys
from burnish.parts.connect.json_text import END
from burnish.parts.connect.yaml_items import YamlItem, without_item

Entries = Sequence[tuple[Keys, Any]]
"""Paths and values to set. A path that ends in END adds an element to a list."""
NOTHING = object()
"""Marks a missing value."""


class Format(Protocol):
    name: ClassVar[str]

    def parse(self, text: str) -> dict[str, Any]:
        """Parse a file; an empty one has no settings. Raises ValueError."""
        ...

    def put(self, text: str, path: Keys, content: Any) -> str:
        """Set a key, and make missing tables. Raises ValueError if something else is there."""
        ...

    def remove(self, text: str, path: Keys) -> str:
        """Remove a key, if it is there."""
        ...


class Json:
    """JSON, comments and all. A path may end with an index, or END."""

    name: ClassVar[str] = "JSON"
    parse = staticmethod(json_text.parse)
    put = staticmethod(json_text.put)
    remove = staticmethod(json_text.remove)


class Toml:
    """TOML, comments and all."""

    name: ClassVar[str] = "TOML"

    def parse(self, text: str) -> dict[str, Any]:
        return tomlkit.parse(text).unwrap()

    def put(self, text: str, path: Keys, content: Any) -> str:
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

    def remove(self, text: str, path: Keys) -> str:
        document = tomlkit.parse(text)
        table: Any = document
        *tables, key = path
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict) and key in table:
            del table[key]
        return tomlkit.dumps(document)


class Difference(NamedTuple):
    path: Keys
    old: Any
    """NOTHING: it wasn't there."""
    new: Any
    """NOTHING: it is gone, because a table of ours replaced the one that it was in."""


def with_entries(how: Format, text: str, entries: Entries) -> str:
    """Add entries to settings. Raises ValueError if that isn't possible."""
    target = how.parse(text)
    new = text
    for path, content in entries:
        if path[-1] == END and isinstance(there := at(target, path[:-1]), list) and content in there:
            continue
        new = how.put(new, path, content)
        _set(target, path, content)
    if how.parse(new) != target:
        raise ValueError("burnish can't safely change a file that is written like this")
    return new


def units_of(entries: Entries) -> frozenset[Keys]:
    return frozenset(path for path, content in entries if isinstance(content, dict) and path[-1] != END)


def without_entries(
    how: Format, text: str, old_text: str, new_text: str, units: Collection[Keys] = frozenset()
) -> str:
    """Undo in ``text`` the change from ``old_text`` to ``new_text``. Raises ValueError."""
    for path, old, new in differences(how.parse(old_text), how.parse(new_text), units):
        content = at(how.parse(text), path[:-1] if path[-1] == END else path)
        if path[-1] == END:
            if isinstance(content, list) and new in content:
                text = how.remove(text, (*path[:-1], content.index(new)))
        elif content == new or (path in units and _holds(content, new)):
            text = how.remove(text, path) if old is NOTHING else how.put(text, path, old)
    how.parse(text)
    return text


def differences(
    old_settings: Mapping[str, Any], new_settings: Mapping[str, Any], units: Collection[Keys], path: Keys = ()
) -> Iterator[Difference]:
    """Yield the differences: a unit comes before its contents, any other new container after them."""
    for key, new in new_settings.items():
        inner_path, old = (*path, key), old_settings.get(key, NOTHING)
        is_new = old is NOTHING
        if inner_path in units and old != new:
            yield Difference(inner_path, old, new)
        if isinstance(new, dict) and (is_new or isinstance(old, dict)):
            yield from differences({} if is_new else old, new, units, inner_path)
        elif isinstance(new, list) and (is_new or (isinstance(old, list) and new[: len(old)] == old)):
            yield from (
                Difference((*inner_path, END), NOTHING, element)
                for element in new[0 if is_new else len(old) :]
            )
        elif old != new:
            yield Difference(inner_path, old, new)
            continue
        if is_new:
            yield Difference(inner_path, NOTHING, type(new)())
    yield from (
        Difference((*path, key), old, NOTHING) for key, old in old_settings.items() if key not in new_settings
    )


def _holds(content: Any, new: Any) -> bool:
    """Return True if all our values are still there; additions don't matter."""
    if isinstance(content, dict) and isinstance(new, dict) and new:
        return all(key in content and _holds(content[key], new_member) for key, new_member in new.items())
    return bool(content == new)


def at(settings: Any, path: Keys) -> Any:
    """Return the value at a path; NOTHING if there is none."""
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return NOTHING
        settings = settings[key]
    return settings


def _set(settings: dict[str, Any], path: Keys, content: Any) -> None:
    """Like ``put``, but on parsed settings."""
    node: Any = settings
    for key, inner in pairwise(path):
        node = node.setdefault(key, [] if inner == END else {})
    if path[-1] == END:
        node.append(deepcopy(content))
    else:
        node[path[-1]] = deepcopy(content)


# -- kinds of changes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingsChange:
    path: Path
    format: Format
    entries: Entries

    @property
    def kind(self) -> str:
        return self.format.name

    @property
    def units(self) -> Collection[Keys]:
        return units_of(self.entries)

    def made(self, text: str | None) -> str:
        return with_entries(self.format, text or "", self.entries)


@dataclass(frozen=True, slots=True)
class OwnFile:
    path: Path
    text: str
    kind: ClassVar[str] = "file"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        """Raises ValueError if the file has another content."""
        if text not in (None, self.text):
            raise ValueError("a file of another program has this name")
        return self.text


@dataclass(frozen=True, slots=True)
class Scratch:
    """A file that a plugin of burnish writes; undoing deletes it, whatever its content."""

    path: Path
    kind: ClassVar[str] = "scratch"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        return text or ""


Undo = Callable[[str, str, str, Collection[Keys]], str]
"""(text now, text before, text after our change, our tables) → text without our change. Raises ValueError."""


def _file(text: str, old: str, new: str, units: Collection[Keys]) -> str:
    raise ValueError("the file was changed since; delete it by hand if you don't need it")


KINDS: Mapping[str, Undo] = {
    Json.name: partial(without_entries, Json()),
    Toml.name: partial(without_entries, Toml()),
    YamlItem.kind: lambda text, old, new, units: without_item(text, old, new),
    OwnFile.kind: _file,
    Scratch.kind: lambda text, old, new, units: "",
}
"""How to undo each kind of change in a file that was changed since."""
