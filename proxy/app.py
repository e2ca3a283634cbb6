"""The one place of composition: builds the parts from a configuration and starts and stops them in order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import SMALL_MODEL, cache_dir, ensure_small_model
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from burnish.proxy.asgi import App, on_burnish_error, on_http_error
from burnish.proxy.config import Config
from burnish.proxy.errors import BurnishError, ConfigError, Conflict
from burnish.proxy.feedback import answer_command, completion_routes, feedback_routes
from burnish.proxy.learner.learner import Learner
from burnish.proxy.learner.routes import learner_routes
from burnish.proxy.log import Log
from burnish.proxy.records import Feedback
from burnish.proxy.relay.guard import Guard
from burnish.proxy.relay.pool import Pool
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.routing import LearningUpstream, RemoteUpstream, Upstream
from burnish.proxy.status import Engine, in_words, status_routes
from burnish.proxy.surfaces import SURFACES

LOG_FILE = "burnish.db"


@dataclass(frozen=True, slots=True)
class _Learning:
    """The parts that exist only where burnish swaps versions in the engine."""

    upstream: Upstream
    learner: Learner
    registry: Registry
    engine: Engine


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[App]:
    """Start every part, give the application, and stop the parts in reverse order.

    Raises ConfigError; EngineError when the embedded engine or its model cannot be had.
    """
    async with AsyncExitStack() as stack:
        log = Log.open(config.data_dir / LOG_FILE)
        stack.callback(log.close)
        pool = Pool(config)
        stack.push_async_callback(pool.close)
        learning = None
        if config.upstream is None:
            learning = await stack.enter_async_context(_learning(config, log))
        yield _application(config, log, pool, learning)


@asynccontextmanager
async def _learning(config: Config, log: Log) -> AsyncIterator[_Learning]:
    """Start the embedded engine on what the registry says is live, and the learner beside it."""
    model, name = await asyncio.to_thread(_embedded_model, config.model)
    registry = Registry(config.data_dir / "adapters")
    host = EmbeddedHost(model, base_model=name, state_dir=config.data_dir / "engine")
    swap = Swap(registry, host, LiveRoute())
    reconciler = Reconciler(swap)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(host.close)
        stack.push_async_callback(swap.close)
        first = await reconciler.reconcile_once()
        if swap.route.live is None:
            raise EngineError(f"the embedded engine does not start: {first.fault}")
        healing = asyncio.get_running_loop().create_task(reconciler.run())
        stack.push_async_callback(_cancelled, healing)
        learner = Learner(
            log=log,
            registry=registry,
            swap=swap,
            train=config.train,
            base_weights=model,
            weights_cache=cache_dir() / "weights",
            jobs=config.data_dir / "jobs",
        )
        await learner.start()
        stack.push_async_callback(learner.stop)
        yield _Learning(LearningUpstream(name, swap.route), learner, registry, Engine(swap, reconciler))


def _application(config: Config, log: Log, pool: Pool, learning: _Learning | None) -> App:
    upstream = learning.upstream if learning else RemoteUpstream(config, pool)
    engine = learning.engine if learning else None
    learner_status = learning.learner.status if learning else _not_learning
    guard = Guard(config)
    wake = _waker(learning)

    async def status_in_words() -> str:
        return in_words(await log.counts(), engine.live() if engine else None, learner_status())

    relay = Relay(
        pool=pool,
        upstream=upstream,
        guard=guard,
        log=log,
        surfaces={surface.path: surface for surface in SURFACES.values()},
        answer=partial(answer_command, log=log, status=status_in_words, on_feedback=wake),
        max_body_bytes=config.max_body_bytes,
    )
    routes = [
        *status_routes(log, upstream, engine, learner_status),
        *feedback_routes(log, wake),
        *completion_routes(log),
        *(learner_routes(learning.learner, learning.registry, log) if learning else _refusing_routes()),
    ]
    handlers = {BurnishError: on_burnish_error, HTTPException: on_http_error}
    return App(guard, Starlette(routes=routes, exception_handlers=handlers), relay)


def _embedded_model(named: str | None) -> tuple[Path, str]:
    """Return the GGUF to serve and the model's name. Raises ConfigError, EngineError."""
    if named is None:
        return ensure_small_model(), SMALL_MODEL
    path = Path(named).expanduser().absolute()
    if path.suffix != ".gguf" or not path.is_file():
        raise ConfigError(
            f"model {named!r} is no GGUF file: name one that exists, leave model unset for the small model, "
            "or set upstream to a server that has it",
            param="model",
        )
    return path, re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower())


def _waker(learning: _Learning | None) -> Callable[[Feedback], None]:
    def wake(feedback: Feedback) -> None:
        if learning:
            learning.learner.wake()

    return wake


NO_LEARNING = "burnish cannot load versions into this upstream; it logs and takes ratings"


def _not_learning() -> dict[str, Any]:
    return {"state": "off", "reason": NO_LEARNING}


def _refusing_routes() -> list[Route]:
    """Answer for the routes of runs and versions where there can be none."""

    async def refuse(request: Request) -> Response:
        raise Conflict(NO_LEARNING, code="not_learning")

    paths = ("train", "runs", "runs/{rest:path}", "adapters", "adapters/{rest:path}")
    return [Route(f"/burnish/{path}", refuse, methods=["GET", "POST"]) for path in paths]


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
