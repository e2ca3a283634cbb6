"""The route: which version new requests get, and how many requests still use the others.

All but the waiting is synchronous, costs O(1) a request, and belongs to one event loop. A request takes a lease and
ends on the version on which it began, whatever goes live meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from burnish.adapters.errors import EngineError, UnknownVersion
from burnish.adapters.hosts.base import Endpoint


class Balance:
    """Spreads requests over equal servers: the one with the fewest in flight gets the next, equals take turns."""

    def __init__(self) -> None:
        self._in_flight: defaultdict[str, int] = defaultdict(int)
        self._turn = 0

    def pick(self, urls: Sequence[str]) -> str:
        """Choose one of the URLs (at least one) and count a request on it until ``done``."""
        url, *replicas = urls
        if replicas:
            self._turn += 1
            start = self._turn % len(urls)
            url = min((*urls[start:], *urls[:start]), key=self._in_flight.__getitem__)
        self._in_flight[url] += 1
        return url

    def done(self, url: str) -> None:
        self._in_flight[url] -= 1
        if not self._in_flight[url]:
            del self._in_flight[url]


class Lease:
    """One request's use of a version. Releasing it twice does no harm."""

    __slots__ = ("_route", "endpoint")

    def __init__(self, route: LiveRoute, endpoint: Endpoint) -> None:
        self._route: LiveRoute | None = route
        self.endpoint = endpoint

    def release(self) -> None:
        if self._route is not None:
            route, self._route = self._route, None
            route._released(self.endpoint)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LiveRoute:
    """The versions that requests can get, and the one that they get unless they name another."""

    def __init__(self) -> None:
        self.live: Endpoint | None = None
        """The endpoint for new requests; None while nothing is served."""
        self._resident: dict[int, Endpoint] = {}
        """The least recently used first."""
        self._leases: Counter[int] = Counter()
        self._balance = Balance()
        self._is_live = asyncio.Event()
        self._drained: dict[int, asyncio.Event] = {}
        self.trouble = asyncio.Event()
        """Set when a request found an engine gone; reconciling clears it."""
        self.asleep: asyncio.Event | None = None
        """If not None, the engine sleeps, and setting the event wakes it."""
        self._woken = asyncio.Event()

    def resident(self) -> dict[int, Endpoint]:
        """Return the versions that can be leased, the live one included; the least recently used first."""
        return dict(self._resident)

    def in_flight(self, version: int) -> int:
        return self._leases[version]

    def lease(self) -> Lease:
        """Lease the live version. Raises EngineError while there is none: see ``wait_live``."""
        if self.live is None:
            raise EngineError("no version is live; wait until the engine is back")
        return self._leased(self.live)

    def lease_version(self, version: int) -> Lease:
        """Lease a version by its number, live or not. Raises UnknownVersion when it is not loaded."""
        endpoint = self._resident.get(version)
        if endpoint is None:
            raise UnknownVersion(f"version {version} is not loaded; loaded are {sorted(self._resident)}")
        return self._leased(endpoint)

    def flip(self, endpoint: Endpoint) -> None:
        """Give new requests this endpoint. The replaced one stays resident until it is removed."""
        self._resident[endpoint.version] = endpoint
        self.live = endpoint
        self._is_live.set()

    def add(self, endpoint: Endpoint) -> None:
        """Let requests name a version that isn't live, or update its endpoint."""
        self._resident[endpoint.version] = endpoint

    def remove(self, version: int) -> None:
        """Lease a version no longer. If it is the live one, nothing is live then."""
        self._resident.pop(version, None)
        if self.live and self.live.version == version:
            self.live = None
            self._is_live.clear()

    def lost(self, url: str) -> None:
        """Stop routing to a URL, because nothing listens there; wake the reconciling loop.

        If it served the live version, nothing is live until that serves again: ``wait_live``.
        """
        self.trouble.set()
        for version, endpoint in self._resident.items():
            if endpoint.also and url in endpoint.urls:
                first, *replicas = (replica for replica in endpoint.urls if replica != url)
                self._resident[version] = replace(endpoint, url=first, also=tuple(replicas))
                if self.live == endpoint:
                    self.live = self._resident[version]
        if self.live and self.live.url == url:
            self.live = None
            self._is_live.clear()

    def fall_asleep(self) -> asyncio.Event:
        """Mark the engine as asleep; return an event that is set when a request needs it awake."""
        self.asleep = asyncio.Event()
        return self.asleep

    async def awake(self) -> None:
        """Return when the engine is awake; if it sleeps, wake it."""
        while self.asleep:
            self.asleep.set()
            await self._woken.wait()

    def wake_up(self) -> None:
        self.asleep = None
        self._woken.set()
        self._woken = asyncio.Event()

    async def wait_live(self, timeout_s: float) -> None:
        """Return when a version is live, at once if one is. Raises TimeoutError."""
        if not self._is_live.is_set():
            async with asyncio.timeout(timeout_s):
                await self._is_live.wait()

    async def drained(self, version: int, timeout_s: float | None = None) -> None:
        """Return when a version has no leases. Raises TimeoutError (``timeout_s`` None: waits for ever)."""
        async with asyncio.timeout(timeout_s):
            while self.in_flight(version):
                await self._drained.setdefault(version, asyncio.Event()).wait()

    def _leased(self, endpoint: Endpoint) -> Lease:
        self._leases[endpoint.version] += 1
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
            if drained := self._drained.pop(version, None):
                drained.set()
