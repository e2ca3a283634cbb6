"""Builds the application from a configuration; starts and stops its parts in order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from itertools import chain
from typing import Any

from burnish.adapters.hosts.managed import ManagedEngine
from burnish.app.asgi import App
from burnish.app.composition import Composition
from burnish.app.housekeeping import ask_until_known, prune_regularly, warn
from burnish.app.observe import Observer
from burnish.app.upgrade import stop_after_upgrade
from burnish.config.config import Config
from burnish.learner.learning import Learning, NotLearning, cancelled, learning
from burnish.parts.datasets.routes import record_routes
from burnish.parts.duels.routes import duel_routes
from burnish.parts.foreign import foreign_parts
from burnish.parts.hooks import Hooks, OnlyRoutes, Part
from burnish.parts.judging.routes import judging_routes
from burnish.parts.page.part import BrowserPage
from burnish.parts.rewards.part import RewardModels
from burnish.parts.rollouts.routes import AgentRollouts
from burnish.parts.signals.part import ToolSignals
from burnish.proxy import data_dir
from burnish.proxy.access.guard import Guard
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.large import READ_LIMIT_S
from burnish.proxy.relay.upstreams import pool_of
from burnish.system.apart import WorkerProcess


@asynccontextmanager
async def running(
    config: Config, *, upgrades: bool = False, engine: ManagedEngine | None = None
) -> AsyncIterator[App]:
    """Start every part, yield the application, and stop the parts in reverse order.

    With ``upgrades``, burnish ends after an upgrade, so that its service manager starts the new one. ``engine``: the
    upstream, if burnish started it. Raises ConfigError, and EngineError if the embedded engine or its model isn't
    available.
    """
    async with AsyncExitStack() as stack:
        observer = Observer.open(os.environ)
        stack.push_async_callback(asyncio.to_thread, observer.close)
        listeners: list[Callable[[Stored], None]] = [observer.stored]

        def stored(entry: Stored) -> None:
            for listener in listeners:
                listener(entry)

        def rewarded(completion_ids: Collection[str]) -> None:
            hooks.rewarded(completion_ids)

        log = Log.open(config.log_file, stored)
        stack.callback(log.close)
        rollouts = AgentRollouts(log, data_dir.secret(config.data_dir))

        hooks = Hooks(_parts(config, log, observer, rollouts, rewarded), config.parts_dir)
        listeners.append(hooks.stored)
        stack.push_async_callback(hooks.stop)
        await hooks.start(log)
        pool = pool_of(config)
        stack.push_async_callback(pool.close)
        apart = stack.enter_context(closing(WorkerProcess(READ_LIMIT_S)))
        guard = Guard(config)
        warn(config)
        composition = Composition(
            config=config,
            guard=guard,
            log=log,
            pool=pool,
            apart=apart,
            observer=observer,
            hooks=hooks,
            started=engine,
        )
        _beside(stack, prune_regularly(config, log, composition.pruned))
        opened = await stack.enter_async_context(learning(config, log, pool))
        app = App(guard, *await composition.compose(opened), rollouts.carried, observer.counts.refused)
        if upgrades:
            _beside(stack, stop_after_upgrade(lambda: composition.in_run, observer.in_flight))
        if isinstance(opened, NotLearning) and opened.ask_again:
            _beside(stack, ask_until_known(partial(_reopened, stack, composition, app)))
        yield app


async def _reopened(stack: AsyncExitStack, composition: Composition, app: App) -> bool:
    """Ask an engine that was down, and use it if it answers; return whether to ask again."""
    async with AsyncExitStack() as attempt:
        opening = learning(composition.config, composition.log, composition.pool)
        opened = await attempt.enter_async_context(opening)
        app.use(*await composition.compose(opened))
        if isinstance(opened, Learning):
            stack.push_async_exit(attempt.pop_all())
        return isinstance(opened, NotLearning) and opened.ask_again


def _parts(
    config: Config,
    log: Log,
    observer: Observer,
    rollouts: AgentRollouts,
    on_rewarded: Callable[[Collection[str]], None],
) -> list[Part]:
    """Return all parts, in the order in which their steps act on a request."""

    def flights() -> Iterable[Flight]:
        return chain.from_iterable(relay.flights.values() for relay in observer.relays)

    return [
        RewardModels(log, config, on_rewarded),
        BrowserPage(flights),
        OnlyRoutes("duels", duel_routes),
        OnlyRoutes("judging", judging_routes),
        ToolSignals(log, config),
        rollouts,
        OnlyRoutes("datasets", record_routes),
        *foreign_parts(config),
    ]


def _beside(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run something until burnish stops."""
    stack.push_async_callback(cancelled, asyncio.get_running_loop().create_task(work))
