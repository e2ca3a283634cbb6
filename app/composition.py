"""Puts routes and relay together around an engine, and again when one that was down is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from burnish.adapters.hosts.managed import ManagedEngine
from burnish.app.asgi import own_application
from burnish.app.chat import ChatAnswers
from burnish.app.observe import Gauges, Observer, metrics_routes
from burnish.app.status import Status, status_routes
from burnish.config.config import Config
from burnish.learner.learning import Learning, NotLearning
from burnish.learner.reset import Outcome
from burnish.learner.routes import learner_routes, reset_route
from burnish.parts.core import Core
from burnish.parts.hooks import Hooks
from burnish.parts.page.openapi import openapi_route
from burnish.proxy.access.guard import Guard
from burnish.proxy.feedback import command_route, completion_routes, feedback_routes
from burnish.proxy.http.errors import Conflict
from burnish.proxy.http.pool import Pool
from burnish.proxy.instructions import AddInstructions, Instructions, instruction_routes
from burnish.proxy.log import Log
from burnish.proxy.records import Feedback
from burnish.proxy.relay.capturing import Capturing
from burnish.proxy.relay.commands import ChatCommands
from burnish.proxy.relay.outbound import Outbound
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.upstreams import Upstreams, main_upstream
from burnish.system.apart import WorkerProcess


@dataclass(slots=True, kw_only=True)
class Composition:
    """What lasts while burnish runs."""

    config: Config
    guard: Guard
    log: Log
    pool: Pool
    apart: WorkerProcess
    observer: Observer
    hooks: Hooks
    started: ManagedEngine | None
    """The engine that burnish started, if it is the upstream."""
    learning: Learning | None = field(default=None, init=False)

    @property
    def in_run(self) -> bool:
        return self.learning is not None and self.learning.learner.in_run

    async def pruned(self) -> None:
        """Called when the log has deleted old completions. Raises OSError, Unavailable."""
        if self.learning:
            await self.learning.learner.drop_erased()

    async def compose(self, opened: Learning | NotLearning) -> tuple[ASGIApp, ASGIApp]:
        """Return the application of our own routes, and the relay."""
        config, guard, log, parts = self.config, self.guard, self.log, self.hooks.parts
        self.learning = learns = opened if isinstance(opened, Learning) else None
        why_not = opened.reason if isinstance(opened, NotLearning) else ""
        guard.knows_engine = isinstance(opened, Learning) or opened.known
        if learns:
            learns.registry.on_live = self.hooks.version
        main = learns.upstream if learns else main_upstream(config, self.pool)
        upstream = Upstreams(main, config, self.pool, guard)
        instructions = Instructions(log, learns.registry.versions if learns else list, on=config.instructions)
        reactions = Reactions(self.observer, instructions, learns, why_not, self.hooks)
        core = Core(
            config=config,
            guard=guard,
            log=log,
            learning=learns,
            why_not=why_not,
            upstream=upstream,
            instructions=instructions,
            status=lambda caller: status.shown(caller),  # noqa: PLW0108 – it needs the core itself
            on_feedback=reactions.feedback,
            on_imported=reactions.imported,
        )
        status = Status(core, self.observer.in_flight, self.started, self.hooks)
        for part in parts:
            await part.use(core)
        chat = ChatAnswers(core, reactions.start_over)
        core.relay = self._relay(core, chat, Outbound(self.pool, guard))
        self.observer.relays.add(core.relay)
        return own_application(self._routes(core, status, chat, reactions)), core.relay

    def _routes(self, core: Core, status: Status, chat: ChatAnswers, reactions: Reactions) -> list[BaseRoute]:
        """Return all routes of ours, and last the one that describes them."""
        log, learns = core.log, core.learning
        gauges = Gauges(
            log=log,
            in_flight=self.observer.in_flight,
            learner_status=core.learner_status,
            live=core.live,
            registry=learns.registry if learns else None,
        )
        folder = core.config.data_dir
        routes: list[BaseRoute] = [
            *status_routes(status),
            *metrics_routes(self.observer.counts, gauges),
            *feedback_routes(log, core.on_feedback, core.rules, core.fates),
            command_route(chat.answer),
            *completion_routes(log, reactions.erased, core.rules, core.fates),
            *instruction_routes(log, core.instructions, core.live),
            *(route for part in self.hooks.parts for route in part.routes(core)),
            reset_route(reactions.start_over),
            *(
                learner_routes(learns.learner, learns.registry, learns.transfer, log, folder)
                if learns
                else _refusing_routes(core)
            ),
        ]
        return [*routes, openapi_route([route for route in routes if isinstance(route, Route)])]

    def _relay(self, core: Core, chat: ChatAnswers, outbound: Outbound) -> Relay:
        steps = [
            ChatCommands(self.log, chat.answer),
            *(step for part in self.hooks.parts for step in part.steps(core)),
            AddInstructions(core.instructions, self.apart),
            Capturing(outbound, self.apart),
        ]
        return Relay(
            outbound=outbound,
            guard=self.guard,
            upstream=core.upstream,
            log=self.log,
            steps=steps,
            config=self.config,
            traced=self.observer.traces is not None,
            apart=self.apart,
        )


@dataclass(frozen=True, slots=True)
class Reactions:
    """What follows from feedback, imports, erasures and a new start: first in the core, then in the parts."""

    observer: Observer
    instructions: Instructions
    learning: Learning | None
    why_not: str
    """Why burnish doesn't learn, if it doesn't."""
    hooks: Hooks

    def feedback(self, feedback: Feedback) -> None:
        """Called with new feedback and with feedback that was undone."""
        self.observer.counts.rated(feedback)
        self.instructions.changed(feedback.draft.rater)
        if self.learning:
            self.learning.learner.wake()
        self.hooks.rated(feedback)

    def imported(self) -> None:
        """Called when records of another log, or of another program, were stored."""
        self.instructions.all_changed()
        if self.learning:
            self.learning.learner.wake()
        self.hooks.imported()

    async def erased(self, user: str) -> None:
        """Called when the log has erased a user. Raises Unavailable."""
        self.instructions.changed(user)
        if self.learning:
            await self.learning.learner.forget()
        await self.hooks.erased(user)

    async def start_over(self, reason: str) -> Outcome:
        """Raises Conflict, Unavailable."""
        if self.learning is None:
            raise Conflict(self.why_not, code="not_learning")
        outcome = await self.learning.reset(reason)
        self.instructions.all_changed()
        await self.hooks.reset()
        return outcome


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
