"""Keeps the versions loaded that answer open rollouts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Literal

from burnish.adapters.errors import AdapterError, UnknownVersion
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.adapters.route import Lease
from burnish.adapters.swap import Swap
from burnish.proxy.http.errors import Unavailable, Unprocessable

logger = logging.getLogger(__name__)

ENGINE_WAIT_S = 15.0

VersionChoice = Literal["live", "candidate", "base"] | int
"""The version that a rollout asks for: by its number, or by what it is now."""


class Pins:
    """A version in use has a lease, so no swap unloads it under a rollout."""

    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self._used: Counter[int] = Counter()
        self._leases: dict[int, Lease] = {}
        self._lock = asyncio.Lock()

    def chosen(self, choice: VersionChoice) -> int:
        """Return the version that is meant; ``candidate``: the latest one, or the live one if that is later.

        Reads files. Raises Unprocessable.
        """
        registry, host = self._swap.registry, self._swap.host
        if choice == "live":
            return registry.live()
        if choice in ("base", BASE_VERSION):
            return BASE_VERSION
        usable = {
            version.number
            for version in registry.versions()
            if version.state not in ("rejected", "pruned")
            and version.manifest.base_digest == host.base_digest
        }
        if choice == "candidate":
            return max([registry.live(), *usable])
        assert isinstance(choice, int)
        if choice not in usable:
            has = ", ".join(version_label(number) for number in sorted({BASE_VERSION, *usable}))
            raise Unprocessable(
                f"there is no version {choice} that can answer: burnish has {has}", param="version"
            )
        return choice

    async def name(self, version: int) -> str:
        """Return the model name that means a version; load it again if the engine has lost it. Raises Unavailable."""
        if version in self._leases and version not in self._swap.route.resident():
            await self._load_again(version)
        return f"{self._swap.host.base_model}@{'base' if version == BASE_VERSION else f'v{version}'}"

    async def hold(self, version: int) -> None:
        """Load a version unless it is, and keep it until ``release``. Raises Unavailable."""
        async with self._lock:
            if version not in self._leases:
                self._leases[version] = await self._lease(version)
            self._used[version] += 1

    async def _load_again(self, version: int) -> None:
        """An engine that restarted serves only the live version."""
        with suppress(TimeoutError):  # then loading says what is wrong
            await self._swap.route.wait_live(ENGINE_WAIT_S)
        async with self._lock:
            if (lost := self._leases.get(version)) and version not in self._swap.route.resident():
                self._leases[version] = await self._lease(version)
                lost.release()

    async def _lease(self, version: int) -> Lease:
        route, registry = self._swap.route, self._swap.registry
        try:
            if version not in route.resident():
                adapter = None if version == BASE_VERSION else await asyncio.to_thread(registry.get, version)
                await self._swap.stage(adapter)
            return route.lease_version(version)
        except (AdapterError, OSError) as error:
            missing = isinstance(error, UnknownVersion)
            hint = "" if missing else ". Try again when no training run is under way"
            raise Unavailable(f"{version_label(version)} can't be loaded to answer: {error}{hint}") from error

    def release(self, version: int) -> None:
        """End one use; after the last one a version that isn't live is unloaded."""
        self._used[version] -= 1
        if self._used[version]:
            return
        del self._used[version]
        self._leases.pop(version).release()
        if version != self._swap.registry.live():
            self._swap.retire(version)
