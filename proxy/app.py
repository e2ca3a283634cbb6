"""The one place of composition: builds the parts from a configuration and starts and stops them in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from burnish.proxy.asgi import App, on_burnish_error, on_http_error
from burnish.proxy.config import Config
from burnish.proxy.errors import BurnishError, Conflict
from burnish.proxy.feedback import answer_command, completion_routes, feedback_routes
from burnish.proxy.learner.routes import learner_routes
from burnish.proxy.learning import Learning, learning
from burnish.proxy.log import Log
from burnish.proxy.records import Feedback
from burnish.proxy.relay.guard import Guard
from burnish.proxy.relay.pool import Pool
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.routing import RemoteUpstream, Upstream
from burnish.proxy.status import in_words, status_routes
from burnish.proxy.surfaces import SURFACES

LOG_FILE = "burnish.db"


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
        opened = await stack.enter_async_context(learning(config, log, pool))
        yield _application(config, log, pool, opened)


def _application(config: Config, log: Log, pool: Pool, opened: Learning | str) -> App:
    parts = opened if isinstance(opened, Learning) else None
    why_not = "" if isinstance(opened, Learning) else opened
    upstream: Upstream = parts.upstream if parts else RemoteUpstream(config, pool)
    engine = parts.engine if parts else None
    learner_status = parts.learner.status if parts else partial(_not_learning, why_not)
    guard = Guard(config)
    wake = _waker(parts)

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
        *(learner_routes(parts.learner, parts.registry, log) if parts else _refusing_routes(why_not)),
    ]
    handlers = {BurnishError: on_burnish_error, HTTPException: on_http_error}
    return App(guard, Starlette(routes=routes, exception_handlers=handlers), relay)


def _waker(parts: Learning | None) -> Callable[[Feedback], None]:
    def wake(feedback: Feedback) -> None:
        if parts:
            parts.learner.wake()

    return wake


def _not_learning(reason: str) -> dict[str, Any]:
    return {"state": "off", "reason": reason}


def _refusing_routes(reason: str) -> list[Route]:
    """Answer for the routes of runs and versions where there can be none."""

    async def refuse(request: Request) -> Response:
        raise Conflict(reason, code="not_learning")

    paths = ("train", "runs", "runs/{rest:path}", "adapters", "adapters/{rest:path}")
    return [Route(f"/burnish/{path}", refuse, methods=["GET", "POST"]) for path in paths]
