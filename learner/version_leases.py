"""Keeps versions loaded that aren't live, for those who ask them: open rollouts, and duels."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from burnish.adapters.errors import AdapterError, UnknownVersion
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.registry import version_label
from burnish.adapters.route import Lease
from burnish.adapters.swap import Swap
from burnish.proxy.http.errors import Unavailable

ENGINE_WAIT_S = 15.0
GONE_STATES = ("rejected", "pruned")


class VersionLeases:
    """A version in use has a lease, so no swap unloads it."""

    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self._used: Counter[int] = Counter()
        self._leases: dict[int, Lease] = {}
        self._loaded: set[int] = set()
        """Versions that were only loaded to be asked here."""
        self._unloading: dict[int, asyncio.TimerHandle] = {}
        self._lock = asyncio.Lock()

    def versions(self) -> dict[int, AdapterVersion]:
        """Return the versions that can answer, by number: not those of another base, rejected or deleted.

        Reads files.
        """
        return {
            version.number: version
            for version in self._swap.registry.versions()
            if version.state not in GONE_STATES
            and version.manifest.base_digest == self._swap.host.base_digest
        }

    def name(self, version: int) -> str:
        """Return the model name that means a version."""
        return f"{self._swap.host.base_model}@{'base' if version == BASE_VERSION else f'v{version}'}"

    async def hold(self, version: int) -> None:
        """Load a version unless it is, and keep it until ``release``. Raises Unavailable."""
        async with self._lock:
            if version not in self._leases:
                self._leases[version] = await self._lease(version)
            self._used[version] += 1
            if timer := self._unloading.pop(version, None):
                timer.cancel()

    async def ensure(self, version: int) -> None:
        """Load a version that is held again if the engine has lost it: one that restarted serves only the live version.

        Raises Unavailable.
        """
        if version not in self._leases or version in self._swap.route.resident():
            return
        with suppress(TimeoutError):  # then loading says what is wrong
            await self._swap.route.wait_live(ENGINE_WAIT_S)
        async with self._lock:
            if (lost := self._leases.get(version)) and version not in self._swap.route.resident():
                self._leases[version] = await self._lease(version)
                lost.release()

    def release(self, version: int, unload_after_s: float = 0.0) -> None:
        """End one use; some time after the last one a version that was loaded for it is unloaded."""
        self._used[version] -= 1
        if self._used[version]:
            return
        del self._used[version]
        self._leases.pop(version).release()
        if unload_after_s:
            loop = asyncio.get_running_loop()
            self._unloading[version] = loop.call_later(unload_after_s, self._unload, version)
        else:
            self._unload(version)

    def _unload(self, version: int) -> None:
        self._unloading.pop(version, None)
        # A reset may have unloaded it, and it may have gone live.
        resident = version in self._swap.route.resident()
        if version in self._loaded and resident and version != self._swap.registry.live():
            self._swap.retire(version)
        self._loaded.discard(version)

    async def _lease(self, version: int) -> Lease:
        route, registry = self._swap.route, self._swap.registry
        try:
            if version not in route.resident():
                adapter = None if version == BASE_VERSION else await asyncio.to_thread(registry.get, version)
                await self._swap.stage(adapter)
                self._loaded.add(version)
            return route.lease_version(version)
        except (AdapterError, OSError) as error:
            hint = (
                "" if isinstance(error, UnknownVersion) else ". Try again when no training run is under way"
            )
            raise Unavailable(f"{version_label(version)} can't be loaded to answer: {error}{hint}") from error
