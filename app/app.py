"""Builds the application from a configuration; starts and stops its parts in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial, wraps
from itertools import chain
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from burnish.adapters.hosts.fetch import cache_dir
from burnish.adapters.hosts.managed import ManagedEngine
from burnish.app.asgi import App, own_application
from burnish.app.observe import Gauges, Observer, metrics_routes
from burnish.app.status import Status, status_routes, summary
from burnish.app.upgrade import stop_after_upgrade
from burnish.config.config import Config, is_loopback
from burnish.config.model_names import DEFAULT_MODEL
from burnish.learner.engine import Engine
from burnish.learner.fates import fates_in
from burnish.learner.learning import Learning, NotLearning, cancelled, learning
from burnish.learner.reset import Outcome
from burnish.learner.routes import chat_actions, learner_routes, reset_route
from burnish.parts.datasets import record_routes
from burnish.parts.duels import Contest, Duels, duel_routes
from burnish.parts.judging import Judging, judging_routes
from burnish.parts.page import login_routes, openapi_route, page_routes
from burnish.parts.page.events import Events, Sources
from burnish.parts.rewards.best_of import BestOf
from burnish.parts.rewards.rewards import Rewards, Source
from burnish.parts.rewards.routes import reward_routes
from burnish.parts.rollouts import Pins, Rollouts, rollout_routes
from burnish.parts.signals import Signals
from burnish.proxy import data_dir
from burnish.proxy.access.access import Identity, may_steer_in_chat
from burnish.proxy.access.guard import Guard
from burnish.proxy.client_headers import LOCAL_CALLER
from burnish.proxy.feedback import Command, answer_command, command_route, completion_routes, feedback_routes
from burnish.proxy.feedback.answering import ACTION_HELP, Action
from burnish.proxy.feedback.shapes import Fates, rows_json
from burnish.proxy.http.errors import ConfigError, Conflict, Unavailable
from burnish.proxy.http.pool import Pool
from burnish.proxy.instructions import AddInstructions, Instructions, instruction_routes
from burnish.proxy.log import Keep, Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.log.faults import Rules
from burnish.proxy.records import Feedback
from burnish.proxy.relay.capturing import Capturing
from burnish.proxy.relay.commands import ChatCommands
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.large import READ_LIMIT_S
from burnish.proxy.relay.outbound import Outbound
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.upstreams import Upstreams, main_upstream, pool_of
from burnish.system.apart import Apart
from burnish.system.threads import cores
from burnish.training.reward_job import RewardJob

logger = logging.getLogger(__name__)

# A request to an engine that is down costs nothing, and people wait for it.
ASK_AGAIN_S = 2.0
PRUNE_EVERY_S = 600.0
"""Old completions are deleted a few minutes late."""


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

        def flights() -> Iterable[Flight]:
            return chain.from_iterable(relay.flights.values() for relay in observer.relays)

        events = Events(flights)
        stack.push_async_callback(events.close)

        def stored(entry: Stored) -> None:
            observer.stored(entry)
            events.stored(entry)
            for reader in readers:
                reader.stored()

        readers: list[Rewards | Signals] = []
        log = Log.open(config.log_file, stored)
        stack.callback(log.close)
        rewards = Rewards(log, config.data_dir, events.rewarded, config.reward.model)
        signals = Signals(log, config.data_dir, enabled=config.signals.enabled)
        readers += (rewards, signals)
        await stack.enter_async_context(_reading(readers))
        rollouts = Rollouts(log, data_dir.secret(config.data_dir))
        stack.push_async_callback(rollouts.close)
        stack.push_async_callback(cancelled, _pruning(config, log))
        pool = pool_of(config)
        stack.push_async_callback(pool.close)
        apart = stack.enter_context(closing(Apart(READ_LIMIT_S)))
        guard = Guard(config)
        _warn(config)
        opened = await stack.enter_async_context(learning(config, log, pool))
        composed = partial(
            _routes_and_relay,
            config,
            guard,
            log,
            pool,
            apart=apart,
            observer=observer,
            events=events,
            rewards=rewards,
            rollouts=rollouts,
            signals=signals,
            engine=engine,
        )
        app = App(guard, *composed(opened), rollouts.carried, observer.counts.refused)
        await rollouts.use(*_pins(opened))
        if upgrades:

            def in_run() -> bool:
                return isinstance(opened, Learning) and opened.learner.in_run

            watching = asyncio.get_running_loop().create_task(stop_after_upgrade(in_run, observer.in_flight))
            stack.push_async_callback(cancelled, watching)
        if isinstance(opened, NotLearning) and opened.ask_again:

            async def reopen() -> bool:
                nonlocal opened
                async with AsyncExitStack() as attempt:
                    found = await attempt.enter_async_context(learning(config, log, pool))
                    app.use(*composed(found))
                    await rollouts.use(*_pins(found))
                    opened = found
                    if isinstance(found, Learning):
                        stack.push_async_exit(attempt.pop_all())
                    return isinstance(found, NotLearning) and found.ask_again

            asking = asyncio.get_running_loop().create_task(_ask_until_known(reopen))
            stack.push_async_callback(cancelled, asking)
        yield app


def _pins(opened: Learning | NotLearning) -> tuple[Pins | None, str]:
    """Return what keeps the versions of rollouts loaded; None, and why, if burnish doesn't swap versions."""
    if isinstance(opened, NotLearning):
        return None, opened.reason
    return Pins(opened.engine.swap), ""


@asynccontextmanager
async def _reading(readers: Sequence[Rewards | Signals]) -> AsyncIterator[None]:
    """Let them follow the log."""
    async with AsyncExitStack() as stack:
        for each in readers:
            await each.start()
            stack.push_async_callback(each.stop)
        yield


async def _ask_until_known(ask: Callable[[], Awaitable[bool]]) -> None:
    """Ask an engine that was down until it answers."""
    wanted = True
    while wanted:
        await asyncio.sleep(ASK_AGAIN_S)
        try:
            wanted = await ask()
        except ConfigError as error:
            logger.error("%s; then restart burnish", error.message)
            return
        except Exception:
            # If this loop ended, burnish would only pass requests through from then on.
            logger.exception("the engine cannot be opened; trying again in %g s", ASK_AGAIN_S)


def _warn(config: Config) -> None:
    if not is_loopback(config.host) and config.admin_key is None:
        logger.warning(
            "admin_key isn't set, so nobody can train, roll back, read the log or erase over %s", config.host
        )


def _pruning(config: Config, log: Log) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(_prune_regularly(log, _limits(config)))


def _limits(config: Config) -> list[Keep]:
    """Return the limits that are set; a completion must be within all of them."""
    given, next_turns = config.log, config.train.next_turn
    limits = (
        Keep(given.keep_days, given.keep_completions, given.keep_rated, next_turns),
        Keep(days=given.keep_unrated_days, next_turns=next_turns),
    )
    return [each for each in limits if not each.all]


async def _prune_regularly(log: Log, limits: Sequence[Keep]) -> None:
    """Delete old completions according to the settings."""
    while limits:
        try:
            if gone := sum([await log.prune(each) for each in limits]):
                logger.info("deleted %d old completions from the log", gone)
        except Unavailable as error:
            logger.warning("old completions were not deleted from the log: %s", error)
        await asyncio.sleep(PRUNE_EVERY_S)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that our routes and the relay share until the engine changes."""

    config: Config
    guard: Guard
    log: Log
    pool: Pool
    observer: Observer
    events: Events
    rewards: Rewards
    rollouts: Rollouts
    signals: Signals
    learning: Learning | None
    why_not: str
    """Why burnish doesn't learn; "" if it does."""
    upstream: Upstreams
    instructions: Instructions
    started: ManagedEngine | None
    """The engine that burnish started."""

    @property
    def engine(self) -> Engine | None:
        return self.learning.engine if self.learning else None

    def live(self) -> int | None:
        """Return the number of the live version; None if burnish doesn't swap versions."""
        return self.engine.live()["version"] if self.engine else None

    @property
    def rules(self) -> Rules:
        train = self.config.train
        return Rules(train.rater_weights, train.objective, self.config.log.scrub, self.config.teachers)

    async def fates(self) -> Fates:
        """Return what the runs so far did with feedback."""
        versions = await asyncio.to_thread(self.learning.registry.versions) if self.learning else []
        return fates_in(versions)

    @property
    def status(self) -> Status:
        return Status(
            self.log,
            self.upstream,
            self.engine,
            self.learner_status,
            self.instructions_status,
            self.observer.in_flight,
            self.config,
            self.started,
            self.signals.status,
        )

    def sources(self) -> Sources:
        """Return what open pages see."""
        status, learning = self.status, self.learning

        async def rows(completion_ids: Collection[str]) -> list[dict[str, Any]]:
            found = await self.log.stored_completions(completion_ids)
            rated = any(each.feedback for each in found)
            return rows_json(found, self.rules, await self.fates() if rated else fates_in(()))

        async def ended_run(run_id: str) -> dict[str, Any]:
            assert learning  # else there was no run
            return learning.learner.shown(await self.log.run(run_id))

        return Sources(
            rows=rows,
            covered=self.log.covered,
            status=lambda: status.shown(LOCAL_CALLER),
            run=lambda: learning.learner.status()["run"] if learning and learning.learner.in_run else None,
            ended_run=ended_run,
            versions=lambda: learning and learning.registry.changes(),
        )

    def reward_source(self) -> Source:
        train = self.config.train
        ratings = partial(
            self.log.ratings,
            train.rater_weights,
            next_turns=train.next_turn,
            scrub=self.config.log.scrub,
            teachers=self.config.teachers,
        )
        settings = {"seed": train.seed, "threads": train.threads or max(1, cores() // 2)}
        if self.learning is None:
            return Source(ratings, RewardJob(why_no_base=self.why_not, **settings))
        job = RewardJob(
            base_weights=str(self.learning.weights.absolute()),
            base_digest=self.learning.base[1],
            weights_cache=str(cache_dir() / "weights"),
            **settings,
        )
        return Source(ratings, job)

    def duels(self, relay: Relay) -> Duels:
        contest = Contest(self.log, self.engine.swap, self.upstream.name, relay) if self.engine else None
        return Duels(self.log, contest, self.why_not, self.rules, self.on_feedback)

    def judging(self, relay: Relay) -> Judging:
        # Not the live version: it learns from the judge.
        base = f"{self.learning.base[0]}@base" if self.learning else DEFAULT_MODEL
        return Judging(
            self.log,
            relay,
            self.config,
            self.rules,
            base_model=base,
            upstream=self.upstream.name,
            on_feedback=self.on_feedback,
        )

    def learner_status(self) -> dict[str, Any]:
        return self.learning.learner.status() if self.learning else {"state": "off", "reason": self.why_not}

    async def instructions_status(self, caller: str) -> dict[str, Any]:
        return await self.instructions.status(caller, self.live())

    def on_feedback(self, feedback: Feedback) -> None:
        """Called with new feedback and with feedback that was undone."""
        self.observer.counts.rated(feedback)
        self.events.rated(feedback)
        self.instructions.changed(feedback.draft.rater)
        if self.learning:
            self.learning.learner.wake()

    async def start_over(self, reason: str) -> Outcome:
        """Start learning over. Raises Conflict, Unavailable."""
        if self.learning is None:
            raise Conflict(self.why_not, code="not_learning")
        outcome = await self.learning.reset(reason)
        await self.rewards.reset()
        self.events.all_changed()
        self.instructions.all_changed()
        return outcome

    async def on_forgotten(self, user: str) -> None:
        """Called when the log has erased a user. Raises Unavailable."""
        self.events.erased(user)
        self.rollouts.forgotten(user)
        await self.signals.forget(user)
        self.instructions.changed(user)
        if self.learning:
            await self.learning.learner.forget()

    def on_imported(self) -> None:
        """Called when records of another log, or of another program, were stored."""
        self.events.all_changed()
        self.instructions.all_changed()
        if self.learning:
            self.learning.learner.wake()

    async def answer(
        self,
        command: Command,
        messages: list[dict[str, Any]] | None,
        *,
        caller: str,
        session: str | None,
        identity: Identity,
        previous: str | None = None,
    ) -> str:
        """Carry out a ``/rl`` command and return the text that answers it."""

        async def status() -> str:
            live = self.engine.live() if self.engine else None
            added = await self.instructions_status(caller)
            return summary(await self.log.counts(), live, self.learner_status(), added)

        return await answer_command(
            command,
            messages,
            self.log,
            caller,
            session,
            identity=identity,
            previous=previous,
            rules=self.rules,
            status=status,
            on_feedback=self.on_feedback,
            actions=self._chat_actions(identity, caller),
        )

    def _chat_actions(self, identity: Identity, caller: str) -> Mapping[str, Action]:
        """Return what a caller may do by ``/rl``, besides rating."""
        if not may_steer_in_chat(identity, caller, self.config.owners):
            return {}
        if self.learning:
            return chat_actions(self.learning.learner, self.start_over, caller)

        async def refuse(_: str) -> str:
            return self.why_not

        return dict.fromkeys(ACTION_HELP, refuse)


def _routes_and_relay(
    config: Config,
    guard: Guard,
    log: Log,
    pool: Pool,
    opened: Learning | NotLearning,
    *,
    apart: Apart,
    observer: Observer,
    events: Events,
    rewards: Rewards,
    rollouts: Rollouts,
    signals: Signals,
    engine: ManagedEngine | None,
) -> tuple[ASGIApp, ASGIApp]:
    learns = opened if isinstance(opened, Learning) else None
    guard.knows_engine = isinstance(opened, Learning) or opened.known
    parts = _Parts(
        config,
        guard,
        log,
        pool,
        observer,
        events,
        rewards,
        rollouts,
        signals,
        learns,
        opened.reason if isinstance(opened, NotLearning) else "",
        Upstreams(learns.upstream if learns else main_upstream(config, pool), config, pool, guard),
        Instructions(log, learns.registry.versions if learns else list, on=config.instructions),
        engine,
    )
    events.use(parts.sources())
    rewards.source = parts.reward_source()
    signals.on_feedback = parts.on_feedback
    outbound = Outbound(pool, guard)
    relay = Relay(
        outbound=outbound,
        guard=guard,
        upstream=parts.upstream,
        log=log,
        steps=[
            ChatCommands(log, parts.answer),
            BestOf(rewards.score, config.reward.best_of_max),
            AddInstructions(parts.instructions, apart),
            Capturing(outbound, apart),
        ],
        config=config,
        traced=observer.traces is not None,
        apart=apart,
    )
    observer.relays.add(relay)
    return own_application(_routes(parts, relay)), relay


def _routes(parts: _Parts, relay: Relay) -> list[Route]:
    log, learns = parts.log, parts.learning
    gauges = Gauges(
        log=log,
        in_flight=parts.observer.in_flight,
        learner_status=parts.learner_status,
        live=parts.live,
        registry=learns.registry if learns else None,
    )
    routes = [
        *status_routes(parts.status),
        *page_routes(parts.config),
        *login_routes(parts.guard),
        parts.events.route(),
        *metrics_routes(parts.observer.counts, gauges),
        *feedback_routes(log, parts.on_feedback, parts.rules, parts.fates),
        command_route(parts.answer),
        *completion_routes(log, parts.on_forgotten, parts.rules, parts.fates),
        *instruction_routes(log, parts.instructions, parts.live),
        *duel_routes(parts.duels(relay)),
        *record_routes(log, parts.on_imported, parts.rules),
        *judging_routes(parts.judging(relay), log, parts.config.data_dir),
        *reward_routes(parts.rewards),
        *rollout_routes(parts.rollouts),
        reset_route(parts.start_over),
        *(
            learner_routes(learns.learner, learns.registry, learns.transfer, log, parts.config.data_dir)
            if learns
            else _refusing_routes(parts)
        ),
    ]
    return [*routes, openapi_route(routes)]


def _refusing_routes(parts: _Parts) -> list[Route]:
    """Return the routes of runs and versions; each answers 409 with the reason why burnish doesn't learn."""
    none = cast(Any, None)  # their handlers are replaced
    routes = learner_routes(none, none, none, parts.log, parts.config.data_dir)
    return [_refusing(route, parts.why_not) for route in routes]


def _refusing(route: Route, reason: str) -> Route:
    @wraps(route.endpoint)  # with its description
    async def refuse(request: Request) -> Response:
        raise Conflict(reason, code="not_learning")

    return Route(route.path, refuse, methods=list(route.methods or ()))
