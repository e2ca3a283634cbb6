"""The interface of an agent: the settings that make it use burnish."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Literal, Protocol
from urllib.parse import urlsplit

Mode = Literal["prompt", "reactions", "command"]
Keys = tuple[str | int, ...]
"""A path through nested settings."""
OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variable in which most agents look for the upstream's key."""
BURNISH_KEY = "BURNISH_API_KEY"
"""Environment variable in which burnish's commands look for burnish's key."""


@dataclass(frozen=True, slots=True)
class Place:
    """The settings that an agent needs in order to use burnish."""

    url: str
    """Root of burnish, without a trailing slash."""
    model: str = "default"
    renames: bool = True
    """Whether the agent must request ``model``, because the upstream doesn't know the agent's default models."""
    own_credentials: bool = False
    """Whether the agent must send the upstream's key itself, because burnish has none."""
    key: str | None = None
    """burnish's api_key, if one is set."""
    hook: str = "burnish hook"
    """The shell command that runs ``/rl`` commands."""
    mode: Mode = "reactions"
    """The setting ``feedback.mode``."""

    @property
    def api(self) -> str:
        """Root of the OpenAI-compatible API."""
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Home:
    """The user's home directory and environment."""

    path: Path = field(default_factory=Path.home)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def named(self, variable: str, default: str) -> Path:
        """Return the path in a variable, else ``default``, relative to the home directory."""
        value = self.env.get(variable)
        return Path(value).expanduser() if value else self.path / default

    def config(self, name: str) -> Path:
        """Return a program's directory in ``XDG_CONFIG_HOME``."""
        return self.named("XDG_CONFIG_HOME", ".config") / name


class Change(Protocol):
    """A change of one file."""

    @property
    def path(self) -> Path: ...

    @property
    def kind(self) -> str:
        """How to undo it: a key of ``KINDS``."""
        ...

    @property
    def units(self) -> Collection[Keys]:
        """Tables of settings that belong to burnish as a whole."""
        ...

    def made(self, text: str | None) -> str:
        """Apply the change to the text of the file (None: no file). Raises ValueError."""
        ...


class Remote(Protocol):
    """A running agent whose settings are changed by its API."""

    def connect(self, place: Place) -> Sequence[str]:
        """Connect it, or update an earlier connection; return what was done. Raises ConfigError."""
        ...

    def disconnect(self, api: str) -> Sequence[str]:
        """Undo it. ``api``: the root of burnish's API when it was connected. Raises ConfigError."""
        ...


class Agent(Protocol):
    """A program that uses models."""

    name: ClassVar[str]
    """Name on the command line."""
    title: ClassVar[str]
    program: ClassVar[str]
    """Its command in a shell."""
    rating: ClassVar[str]
    """The text that rates an answer in this agent."""
    choice: ClassVar[str] = ""
    """What it shows after an answer if ``feedback.mode`` is "prompt"; "": it can't show a choice."""
    sends_tokens: ClassVar[int] = 20_000
    """About how long its first request is, with its tools: an estimate, since versions differ."""
    own_key: ClassVar[str] = f"{OPENAI_KEY} in its environment"
    """Where the agent gets its own key from."""

    imports: ClassVar[bool] = False
    """Whether the user must import the written files in the agent, so that they connect nothing by themselves."""
    key_help: ClassVar[str] = ""
    """How to give the key for its API."""

    def changes(self, place: Place, home: Home) -> Sequence[Change]:
        """Return the changes that make the agent use burnish; none if the user must make them by hand."""
        return ()

    def remote(self, home: Home) -> Remote | None:
        """Return the running agent, if it has an API for its settings and the user gave a key for it."""
        return None

    def installed(self, home: Home) -> bool:
        """Return True if its command or its folder of settings is there."""
        if shutil.which(self.program, path=home.env.get("PATH", "")):
            return True
        settings = self.changes(Place(""), home)[:1]
        return any(change.path.parent.is_dir() for change in settings)

    def by_hand(self, place: Place) -> str:
        """Return instructions for the steps that the user must do by hand; "" if there are none."""
        return f"It uses its own key: {self.own_key}" if place.own_credentials else ""


EMBEDDED = "embedded:"
"""How the embedded engine is named as an upstream; the model follows."""
OWN_SUFFIXES = (".local", ".lan", ".internal", ".home.arpa")


def is_own(upstream: str) -> bool:
    """Return True for an upstream on this machine or its network: it has no vendor models and needs no key."""
    if upstream.startswith(EMBEDDED):
        return True
    host = urlsplit(upstream.partition(",")[0]).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(OWN_SUFFIXES)
