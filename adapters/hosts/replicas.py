"""Several engines with the same weights, as one host: every engine that is up serves each version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from burnish.adapters.errors import EngineError, EngineUnreachable
from burnish.adapters.hosts.base import AdapterHost, Continuation, Endpoint, HostLimits
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Probe


class Replicas:
    """AdapterHost over equal engines. One that is down doesn't matter; reconciling loads later what it lacks.

    If one engine refuses a version, none serves it: else half of the answers would come from another version.
    """

    def __init__(self, hosts: Mapping[str, AdapterHost]) -> None:
        """``hosts``: the host of each engine by the URL of its endpoints; all of one base. Raises EngineError."""
        self._hosts = dict(hosts)
        first = next(iter(self._hosts.values()))
        self.base_model = first.base_model
        self.base_digest = first.base_digest
        self.remedy = first.remedy
        for url, host in self._hosts.items():
            if (host.base_model, host.base_digest) != (self.base_model, self.base_digest):
                raise EngineError(
                    f"the replicas differ: {url} serves {host.base_model} ({host.base_digest}), another one "
                    f"{self.base_model} ({self.base_digest}); all must serve the same model"
                )

    @property
    def engine(self) -> str:
        return ", ".join(dict.fromkeys(host.engine for host in self._hosts.values()))

    @property
    def limits(self) -> HostLimits:
        """The limits of the smallest engine."""
        all_limits = [host.limits for host in self._hosts.values()]
        return replace(
            all_limits[0],
            max_rank=min(limits.max_rank for limits in all_limits),
            max_resident=min(limits.max_resident for limits in all_limits),
            keeps=all(limits.keeps for limits in all_limits),
            merged=any(limits.merged for limits in all_limits),
        )

    async def check(self) -> None:
        await asyncio.gather(*(host.check() for host in self._hosts.values()))

    async def load(self, version: AdapterVersion | None) -> Endpoint:
        """Load a version into every engine that is up; see AdapterHost.load."""
        number = version.number if version else BASE_VERSION
        had = {url for url, endpoints in (await self._served()).items() if number in endpoints}
        results = await self._each(lambda host: host.load(version))
        down = [error for error in results.values() if isinstance(error, EngineUnreachable)]
        refused = [
            error
            for error in results.values()
            if isinstance(error, BaseException) and not isinstance(error, EngineUnreachable)
        ]
        if refused or len(down) == len(results):
            loaded = {url for url, endpoint in results.items() if isinstance(endpoint, Endpoint)}
            fresh = [self._hosts[url] for url in loaded - had]
            await asyncio.gather(*(host.unload(number) for host in fresh), return_exceptions=True)
            raise (refused or down)[0]
        return _joined([endpoint for endpoint in results.values() if isinstance(endpoint, Endpoint)])

    async def unload(self, version: int) -> None:
        results = await self._each(lambda host: host.unload(version))
        for error in results.values():
            if isinstance(error, BaseException) and not isinstance(error, EngineUnreachable):
                raise error

    async def forget(self, version: AdapterVersion) -> None:
        for host in self._hosts.values():
            await host.forget(version)

    async def served(self) -> dict[int, Endpoint]:
        """Return the versions that at least one engine serves, with the engines that lack them."""
        engines = await self._served()
        up = [url for url, endpoints in engines.items() if BASE_VERSION in endpoints]
        versions = dict.fromkeys(number for endpoints in engines.values() for number in endpoints)
        return {
            number: _joined(
                [endpoints[number] for endpoints in engines.values() if number in endpoints],
                lacking=tuple(url for url in up if number not in engines[url]),
            )
            for number in versions
        }

    async def base(self, endpoint: Endpoint) -> Endpoint:
        return await self._hosts[endpoint.url].base(endpoint)

    async def continuation(self, endpoint: Endpoint, probe: Probe, tokens: int) -> Continuation:
        return await self._hosts[endpoint.url].continuation(endpoint, probe, tokens)

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    async def _served(self) -> dict[str, dict[int, Endpoint]]:
        endpoints = await asyncio.gather(*(host.served() for host in self._hosts.values()))
        return dict(zip(self._hosts, endpoints, strict=True))

    async def _each(self, work: Callable[[AdapterHost], Awaitable[object]]) -> dict[str, Any]:
        """Do the same on every engine at once, to the end; return URL → result or error."""
        results = await asyncio.gather(*(work(host) for host in self._hosts.values()), return_exceptions=True)
        return dict(zip(self._hosts, results, strict=True))


def _joined(endpoints: list[Endpoint], lacking: tuple[str, ...] = ()) -> Endpoint:
    first, *replicas = endpoints
    return replace(first, also=tuple(replica.url for replica in replicas), lacking=lacking)
