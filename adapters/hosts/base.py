"""The protocol of every host: load a version, return where it is served, unload it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from burnish.adapters.manifest import AdapterVersion, Probe


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and the name under which one version is served."""

    url: str
    """Root of the engine's HTTP API, without a trailing slash and without ``/v1``."""
    model: str
    """The ``model`` that a request to it must name."""
    version: int
    """0 = the base model."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token for the engine; None if it needs none."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Members that the body of every request to it must have, e.g. ``("adapters", "/path")``; they replace the
    caller's."""
    without_adapter: tuple[tuple[str, Any], ...] | None = None
    """Members of a body with which it answers as the base model; None: it can't."""
    also: tuple[str, ...] = ()
    """Roots of replicas that serve it as well; the route picks one for each request."""
    lacking: tuple[str, ...] = field(default=(), compare=False)
    """Roots of replicas that are up but don't serve it yet; reconciling loads it there."""

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url, *self.also)


@dataclass(frozen=True, slots=True)
class Continuation:
    """An engine's greedy answer to a context."""

    text: str
    likeliest: Mapping[int | str, float] = field(default_factory=dict)
    """The likeliest first tokens, by id or, if the engine shows none, by text: log-probability in nats. Empty: the
    engine gives no log-probabilities."""


@dataclass(frozen=True, slots=True)
class Window:
    """How long a request may be, and how many are answered at a time."""

    context: int
    """Tokens of one request, with its answer."""
    parallel: int
    """Requests that are decoded at a time; others wait."""
    trained: int
    """The longest context that the model was trained for, in tokens."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The limits of an engine, which the trainer must keep, too."""

    max_rank: int
    max_resident: int
    """Versions loaded at once, the base model included."""
    base_stays: bool = False
    """The base model is always served and costs nothing, because the user runs the engine."""
    keeps: bool = False
    """A replaced version stays loaded while there is room (least recently used out first): that costs this engine next
    to nothing, and a rollback is instant."""
    window: Window | None = None
    """None: the engine's user sets it."""
    longest_answer: int | None = None
    """In tokens: what burnish's own chats ask a model for that may never stop by itself; None: it stops."""
    merged: bool = False
    """A version is a whole model of its own, base and adapter merged, because the engine takes no adapters."""

    @property
    def way(self) -> str:
        """How versions get into the engine, for users."""
        return "merged models" if self.merged else "adapters"


def engine_name(version: AdapterVersion) -> str:
    """Return the name of a version inside an engine that others may use, too, e.g. "qwen3@v7-1a2b3c4d".

    It ends in a digest of the weights: the same name never means other weights, even with a new data directory or two
    proxies on one engine. (Engines key prefix caches by name.)
    """
    content = repr(sorted(version.manifest.checksums.items()))
    return f"{version.served_name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


class AdapterHost(Protocol):
    """One engine that can serve adapter versions. Every method may raise EngineError."""

    base_model: str
    """Name of the base model, e.g. "smollm2"."""
    base_digest: str
    """"sha256:<hex>" of the base weights."""
    remedy: str
    """What helps if the engine takes a version and ignores it."""

    @property
    def engine(self) -> str:
        """Its name for users; another one after an update, if the engine tells its release."""

    @property
    def limits(self) -> HostLimits: ...

    async def check(self) -> None:
        """Raise EngineError, with the right command line, if the engine was started so that it can't take versions."""

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Make a version (None: the base model) available under its own name; idempotent.

        Raises IncompatibleAdapter, CorruptAdapter, EngineError. On an error nothing stays loaded.
        """

    async def unload(self, version: int) -> None:
        """Free a version that no request uses any more; unknown ones are ignored."""

    async def forget(self, version: AdapterVersion) -> None:
        """Delete the files of a version that won't be loaded again, except its own directory."""

    async def served(self) -> dict[int, Endpoint]:
        """Ask the engine which versions it serves now."""

    async def base(self, endpoint: Endpoint) -> Endpoint:
        """Return how the engine of an endpoint answers as the base model."""

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        """Go on with a context for real, for so many tokens at most."""

    async def close(self) -> None:
        """Stop what this host started."""


@runtime_checkable
class Sleeps(Protocol):
    """A host whose engine can give its GPU's memory back for a while. Every method may raise EngineError."""

    async def sleeping(self) -> bool | None:
        """Ask whether the engine sleeps; None if it can't."""

    async def sleep(self) -> None:
        """Wait for running requests, then free the memory; the engine answers nothing until it is woken."""

    async def wake(self) -> None:
        """Take the memory again and answer."""
