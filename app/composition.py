"""Puts routes and relay together around an engine, and again when one that was down is found."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp

from burnish.adapters.hosts.managed import ManagedEngine
from burnish.app.asgi import own_application
from burnish.app.chat import ChatAnswers
from burnish.app.observe import Observer
from burnish.app.reactions import Reactions
from burnish.app.routes import own_routes
from burnish.app.status import Status
from burnish.config.config import Config
from burnish.learner.learning import Learning, NotLearning
from burnish.parts.core import Core
from burnish.parts.hooks import Hooks
from burnish.proxy.access.guard import Guard
from burnish.proxy.http.pool import Pool
from burnish.proxy.instructions import AddInstructions, Instructions
from burnish.proxy.log import Log
from burnish.proxy.relay.capturing import Capturing
from burnish.proxy.relay.commands import ChatCommands
from burnish.proxy.relay.outbound import Outbound
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.upstreams import Upstreams, main_upstream
from burnish.system.apart import WorkerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
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

    async def compose(self, opened: Learning | NotLearning) -> tuple[ASGIApp, ASGIApp]:
        """Return the application of our own routes, and the relay."""
        config, guard, log, parts = self.config, self.guard, self.log, self.hooks.parts
        learns = opened if isinstance(opened, Learning) else None
        why_not = opened.reason if isinstance(opened, NotLearning) else ""
        guard.knows_engine = isinstance(opened, Learning) or opened.known
        if learns:
            learns.registry.on_live = self.hooks.version
        upstream = Upstreams(
            learns.upstream if learns else main_upstream(config, self.pool), config, self.pool, guard
        )
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
        outbound = Outbound(self.pool, guard)
        core.relay = Relay(
            outbound=outbound,
            guard=guard,
            upstream=upstream,
            log=log,
            steps=[
                ChatCommands(log, chat.answer),
                *(step for part in parts for step in part.steps(core)),
                AddInstructions(instructions, self.apart),
                Capturing(outbound, self.apart),
            ],
            config=config,
            traced=self.observer.traces is not None,
            apart=self.apart,
        )
        self.observer.relays.add(core.relay)
        routes = own_routes(
            core,
            parts,
            status,
            chat,
            self.observer,
            on_erased=reactions.erased,
            start_over=reactions.start_over,
        )
        return own_application(routes), core.relay
