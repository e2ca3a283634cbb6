"""What an agent is to burnish: the files that decide where it asks, and what they must say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from burnish.proxy.agents.formats import Format
from burnish.proxy.agents.merging import Entries, with_entries

KEY_HEADER = "x-burnish-key"


@dataclass(frozen=True, slots=True)
class Place:
    """Where burnish is, and what an agent is to ask there."""

    url: str
    """Its root, without a slash at the end."""
    model: str = "default"
    renames: bool = True
    """Whether the agent must ask for ``model``, since what answers knows none of the names that it uses by itself."""
    own_credentials: bool = False
    """Whether the agent must bring a key for what answers; else none is needed, or burnish has one."""
    key: str | None = None
    """burnish's own api_key, where it wants one."""
    hook: str = "burnish hook"
    """The shell command that carries out ``/rl``."""

    @property
    def api(self) -> str:
        """The root of its OpenAI-compatible API."""
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Home:
    """Where a person's files are."""

    path: Path = field(default_factory=Path.home)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def named(self, variable: str, default: str) -> Path:
        """Return the folder or file that a variable names, else one below the home folder."""
        value = self.env.get(variable)
        return Path(value).expanduser() if value else self.path / default

    def config(self, name: str) -> Path:
        """Return a program's folder below ``XDG_CONFIG_HOME``."""
        return self.named("XDG_CONFIG_HOME", ".config") / name


class Change(Protocol):
    """What is to become of one file."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def kind(self) -> str:
        """How it is taken back; see ``taking_back``."""
        ...

    def made(self, text: str | None) -> str:
        """Return the file's text with the change; None: there is no file. Raises ValueError."""
        ...


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

    def made(self, text: str | None) -> str:
        """Return the settings with our entries. Raises ValueError."""
        return with_entries(self.format, text or "", self.entries)


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that is all ours."""

    path: Path
    text: str
    kind: ClassVar[str] = "file"

    def made(self, text: str | None) -> str:
        """Return our text. Raises ValueError where somebody else's stands."""
        if text not in (None, self.text):
            raise ValueError("somebody else's file has this name")
        return self.text


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of our own at the end of a file."""

    path: Path
    lines: str
    kind: ClassVar[str] = "lines"

    def made(self, text: str | None) -> str:
        """Return the file with our lines at its end."""
        text = text or ""
        return text + ("\n" if text and not text.endswith("\n") else "") + self.lines


class Agent(Protocol):
    """A program that asks models."""

    name: ClassVar[str]
    """As people type it."""
    title: ClassVar[str]
    rating: ClassVar[str]
    """How an answer is rated in it."""

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Return what must change so that it asks burnish; nothing where that can only be done by hand."""
        ...

    def by_hand(self, place: Place) -> str:
        """Return what a person has to do besides, or instead; "" where nothing is left."""
        ...
