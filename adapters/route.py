"""Which version new requests get, and who still uses the others.

Everything here is synchronous but the waiting, costs O(1) a request, and belongs to one event loop. A request
takes a lease and ends on the version on which it began, whatever goes live meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from burnish.adapters.errors import EngineError, UnknownVersion
from burnish.adapters.hosts.base import Endpoint


class Balance:
    """Spreads requests over equal servers: the one with the fewest in flight gets the next, equals take turns."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._turn = 0

    def pick(self, urls: Sequence[str]) -> str:
        """Choose one of the URLs (at least one) and count a request on it; ``done`` must follow."""
        self._turn += 1
        start = self._turn % len(urls)
        url = min((*urls[start:], *urls[:start]), key=self._in_flight.__getitem__)
        self._in_flight[url] += 1
        return url

    def done(self, url: str) -> None:
        """Count a request on this URL no more."""
        self._in_flight[url] -= 1
        if not self._in_flight[url]:
            del self._in_flight[url]


class Lease:
    """One request's hold on a version. Released once; more often does no harm."""

    __slots__ = ("_route", "endpoint")

    def __init__(self, route: LiveRoute, endpoint: Endpoint) -> None:
        self._route: LiveRoute | None = route
        self.endpoint = endpoint

    def release(self) -> None:
        """Say that the request has ended."""
        if self._route is not None:
            route, self._route = self._route, None
            route._released(self.endpoint)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Elsewhere(Protocol):
    """Other processes that lease versions, each as it last saw the route."""

    def changed(self) -> None:
        """Let them see that the route has changed."""
        ...

    def in_flight(self, version: int) -> int:
        """Return how many leases on a version they have out."""
        ...

    async def seen(self) -> None:
        """Return when all of them have seen the route as it is now."""
        ...


class _Nowhere:
    """There is no other process."""

    def changed(self) -> None:
        pass

    def in_flight(self, version: int) -> int:
        return 0

    async def seen(self) -> None:
        pass


class LiveRoute:
    """The versions that requests can get, and the one that they get unless they name another."""

    def __init__(self) -> None:
        self.elsewhere: Elsewhere = _Nowhere()
        self._live: Endpoint | None = None
        self._resident: dict[int, Endpoint] = {}
        """The least recently used first."""
        self._leases: Counter[int] = Counter()
        self._balance = Balance()
        self._is_live = asyncio.Event()
        self._drained: dict[int, asyncio.Event] = {}
        self.trouble = asyncio.Event()
        """Set when a request found that an engine is gone; reconciling clears it."""
        self.asleep: asyncio.Event | None = None
        """Not None: the engine sleeps, and setting the event wakes it."""
        self._woken = asyncio.Event()

    @property
    def live(self) -> Endpoint | None:
        """What new requests get; None while nothing is served."""
        return self._live

    def resident(self) -> dict[int, Endpoint]:
        """Return the versions that can be leased, the live one included; the least recently used first."""
        return dict(self._resident)

    def in_flight(self, version: int) -> int:
        """Return how many leases on a version are out."""
        return self._leases[version] + self.elsewhere.in_flight(version)

    def leases(self) -> Counter[int]:
        """Return how many leases are out here, by version."""
        return self._leases.copy()

    def used(self) -> None:
        """Hear that a version begins to be used here, or ceases; for routes that tell others."""

    def become(self, live: Endpoint | None, resident: Sequence[Endpoint]) -> None:
        """Offer what another process's route does; leases that are out stay."""
        self._resident = {endpoint.version: endpoint for endpoint in resident}
        self._live = live
        (self._is_live.set if live else self._is_live.clear)()

    def lease(self) -> Lease:
        """Lease the live version. Raises EngineError while there is none: see ``wait_live``."""
        if self._live is None:
            raise EngineError("no version is live; wait until the engine is back")
        return self._leased(self._live)

    def lease_version(self, version: int) -> Lease:
        """Lease a version by its number, live or not. Raises UnknownVersion when it is not loaded."""
        endpoint = self._resident.get(version)
        if endpoint is None:
            raise UnknownVersion(f"version {version} is not loaded; loaded are {sorted(self._resident)}")
        return self._leased(endpoint)

    def flip(self, endpoint: Endpoint) -> None:
        """From now on, new requests get this one. What was live stays resident until it is removed."""
        self._resident[endpoint.version] = endpoint
        self._live = endpoint
        self._is_live.set()
        self.elsewhere.changed()

    def add(self, endpoint: Endpoint) -> None:
        """Let requests ask for a version by name, without making it live; or take note where it is served now."""
        self._resident[endpoint.version] = endpoint
        self.elsewhere.changed()

    def remove(self, version: int) -> None:
        """Lease a version no more. The live one can be removed too: then nothing is live."""
        self._resident.pop(version, None)
        if self._live and self._live.version == version:
            self._live = None
            self._is_live.clear()
        self.elsewhere.changed()

    def lost(self, url: str) -> None:
        """Take note that nothing listens at a URL that this route gave out; wakes the reconciling loop.

        If that was the live version, nothing is live until it serves again: ``wait_live``.
        """
        self.trouble.set()
        for version, endpoint in self._resident.items():
            if endpoint.also and url in endpoint.urls:
                first, *others = (each for each in endpoint.urls if each != url)
                self._resident[version] = replace(endpoint, url=first, also=tuple(others))
                if self._live == endpoint:
                    self._live = self._resident[version]
        if self._live and self._live.url == url:
            self._live = None
            self._is_live.clear()
        self.elsewhere.changed()

    def fall_asleep(self) -> asyncio.Event:
        """Say that the engine is going to sleep; return what is set when a request wants it awake."""
        self.asleep = asyncio.Event()
        self.elsewhere.changed()
        return self.asleep

    async def awake(self) -> None:
        """Return when the engine may be asked: at once, unless it sleeps; then whoever asks wakes it."""
        while self.asleep:
            self.asleep.set()
            await self._woken.wait()

    def wake_up(self) -> None:
        """Say that the engine is awake again."""
        self.asleep = None
        self._woken.set()
        self._woken = asyncio.Event()
        self.elsewhere.changed()

    async def wait_live(self, timeout_s: float) -> None:
        """Return when a version is live, at once if one is. Raises TimeoutError."""
        if not self._is_live.is_set():
            async with asyncio.timeout(timeout_s):
                await self._is_live.wait()

    async def drained(self, version: int, timeout_s: float | None = None) -> None:
        """Return when no lease on a version is out. Raises TimeoutError (None: waits for ever)."""
        async with asyncio.timeout(timeout_s):
            await self.elsewhere.seen()
            while self.in_flight(version):
                await self._drained.setdefault(version, asyncio.Event()).wait()

    def _leased(self, endpoint: Endpoint) -> Lease:
        self._leases[endpoint.version] += 1
        if self._leases[endpoint.version] == 1:
            self.used()
        if endpoint.version in self._resident:
            self._resident[endpoint.version] = self._resident.pop(endpoint.version)
        url = self._balance.pick(endpoint.urls)
        return Lease(self, replace(endpoint, url=url, also=()) if endpoint.also else endpoint)

    def _released(self, endpoint: Endpoint) -> None:
        self._balance.done(endpoint.url)
        version = endpoint.version
        self._leases[version] -= 1
        if not self._leases[version]:
            del self._leases[version]
            self.used()
        self.ended(version)

    def ended(self, version: int) -> None:
        """Look whether anybody still uses a version, here or elsewhere."""
        if version in self._drained and not self.in_flight(version):
            self._drained.pop(version).set()
