"""The swap changes the live version, in steps that can each be undone.

verify → load → prove → commit (the registry's ``live`` event) → flip → drain → unload. A failure before the commit
leaves the old version live and nothing loaded. After a crash behind it, ``reconcile`` finishes the swap. A rollback to
an old version or to the base model is the same function, but isn't held up: ``reconcile`` proves it afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from burnish.adapters.errors import AdapterError, EngineError
from burnish.adapters.hosts.base import AdapterHost, Endpoint
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.proof import Grade, generates, prove
from burnish.adapters.registry import Registry, waiting
from burnish.adapters.route import LiveRoute

logger = logging.getLogger(__name__)

# How long a swap waits for an older version to drain when the engine has no room for another one.
ROOM_TIMEOUT_S = 30.0
SERVED_BEFORE = ("live", "retired")
"""States of versions that were live once: a rollback to them isn't held up by a proof."""


@dataclass(frozen=True, slots=True)
class Swapped:
    version: int
    """The live version now; 0 = the base model."""
    replaced: int
    """The live version before."""
    seconds: float
    """From the call until new requests got the version."""


async def unchanged(version: AdapterVersion) -> AdapterVersion:
    return version


class Swap:
    """Moves versions in and out of one engine, one change at a time."""

    def __init__(self, registry: Registry, host: AdapterHost, route: LiveRoute) -> None:
        self.registry = registry
        self.host = host
        self.route = route
        self.lock = asyncio.Lock()
        """For every change of the loaded versions."""
        self._retiring: dict[int, asyncio.Task[None]] = {}
        self._staged: set[int] = set()
        self._proofs: dict[int, tuple[Endpoint, str, Grade]] = {}
        """By version: where, in which engine, and how it was proved; forgotten when the engine was gone."""
        self.with_proof: Callable[[AdapterVersion], Awaitable[AdapterVersion]] = unchanged
        """Makes a version's proof, if it has none and there is a trainer."""

    async def go_live(self, version: AdapterVersion | None, reason: str) -> Swapped:
        """Make a version (None: the base model) live; return as soon as new requests get it.

        The replaced version is unloaded in the background, never before its last request has ended. If the engine keeps
        versions, it is unloaded only when room is needed.
        Raises IncompatibleAdapter, CorruptAdapter, EngineError, ProbeFailed; nothing has changed then.
        """
        began = time.perf_counter()
        number = version.number if version else BASE_VERSION
        back = version is not None and version.state in SERVED_BEFORE
        if version and not back:
            version = await self.with_proof(version)
        await self._room(number)
        async with self.lock:
            endpoint = await self.load(version, proved=not back)
            replaced = self.registry.live()
            if replaced != number or self.registry.lost():
                try:
                    took_s = round(time.perf_counter() - began, 3)
                    self.registry.record(number, "live", reason, replaced=replaced, seconds=took_s)
                except BaseException:
                    await self._unload_unless_used(number)
                    raise
            self.route.flip(endpoint)
            self._staged.discard(number)
            if replaced != number:
                self.replaced(replaced)
            return Swapped(number, replaced, time.perf_counter() - began)

    async def stage(self, version: AdapterVersion | None) -> Endpoint:
        """Load a version (None: the base) beside the live one; requests must name it. Raises as ``go_live`` does."""
        number = version.number if version else BASE_VERSION
        await self._room(number)
        async with self.lock:
            endpoint = await self.load(version)
            self.route.add(endpoint)
            self._staged.add(number)
            return endpoint

    def replaced(self, version: int) -> None:
        """Unload a version that is no longer live: now, or when room is needed."""
        if not self.host.limits.keeps:
            self.retire(version)
        elif self._short_of_room(0):
            self._retire_idle()

    def retire(self, version: int) -> asyncio.Task[None]:
        """Unload a version in the background, as soon as no request uses it."""
        self._staged.discard(version)
        task = self._retiring.get(version)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._drain_and_unload(version))
            self._retiring[version] = task
            task.add_done_callback(lambda task: self._retired(version, task))
        return task

    async def prune(self, keep: int) -> list[int]:
        """Delete the weights of all but the latest ``keep`` versions and those that are needed; return their numbers.

        Needed are the live version, the one that a rollback leads to, the one that waits to be promoted, and those that
        are loaded or in use. If a file can't be deleted, that is logged and tried again the next time.
        """
        async with self.lock:
            versions = await asyncio.to_thread(self.registry.versions)
            old = [version for version in versions if version.state != "pruned"][:-keep]
            pruned: list[int] = []
            try:
                needed = {self.registry.live(), self.registry.previous_live(), waiting(self.registry)}
                needed.update(self.route.resident())
                needed.update(await self.host.served() if old else ())
                for version in old:
                    if version.number not in needed and not self.route.in_flight(version.number):
                        why = f"only the latest {keep} versions keep their weights (train.keep_versions)"
                        await asyncio.to_thread(self.registry.prune, version.number, why)
                        pruned.append(version.number)
                        await self.host.forget(version)
            except (AdapterError, OSError) as error:
                logger.warning("old versions could not be deleted: %s", error)
        if pruned:
            logger.info("deleted the weights of %s", ", ".join(f"v{number}" for number in pruned))
        return pruned

    async def settled(self) -> None:
        while self._retiring:
            await asyncio.wait(self._retiring.values())

    async def close(self) -> None:
        """Stop waiting for requests to end; unload all but the live version from an engine that keeps versions, or
        stores each as a model of its own.
        """
        retiring = dict(self._retiring)  # a version that is just being unloaded is resident no longer
        for task in retiring.values():
            task.cancel()
        await asyncio.gather(*retiring.values(), return_exceptions=True)
        if self.host.limits.keeps or self.host.limits.merged:
            loaded = self.route.resident().keys() | retiring.keys()
            for number in loaded - {BASE_VERSION, self.registry.live()}:
                with suppress(EngineError):  # the engine is down, or reconciling unloads it at the next start
                    await self.host.unload(number)

    async def load(self, version: AdapterVersion | None, *, proved: bool = True) -> Endpoint:
        """Verify, load and prove, under the lock; undo that on an error or if cancelled.

        Not ``proved``: the engine only has to answer, and ``prove`` is called later.
        """
        number = version.number if version else BASE_VERSION
        if version:
            await asyncio.to_thread(self.registry.verify, number)
        await self.route.awake()
        try:
            endpoint = await self.host.load(version)
            if version and proved:
                await self.prove(version, endpoint)
            else:
                await generates(self.host, endpoint)
        except BaseException:
            with suppress(EngineError):  # the caller must see the first error
                await self._unload_unless_used(number)
            raise
        return endpoint

    async def prove(self, version: AdapterVersion, endpoint: Endpoint) -> None:
        """Prove that the engine applies a version, unless that is known. Raises NotApplied, EngineError."""
        if self.proof(version.number, endpoint) is None:
            grade = await prove(self.host, version, endpoint)
            self._proofs[version.number] = endpoint, self.host.engine, grade

    def proof(self, number: int, endpoint: Endpoint | None) -> Grade | None:
        """Return how a version was proved since the engine was last seen to start; None if it wasn't."""
        where, engine, grade = self._proofs.get(number, (None, "", None))
        return grade if (where, engine) == (endpoint, self.host.engine) else None

    def forget_proofs(self, but: Collection[int] = ()) -> None:
        """Forget what was proved, ``but`` of versions that the engine still serves: it was started again."""
        self._proofs = {number: proof for number, proof in self._proofs.items() if number in but}

    async def _unload_unless_used(self, version: int) -> None:
        if version not in self.route.resident() and not self.route.in_flight(version):
            await self.host.unload(version)

    async def _drain_and_unload(self, version: int) -> None:
        if version == BASE_VERSION and self.host.limits.base_stays:
            return
        while True:
            await self.route.drained(version)
            async with self.lock:
                if self.registry.live() == version:
                    return  # it went live again while it drained
                if not self.route.in_flight(version):
                    self.route.remove(version)
                    await self.host.unload(version)
                    return

    def _retired(self, version: int, task: asyncio.Task[None]) -> None:
        del self._retiring[version]
        if not task.cancelled() and (error := task.exception()):
            # No caller awaits this task; reconciling finds the version and tries again.
            logger.error("version %d was not unloaded: %s", version, error)

    async def _room(self, number: int) -> None:
        """If the engine is full, unload the least recently used version, and wait a while for that."""
        if number in self.route.resident() or not self._short_of_room(1):
            return
        if self.host.limits.keeps and not self._retiring:
            self._retire_idle()
        if self._retiring:
            await asyncio.wait(
                self._retiring.values(), timeout=ROOM_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )

    def _short_of_room(self, count: int) -> bool:
        loaded = set(self.route.resident()) | ({BASE_VERSION} if self.host.limits.base_stays else set())
        return len(loaded) + count > self.host.limits.max_resident

    def _retire_idle(self) -> None:
        """Unload the least recently used version that isn't the base, live, staged or in use."""
        needed = {BASE_VERSION, self.registry.live(), *self._staged}
        for number in self.route.resident():
            if number not in needed and not self.route.in_flight(number):
                self.retire(number)
                return
