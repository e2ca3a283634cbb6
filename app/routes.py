"""burnish's own routes: those of the core, and those of its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from burnish.app.chat import ChatAnswers
from burnish.app.observe import Gauges, Observer, metrics_routes
from burnish.app.status import Status, status_routes
from burnish.learner.routes import StartOver, learner_routes, reset_route
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.parts.page import openapi_route
from burnish.proxy.feedback import command_route, completion_routes, feedback_routes
from burnish.proxy.http.errors import Conflict
from burnish.proxy.instructions import instruction_routes


def own_routes(
    core: Core,
    parts: Sequence[Part],
    status: Status,
    chat: ChatAnswers,
    observer: Observer,
    *,
    on_erased: Callable[[str], Awaitable[None]],
    start_over: StartOver,
) -> list[BaseRoute]:
    """Return all routes, and last the one that describes them."""
    log, learning = core.log, core.learning
    gauges = Gauges(
        log=log,
        in_flight=observer.in_flight,
        learner_status=core.learner_status,
        live=core.live,
        registry=learning.registry if learning else None,
    )
    routes: list[BaseRoute] = [
        *status_routes(status),
        *metrics_routes(observer.counts, gauges),
        *feedback_routes(log, core.on_feedback, core.rules, core.fates),
        command_route(chat.answer),
        *completion_routes(log, on_erased, core.rules, core.fates),
        *instruction_routes(log, core.instructions, core.live),
        *(route for part in parts for route in part.routes(core)),
        reset_route(start_over),
    ]
    if learning:
        folder = core.config.data_dir
        routes += learner_routes(learning.learner, learning.registry, learning.transfer, log, folder)
    else:
        routes += _refusing_routes(core)
    return [*routes, openapi_route([route for route in routes if isinstance(route, Route)])]


def _refusing_routes(core: Core) -> list[Route]:
    """Return the routes of runs and versions; each answers 409 with the reason why burnish doesn't learn."""
    none = cast(Any, None)  # their handlers are replaced
    routes = learner_routes(none, none, none, core.log, core.config.data_dir)
    return [_refusing(route, core.why_not) for route in routes]


def _refusing(route: Route, reason: str) -> Route:
    @wraps(route.endpoint)  # with its description
    async def refuse(request: Request) -> Response:
        raise Conflict(reason, code="not_learning")

    return Route(route.path, refuse, methods=list(route.methods or ()))
