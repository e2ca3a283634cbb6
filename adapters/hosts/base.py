"""The one protocol that every engine's host speaks: load a version, say where it is served, unload it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from burnish.adapters.manifest import AdapterVersion

EMBEDDED_CONTEXT_TOKENS = 4096
"""Context of a request in the embedded engine. The KV cache is taken at start: 4 x 4096 cost 380 MB (small model)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where, and under which name, one version is served."""

    url: str
    """Root of the engine's HTTP API, without a trailing slash and without ``/v1``."""
    model: str
    """What ``model`` must say in a request to it."""
    version: int
    """0 = the base model."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token that the engine asks for; None = it asks for none."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Members that the body of every request to it must have, e.g. ``("adapters", "/path")``; ours win over the
    caller's."""
    also: tuple[str, ...] = ()
    """Roots of further engines that serve the same: replicas, of which the route picks one for each request."""
    lacking: tuple[str, ...] = field(default=(), compare=False)
    """Roots of replicas that are up and do not serve it yet; reconciling loads it there."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Every root that serves it."""
        return (self.url, *self.also)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can take; the trainer obeys."""

    max_rank: int
    max_resident: int
    """Versions loaded at once, the base model included."""
    base_stays: bool = False
    """The base model is served whatever happens, and costs nothing: an engine that somebody else runs."""
    keeps: bool = False
    """A version that was replaced stays loaded while there is room, least recently used out first: where it costs an
    engine next to nothing, going back to it takes no time."""


def engine_name(version: AdapterVersion) -> str:
    """Return the name of a version inside an engine that is not ours alone, e.g. "qwen3@v7-1a2b3c4d".

    The content is part of it: the same name never means other weights, not after the data directory was made anew,
    and not when two proxies use one engine. (Engines key prefix caches by name.)
    """
    content = repr(sorted(version.manifest.checksums.items()))
    return f"{version.served_name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


class AdapterHost(Protocol):
    """One engine that can serve adapter versions. Every method may raise EngineError."""

    base_model: str
    """Name of the base model, e.g. "smollm2"."""
    base_digest: str
    """"sha256:<hex>" of the base weights."""

    @property
    def limits(self) -> Limits:
        """What this engine can take."""
        ...

    async def check(self) -> None:
        """Raise EngineError when the engine cannot take versions as it was started, with what to start it with."""
        ...

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Make a version (None: the base model) servable under its own name; idempotent.

        Raises IncompatibleAdapter, CorruptAdapter, EngineError. On an error nothing stays loaded.
        """
        ...

    async def unload(self, version: int) -> None:
        """Free a version that no request uses any more; unknown versions are ignored."""
        ...

    async def forget(self, version: AdapterVersion) -> None:
        """Delete what is kept on the disk of a version that will not be loaded again, besides its own directory."""
        ...

    async def served(self) -> dict[int, Endpoint]:
        """What the engine serves right now, asked of the engine itself."""
        ...

    async def probe(self, endpoint: Endpoint) -> None:
        """Generate a few tokens for real. Raises ProbeFailed."""
        ...

    async def close(self) -> None:
        """Stop what this host started."""
        ...


@runtime_checkable
class Sleeps(Protocol):
    """A host whose engine can give its GPU's memory back for a while. Every method may raise EngineError."""

    async def sleeping(self) -> bool | None:
        """Whether the engine sleeps; None when it was started without that."""
        ...

    async def sleep(self) -> None:
        """Let running requests end, then free the memory; the engine answers nothing until it is woken."""
        ...

    async def wake(self) -> None:
        """Take the memory again and answer."""
        ...
