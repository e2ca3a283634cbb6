"""Composes an engine that takes versions, the route to its live version, and the learner."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from burnish.adapters.convert.gguf_layout import untrainable
from burnish.adapters.errors import (
    AdapterError,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    IncompatibleAdapter,
)
from burnish.adapters.hosts.base import AdapterHost, Sleeps
from burnish.adapters.hosts.detect import Kind
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir
from burnish.adapters.hosts.model_file import model_file
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.sleep import wake
from burnish.adapters.swap import Swap
from burnish.config.config import Config
from burnish.learner.cycle import Cycle
from burnish.learner.foreign_engine import foreign_host
from burnish.learner.learner import Learner
from burnish.learner.machine import Meter
from burnish.learner.pairs import carry_over
from burnish.learner.plan import Planner
from burnish.learner.reset import Reset
from burnish.learner.transfer import Transfer
from burnish.learner.version_leases import VersionLeases
from burnish.proxy.feedback.usability import rules_of
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.http.pool import Pool
from burnish.proxy.log import Log
from burnish.proxy.relay.routing import LearningUpstream
from burnish.proxy.relay.upstreams import main_upstream

logger = logging.getLogger(__name__)

# An engine may be started again in another way, but nobody should wait for it, or load it, at each look.
CHECK_AGAIN_S = 30.0
CHECK_LIMIT_S = 3.0


@dataclass(slots=True)
class Engine:
    swap: Swap
    reconciler: Reconciler
    leases: VersionLeases = field(init=False)
    _obstacle: str | None = None
    _check_at: float = 0.0
    """When the engine is asked again, on the monotonic clock."""

    def __post_init__(self) -> None:
        self.leases = VersionLeases(self.swap)

    def live(self) -> dict[str, Any]:
        """Return the live version according to the route."""
        endpoint = self.swap.route.live
        return {
            "version": endpoint.version if endpoint else self.swap.registry.live(),
            "name": endpoint.model if endpoint else None,
            "proof": endpoint and self.swap.proof(endpoint.version, endpoint),
            "served_by": list(endpoint.urls) if endpoint else [],
            "resident": sorted(self.swap.route.resident()),
        }

    def trouble(self) -> str | None:
        """Return why the engine doesn't serve the right versions; None if it does."""
        return self.reconciler.last.fault or self.reconciler.degraded

    async def obstacle(self) -> str | None:
        """Return what the engine still needs so that versions can be swapped in it; None if it needs nothing."""
        if time.monotonic() >= self._check_at:
            try:
                async with asyncio.timeout(CHECK_LIMIT_S):
                    await self.swap.host.check()
                self._obstacle = None
            except TimeoutError:
                pass  # it is busy, so what was known stays
            except AdapterError as error:
                self._obstacle = str(error)
            self._check_at = time.monotonic() + CHECK_AGAIN_S
        return self._obstacle

    @property
    def window(self) -> dict[str, Any] | None:
        """Return what the engine reads; None if its user sets that."""
        window = self.swap.host.limits.window
        return asdict(window) if window else None

    @property
    def serving(self) -> bool:
        return self.swap.route.live is not None


@dataclass(frozen=True, slots=True)
class Learning:
    """The parts that exist only if burnish swaps versions in the engine."""

    upstream: LearningUpstream
    learner: Learner
    reset: Reset
    registry: Registry
    transfer: Transfer
    engine: Engine
    weights: Path
    """Of the base model: what the engine serves."""
    base: tuple[str, str]
    """Name and digest of the base model."""


@dataclass(frozen=True, slots=True)
class NotLearning:
    """Why burnish only passes requests through, logs them and takes ratings."""

    reason: str
    ask_again: bool = False
    """The engine was down or not yet ready."""
    known: bool = False
    """Whether the engine is one of those that burnish knows."""


@asynccontextmanager
async def learning(config: Config, log: Log, pool: Pool) -> AsyncIterator[Learning | NotLearning]:
    """Open the engine with the live version, and the learner; or yield why versions can't be swapped.

    Raises EngineError if the embedded engine or its model isn't available.
    """
    registry = Registry(config.data_dir / "adapters")
    remote = None
    kinds: list[Kind] = []
    if config.upstream is None:
        host, weights = await asyncio.to_thread(_embedded, config)
    elif config.engine == "none":
        yield NotLearning("versions are not swapped, because engine = none. burnish logs and takes ratings")
        return
    else:
        try:
            host, weights = await foreign_host(config, registry.versions, on_found=kinds.append)
        except (EngineError, IncompatibleAdapter) as error:
            reason = f"versions cannot be swapped: {error}. burnish logs and takes ratings"
            yield NotLearning(reason, _may_pass(error), known=kinds not in ([], ["other"], ["lmstudio"]))
            return
        remote = main_upstream(config, pool, host.base_model)
    swap = Swap(registry, host, LiveRoute())
    async with _with_learner(swap, config, log, weights, kinds[0] if kinds else "llamacpp") as (
        learner,
        engine,
    ):
        window = host.limits.window
        base = host.base_model, host.base_digest
        yield Learning(
            LearningUpstream(*base, window.context if window else None, swap.route, remote),
            learner,
            Reset(learner, swap, log, config.log_file),
            registry,
            Transfer(registry, *base, weights, cache_dir() / "weights"),
            engine,
            weights,
            base,
        )


def _embedded(config: Config) -> tuple[AdapterHost, Path]:
    """Return the host of the embedded engine, and the weights that it serves. Raises EngineError."""
    model = model_file(config.model)
    if model.left_out:
        lost = ", ".join(model.left_out)
        logger.warning("%s: the embedded engine uses the model without its %s", config.model, lost)
    state, context, parallel = config.data_dir / "engine", config.context, config.parallel
    host = EmbeddedHost(
        model.path, base_model=model.name, state_dir=state, context=context, parallel=parallel
    )
    return host, model.path


@asynccontextmanager
async def _with_learner(
    swap: Swap, config: Config, log: Log, weights: Path, kind: Kind
) -> AsyncIterator[tuple[Learner, Engine]]:
    host, registry = swap.host, swap.registry
    why_not = await asyncio.to_thread(untrainable, weights)
    if why_not and config.train.enabled:
        logger.warning("%s is served, but can't learn: %s", host.base_model, why_not)
    reconciler = Reconciler(swap)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(host.close)
        stack.push_async_callback(swap.close)
        config.check_unclaimed(host.base_model)
        await _woken(host)
        try:
            await asyncio.to_thread(registry.recover)
        except OSError as error:
            logger.error("the adapters folder could not be repaired after a crash: %s", error)
        with suppress(Unavailable):  # a full disk; the next start tries again
            await carry_over(registry.root, log)
        first = await reconciler.reconcile_once()
        if swap.route.live is None and config.upstream is None:
            raise EngineError(f"the embedded engine does not start: {first.fault}")
        healing = asyncio.get_running_loop().create_task(reconciler.run())
        stack.push_async_callback(cancelled, healing)
        planner = Planner(
            log=log,
            registry=registry,
            host=host,
            train=config.train,
            rules=rules_of(config),
            base_weights=weights,
            weights_cache=cache_dir() / "weights",
            engine=kind,
            untrainable=why_not,
        )
        cycle = Cycle(planner=planner, swap=swap, jobs=config.data_dir / "jobs")
        swap.with_proof = cycle.with_proof
        learner = Learner(cycle, Meter())
        await learner.start()
        stack.push_async_callback(learner.stop)
        yield learner, Engine(swap, reconciler)


def _may_pass(error: EngineError | IncompatibleAdapter) -> bool:
    """Whether an engine may say something else in a while: it is down, or still loads its model."""
    if isinstance(error, EngineRefused):
        return error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, EngineUnreachable)


async def _woken(host: AdapterHost) -> None:
    """Wake an engine that an earlier burnish left asleep when it was killed."""
    try:
        if isinstance(host, Sleeps) and await host.sleeping():
            await wake(host)
    except EngineError as error:
        logger.warning("%s", error)  # reconciling reports it as long as the engine serves nothing


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
