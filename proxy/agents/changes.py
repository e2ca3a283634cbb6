"""Kinds of changes: entries in settings, and files that are all ours. How each is made, and taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from burnish.proxy.agents.base import Keys
from burnish.proxy.agents.formats import Format, Json, Toml
from burnish.proxy.agents.merging import Entries, units_of, with_entries, without_entries
from burnish.proxy.agents.yaml_items import YamlItem, without_item


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that are to say our entries as well."""

    path: Path
    format: Format
    entries: Entries

    @property
    def kind(self) -> str:
        """The format's name."""
        return self.format.name

    @property
    def units(self) -> Collection[Keys]:
        """The tables among the entries."""
        return units_of(self.entries)

    def made(self, text: str | None) -> str:
        """Return the settings with our entries. Raises ValueError."""
        return with_entries(self.format, text or "", self.entries)


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that is all ours."""

    path: Path
    text: str
    kind: ClassVar[str] = "file"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        """Return our text. Raises ValueError where somebody else's stands."""
        if text not in (None, self.text):
            raise ValueError("somebody else's file has this name")
        return self.text


@dataclass(frozen=True, slots=True)
class Scratch:
    """A file for a program of ours to write into: whatever it says, it goes."""

    path: Path
    kind: ClassVar[str] = "scratch"
    units: ClassVar[Collection[Keys]] = ()

    def made(self, text: str | None) -> str:
        """Return what it says already."""
        return text or ""


TakeBack = Callable[[str, str, str, Collection[Keys]], str]
"""From a file's text as it is now, as it was before, as we made it, and our tables: its text without ours. Raises
ValueError."""


def _settings(how: Format) -> TakeBack:
    return lambda now, before, after, units: without_entries(how, now, before, after, units)


def _item(now: str, before: str, after: str, units: Collection[Keys]) -> str:
    return without_item(now, before, after)


def _nothing(now: str, before: str, after: str, units: Collection[Keys]) -> str:
    return ""


def _file(now: str, before: str, after: str, units: Collection[Keys]) -> str:
    raise ValueError("somebody changed it since; delete it by hand if it is not needed")


KINDS: Mapping[str, TakeBack] = {
    Json.name: _settings(Json()),
    Toml.name: _settings(Toml()),
    YamlItem.kind: _item,
    OwnFile.kind: _file,
    Scratch.kind: _nothing,
}
"""How changes are taken back where the file was changed since."""
