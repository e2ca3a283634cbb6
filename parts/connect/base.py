"""The interface of an agent: the settings that make it use burnish."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

from burnish.proxy.client_headers import ANY_KEY, KEY_HEADER

Mode = Literal["prompt", "reactions", "command"]
Keys = tuple[str | int, ...]
"""A path through nested settings."""
OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variable in which most agents look for the upstream's key."""
IN_ENVIRONMENT = f"{OPENAI_KEY} in its environment"
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
    window: int | None = None
    """Tokens that the engine takes for ``model``; None: it doesn't tell."""

    @property
    def api(self) -> str:
        """Root of the OpenAI-compatible API."""
        return f"{self.url}/v1"

    @property
    def token(self) -> str:
        """Return burnish's key, or a placeholder for agents that require one."""
        return self.key or ANY_KEY

    @property
    def headers(self) -> dict[str, str]:
        """Headers with burnish's key, if the agent sends the upstream's key in the usual place."""
        return {KEY_HEADER: self.key} if self.own_credentials and self.key else {}


@dataclass(frozen=True, slots=True)
class Home:
    path: Path = field(default_factory=Path.home)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def named(self, variable: str, default: str) -> Path:
        """Return the path in a variable, else ``default``, relative to the home directory."""
        path = self.env.get(variable)
        return Path(path).expanduser().absolute() if path else self.path / default

    def config(self, name: str) -> Path:
        """Return a program's directory in ``XDG_CONFIG_HOME``."""
        return self.named("XDG_CONFIG_HOME", ".config") / name


class FileChange(Protocol):
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


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    """Name on the command line."""
    title: str
    program: str
    """Its command in a shell."""
    changes: Callable[[Place, Home], Sequence[FileChange]] = lambda place, home: ()
    """The changes that make it use burnish; none if the user must make them by hand."""
    overrides: Callable[[Place, Home], Sequence[str]] = lambda place, home: ()
    """Which settings of the user's own still send it elsewhere, in words."""
    rating: str = "/rl good"
    """The text that rates an answer in this agent."""
    choice: str = ""
    """What it shows after an answer if ``feedback.mode`` is "prompt"; "": it can't show a choice."""
    sends_tokens: int = 20_000
    """About how long its first request is, with its tools: an estimate, since versions differ."""
    own_key: str = IN_ENVIRONMENT
    """Where the agent gets its own key from; "": ``steps`` say it."""
    steps: Callable[[Place], str] = lambda place: ""
    """Instructions for the steps that the user must do by hand; "" if there are none."""
    remote: Callable[[Home], Remote | None] = lambda home: None
    """The running agent, if it has an API for its settings and the user gave a key for it."""
    imports: bool = False
    """Whether the user must import the written files in the agent, so that they connect nothing by themselves."""
    key_help: str = ""
    """How to give the key for its API."""

    def installed(self, home: Home) -> bool:
        """Return True if its command or its folder of settings is there."""
        if shutil.which(self.program, path=home.env.get("PATH", "")):
            return True
        settings = () if self.imports else self.changes(Place(""), home)[:1]
        return any(change.path.parent.is_dir() for change in settings)

    def by_hand(self, place: Place) -> str:
        """Return everything that the user must know or do."""
        own = f"It uses its own key: {self.own_key}" if place.own_credentials and self.own_key else ""
        return "\n".join(filter(None, (self.steps(place), own)))


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
