"""What an agent is to burnish: the files that decide where it asks, and what they must say."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

Keys = tuple[str | int, ...]
"""A way through settings."""
OPENAI_KEY = "OPENAI_API_KEY"
"""Where most agents look for the key of what answers."""
BURNISH_KEY = "BURNISH_API_KEY"
"""Where burnish's own commands look for the key of burnish."""


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
        """Return the folder or file that a variable names, else one below the home folder (unless it is absolute)."""
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
        """How it is taken back: a key of ``KINDS``."""
        ...

    @property
    def units(self) -> Collection[Keys]:
        """Tables of settings that are all ours."""
        ...

    def made(self, text: str | None) -> str:
        """Return the file's text with the change; None: there is no file. Raises ValueError."""
        ...


class Agent(Protocol):
    """A program that asks models."""

    name: ClassVar[str]
    """As people type it."""
    title: ClassVar[str]
    rating: ClassVar[str]
    """How an answer is rated in it."""
    own_key: ClassVar[str] = f"{OPENAI_KEY} where it runs"
    """Whence it takes a key of its own."""

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Return what must change so that it asks burnish; nothing where that can only be done by hand."""
        return ()

    def by_hand(self, place: Place) -> str:
        """Return what a person has to do besides, or instead; "" where nothing is left."""
        return f"It brings its own key: {self.own_key}" if place.own_credentials else ""
