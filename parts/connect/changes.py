"""Kinds of changes (entries in settings, files of burnish), and how to make and undo each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from burnish.parts.connect.base import Keys
from burnish.parts.connect.merging import (
    Entries,
    Format,
    Json,
    Toml,
    units_of,
    with_entries,
    without_entries,
)
from burnish.parts.connect.yaml_items import YamlItem, without_item


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
