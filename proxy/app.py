"""The one place of composition: builds the parts from a configuration and starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from burnish.proxy.asgi import App, on_burnish_error, on_http_error
from burnish.proxy.config import Config
from burnish.proxy.errors import BurnishError, Conflict, Unavailable
from burnish.proxy.feedback import Command, answer_command, command_route, completion_routes, feedback_routes
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.pool import Pool
from burnish.proxy.instructions import Instructions, instruction_routes
from burnish.proxy.learner.routes import learner_routes
from burnish.proxy.learner.steering import actions
from burnish.proxy.learning import Learning, NotLearning, learning
from burnish.proxy.log import Keep, Log
from burnish.proxy.observe import Gauges, Observer, metrics_routes
from burnish.proxy.records import Feedback
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.routing import RemoteUpstream, Upstream
from burnish.proxy.status import in_words, status_routes
from burnish.proxy.workers.hub import Hub, Services

logger = logging.getLogger(__name__)

# A refused connection costs nothing, and people wait for the first version.
ASK_AGAIN_S = 2.0
PRUNE_EVERY_S = 600.0
"""What is too old goes a few minutes later."""


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[tuple[App, Hub | None]]:
    """Start every part, give the application, and stop the parts in reverse order.

    With more than one worker the hub is given, too, through which they answer.

    Raises ConfigError; EngineError when the embedded engine or its model cannot be had.
    """
    async with AsyncExitStack() as stack:
        observer = Observer.open(os.environ)
        stack.push_async_callback(asyncio.to_thread, observer.close)
        log = Log.open(config.log_file, observer.stored)
        stack.callback(log.close)
        keep = Keep(config.log.keep_days, config.log.keep_completions, config.log.keep_rated)
        if not keep.all:
            pruning = asyncio.get_running_loop().create_task(_prune_now_and_then(log, keep))
            stack.push_async_callback(_cancelled, pruning)
        pool = Pool(config)
        stack.push_async_callback(pool.close)
        guard = Guard(config)
        opened = await stack.enter_async_context(learning(config, log, pool))
        hub = Hub(log, observer.counts.refused) if config.workers > 1 else None
        if hub:
            observer.in_workers = hub.answering
        composed = partial(_routes_and_relay, config, guard, log, pool, observer=observer, hub=hub)
        app = App(guard, *composed(opened), observer.counts.refused)
        if isinstance(opened, NotLearning) and opened.ask_again:

            async def reopen() -> bool:
                async with AsyncExitStack() as attempt:
                    found = await attempt.enter_async_context(learning(config, log, pool))
                    app.become(*composed(found))
                    if isinstance(found, Learning):
                        stack.push_async_exit(attempt.pop_all())
                    return isinstance(found, NotLearning) and found.ask_again

            asking = asyncio.get_running_loop().create_task(_again_and_again(reopen))
            stack.push_async_callback(_cancelled, asking)
        yield app, hub


async def _again_and_again(ask: Callable[[], Awaitable[bool]]) -> None:
    """Ask an engine that was not up until it says what it is."""
    wanted = True
    while wanted:
        await asyncio.sleep(ASK_AGAIN_S)
        try:
            wanted = await ask()
        except Exception:
            # Without this loop burnish passes through for ever, and nobody would know why.
            logger.exception("the engine cannot be opened; trying again in %g s", ASK_AGAIN_S)


async def _prune_now_and_then(log: Log, keep: Keep) -> None:
    """Take out of the log what need not be kept any longer."""
    while True:
        try:
            if gone := await log.prune(keep):
                logger.info("took %d completions out of the log", gone)
        except Unavailable as error:
            logger.warning("nothing was taken out of the log: %s", error)
        await asyncio.sleep(PRUNE_EVERY_S)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _routes_and_relay(
    config: Config,
    guard: Guard,
    log: Log,
    pool: Pool,
    opened: Learning | NotLearning,
    *,
    observer: Observer,
    hub: Hub | None,
) -> tuple[ASGIApp, ASGIApp]:
    parts = opened if isinstance(opened, Learning) else None
    why_not = "" if isinstance(opened, Learning) else opened.reason
    upstream: Upstream = parts.upstream if parts else RemoteUpstream(config, pool)
    engine = parts.engine if parts else None
    learner_status = parts.learner.status if parts else partial(_not_learning, why_not)
    instructions = Instructions(log, parts.registry.versions if parts else list, on=config.instructions)
    on_feedback = _listener(parts, instructions, observer)

    def live() -> int | None:
        return engine.live()["version"] if engine else None

    async def answer(
        command: Command,
        messages: list[dict[str, Any]] | None,
        *,
        caller: str,
        session: str | None,
        previous: str | None = None,
    ) -> str:
        async def status() -> str:
            added = await instructions.status(caller, live())
            return in_words(await log.counts(), engine.live() if engine else None, learner_status(), added)

        return await answer_command(
            command,
            messages,
            log,
            caller,
            session,
            previous=previous,
            status=status,
            on_feedback=on_feedback,
            actions=actions(parts.learner, caller) if parts and caller in config.owners else None,
        )

    relay = Relay(
        pool=pool,
        upstream=upstream,
        guard=guard,
        log=log,
        answer=answer,
        instructions=instructions,
        max_body_bytes=config.max_body_bytes,
        total_timeout_s=config.total_timeout_s,
        traced=observer.traces is not None,
    )
    observer.relays.add(relay)
    gauges = Gauges(
        log=log,
        in_flight=observer.in_flight,
        learner_status=learner_status,
        live=live,
        registry=parts.registry if parts else None,
    )
    routes = [
        *status_routes(
            log,
            upstream,
            engine,
            learner_status,
            lambda caller: instructions.status(caller, live()),
            has_key=config.upstream_api_key is not None,
        ),
        *metrics_routes(observer.counts, gauges),
        *feedback_routes(log, on_feedback, config.train.rater_weights),
        command_route(answer),
        *completion_routes(log, instructions.changed),
        *instruction_routes(log, instructions, live),
        *(
            learner_routes(parts.learner, parts.registry, parts.transfer, log)
            if parts
            else _refusing_routes(why_not)
        ),
    ]
    handlers = {BurnishError: on_burnish_error, HTTPException: on_http_error}
    own = Starlette(routes=routes, exception_handlers=handlers)
    if hub:
        route = (parts.base, parts.route) if parts else (None, None)
        hub.use(Services(own, answer, instructions, *route))
    return own, relay


def _listener(
    parts: Learning | None, instructions: Instructions, observer: Observer
) -> Callable[[Feedback], None]:
    """Return what is told of new feedback, and of feedback that was taken back."""

    def on_feedback(feedback: Feedback) -> None:
        observer.counts.rated(feedback)
        instructions.changed(feedback.draft.rater)
        if parts:
            parts.learner.wake()

    return on_feedback


def _not_learning(reason: str) -> dict[str, Any]:
    return {"state": "off", "reason": reason}


def _refusing_routes(reason: str) -> list[Route]:
    """Answer for the routes of runs and versions where there can be none."""

    async def refuse(request: Request) -> Response:
        raise Conflict(reason, code="not_learning")

    paths = ("train", "pause", "resume", "runs", "runs/{rest:path}", "adapters", "adapters/{rest:path}")
    return [Route(f"/burnish/{path}", refuse, methods=["GET", "POST"]) for path in paths]
