"""Reconciling makes the engine serve the live version of the registry after a crash, a kill or a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from burnish.adapters.errors import (
    AdapterError,
    CorruptAdapter,
    EngineError,
    EngineUnreachable,
    IncompatibleAdapter,
    NotApplied,
    UnknownVersion,
)
from burnish.adapters.hosts.base import Endpoint
from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.adapters.swap import Swap

logger = logging.getLogger(__name__)

# A check costs one small request a child; a request that meets a dead engine wakes the loop at once anyway.
INTERVAL_S = 2.0
# Until an engine that couldn't be proved is asked again; twice as long each time.
PROOF_PAUSE_S, LONGEST_PROOF_PAUSE_S = 10.0, 600.0
# A single failure may come from a busy machine. If a version fails this often in a row and the base model loads, the
# version is at fault.
MAX_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of one check."""

    actions: tuple[str, ...] = ()
    """The repairs, for users; empty if nothing was wrong."""
    fault: str | None = None
    """Why the engine doesn't serve the live version; None if it does."""


class Reconciler:
    """Compares the engine with the registry and repairs differences, once or for ever."""

    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self._failures = 0
        self._started = False
        self.last = Repair()
        """The result of the last check."""
        self.degraded: str | None = None
        """Why an older version is live than the chosen one; stays until another one goes live."""
        self._fallback: int | None = None
        self._lagging: str | None = None
        self._next_proof = 0.0
        """Not before, by the monotonic clock."""
        self._proof_pause_s = PROOF_PAUSE_S

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        """Check now, every ``interval_s``, and at once when a request found an engine gone. Never returns."""
        trouble = self._swap.route.trouble
        while True:
            try:
                await self.reconcile_once()
            except Exception:
                # This loop repairs everything else, so it must survive every error.
                logger.exception("reconciling failed; trying again in %g s", interval_s)
            try:
                async with asyncio.timeout(interval_s):
                    await trouble.wait()
            except TimeoutError:
                continue

    async def reconcile_once(self) -> Repair:
        """Compare the served versions with the registry and repair differences.

        If the engine can't be started, ``fault`` says why, and the next check tries again.
        """
        async with self._swap.lock:
            endpoints = await self._swap.host.served()
            self._swap.forget_proofs(() if self._swap.route.trouble.is_set() else endpoints)
            self._swap.route.trouble.clear()
            actions = [*self._restore_history(), *self._forget_lost(endpoints)]
            live = self._swap.registry.live()
            if live != self._fallback:
                self._fallback = self.degraded = None
            self._lagging = None
            try:
                actions += await self._serve(live, endpoints)
                fault = self._lagging or self._swap.registry.lost()
                self._failures = 0
            except AdapterError as error:
                fault = str(error)
                down = not endpoints and isinstance(error, EngineUnreachable)
                actions += await self._fall_back(live, error, counts=not down)
            actions += await self._unload_orphans(endpoints)
        self.last = Repair(tuple(actions), fault)
        # The first check starts the engine; only a fault, or a later repair, is worth a warning.
        level = logging.WARNING if self._started or fault else logging.DEBUG
        self._started = True
        for action in actions:
            logger.log(level, "reconciled: %s", action)
        return self.last

    def _restore_history(self) -> list[str]:
        try:
            restored = self._swap.registry.restore()
        except OSError as error:
            logger.error("the history of versions was cut or deleted, and can't be written again: %s", error)
            return []
        return ["the history of versions was cut or deleted; it was written again"] if restored else []

    def _forget_lost(self, endpoints: dict[int, Endpoint]) -> list[str]:
        """Lease no version whose engine is gone."""
        route = self._swap.route
        lost = [n for n in route.resident() if n not in endpoints]
        for version in lost:
            route.remove(version)
        for version in route.resident():
            if route.live is None or route.live.version != version:  # the live one: see _serve
                route.add(endpoints[version])
        live = route.live and route.live.version
        if self._swap.host.limits.base_stays and BASE_VERSION in endpoints and live != BASE_VERSION:
            route.add(endpoints[BASE_VERSION])  # it can be asked by name
        return [f"the engine of {version_label(version)} is gone" for version in lost]

    async def _serve(self, version: int, endpoints: dict[int, Endpoint]) -> list[str]:
        """Give new requests the wanted version. Raises AdapterError."""
        route = self._swap.route
        endpoint = endpoints.get(version)
        if endpoint is None:
            endpoint = await self._load(version)
        elif endpoint.lacking:
            endpoint = await self._complete(version, endpoint)
        previous = route.live
        if previous == endpoint:
            await self._prove(version, endpoint)
            return []
        route.flip(endpoint)
        if previous and previous.version != version:
            self._swap.replaced(previous.version)
        where = f", by {', '.join(endpoint.urls)}" if endpoint.also or endpoint.lacking else ""
        return [f"{version_label(version)} serves again{where}"]

    async def _complete(self, version: int, endpoint: Endpoint) -> Endpoint:
        """Load the live version into the replicas that lack it; the others serve in any case."""
        try:
            return await self._load(version)
        except AdapterError as error:
            self._lagging = (
                f"{version_label(version)} is not served by {', '.join(endpoint.lacking)}: {error}"
            )
            return endpoint

    async def _load(self, version: int) -> Endpoint:
        adapter = None if version == BASE_VERSION else self._swap.registry.get(version)
        return await self._swap.load(adapter, proved=False)

    async def _prove(self, number: int, endpoint: Endpoint) -> None:
        """Prove the live version, if it serves unproved: after a start, and after a rollback. Raises NotApplied."""
        known = number == BASE_VERSION or self._swap.proof(number, endpoint)
        if known or self._swap.route.asleep or time.monotonic() < self._next_proof:
            return
        try:
            await self._swap.prove(self._swap.registry.get(number), endpoint)
            self._proof_pause_s = PROOF_PAUSE_S
        except NotApplied:
            raise
        except EngineError as error:  # it may only be busy
            logger.warning("%s is asked again later: %s", version_label(number), error)
            self._next_proof = time.monotonic() + self._proof_pause_s
            self._proof_pause_s = min(2 * self._proof_pause_s, LONGEST_PROOF_PAUSE_S)

    async def _fall_back(self, version: int, error: AdapterError, *, counts: bool) -> list[str]:
        """Serve an older version if the wanted one is at fault; do nothing if the engine is.

        ``counts``: whether this failure says something about the version. While an engine starts again, it doesn't.
        """
        self._failures += counts
        if str(error) != self.last.fault:  # said already
            logger.error("%s cannot be served: %s", version_label(version), error)
        hopeless = isinstance(error, CorruptAdapter | IncompatibleAdapter | NotApplied | UnknownVersion)
        if version == BASE_VERSION or not (hopeless or self._failures >= MAX_FAILURES):
            return []
        previous = self._swap.registry.previous_live()
        for older in dict.fromkeys((previous or BASE_VERSION, BASE_VERSION)):
            try:
                actions = await self._serve(older, await self._swap.host.served())
            except AdapterError as failure:
                logger.error("%s cannot be served either: %s", version_label(older), failure)
                continue
            self._failures = 0
            self._fallback = older
            self.degraded = (
                f"{version_label(version)} cannot be served ({error}); {version_label(older)} is live instead"
            )
            self._swap.registry.record(older, "live", self.degraded, replaced=version)
            return [*actions, self.degraded]
        return []

    async def _unload_orphans(self, endpoints: dict[int, Endpoint]) -> list[str]:
        """Unload versions that are neither routed nor in use, e.g. the candidate of a run that died."""
        route = self._swap.route
        stays = BASE_VERSION if self._swap.host.limits.base_stays else None
        orphans = [n for n in endpoints if n not in {*route.resident(), stays} and not route.in_flight(n)]
        for version in orphans:
            await self._swap.host.unload(version)
        return [f"unloaded {version_label(version)}, which no request used" for version in orphans]
