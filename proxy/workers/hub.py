"""Starts the workers and serves them, in the process with the log, the engine and the learning.

The hub sends each worker the versions it may use whenever they change, and the worker confirms. Workers send which
versions they use, and the completions for the log. They ask the hub for our own routes, ``/rl`` commands and
instructions. A request waits until the hub has every completion that any client has got an answer to.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from starlette.types import ASGIApp, Message

from burnish.adapters.route import LiveRoute
from burnish.proxy.access import Heard
from burnish.proxy.config import Config
from burnish.proxy.errors import Unavailable
from burnish.proxy.feedback.commands import Answer
from burnish.proxy.http.carried import Carried, Carriers, Named
from burnish.proxy.instructions.instructions import Instructions
from burnish.proxy.log import Log
from burnish.proxy.page.events import Events
from burnish.proxy.rate_limited import ADMITTED
from burnish.proxy.rewards.scores import Scored, Scores, Written
from burnish.proxy.workers.link import EngineState, Link, OnMessage, OnRequest

logger = logging.getLogger(__name__)

# A worker that dies at once dies again, so the pause doubles up to a limit. It starts over when one has lived so long.
FIRST_PAUSE_S, LAST_PAUSE_S, LIVED_S = 0.1, 5.0, 30.0
# A worker that has answered everything ends in milliseconds.
END_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """Answers requests of workers. Replaced when an engine that was down is found."""

    own: ASGIApp
    answer: Answer
    instructions: Instructions
    scores: Scores
    rollouts: Carriers
    known: bool
    """See ``Guard.knows_engine``."""
    base: tuple[str, str, int | None] | None = None
    route: LiveRoute | None = None


class Hub:
    """All workers together. For the route they are the other processes that lease versions."""

    def __init__(self, log: Log, refused: Callable[[int], None], events: Events) -> None:
        """``refused`` gets the status of each error that a worker sends."""
        self.log = log
        self.refused = refused
        self.events = events
        events.watch_workers = self._watch
        self._watched = False
        """Whether the workers report the answers that they are giving."""
        self._workers: set[Worker] = set()
        self._services: Services | None = None

    def use(self, services: Services) -> None:
        self._services = services
        if services.route:
            services.route.others = self
        self.changed()

    async def serve(self, worker: Worker) -> None:
        """Serve a worker until it is gone."""
        self._workers.add(worker)
        worker.send_state(self._state())
        worker.link.send("watch", self._watched)
        try:
            await worker.link.closed.wait()
        finally:
            self._workers.discard(worker)
            self.events.worker_ended(worker)
            worker.confirmed.set()
            self.uses(worker, Counter())

    @property
    def _route(self) -> LiveRoute | None:
        return self._services.route if self._services else None

    # -- called by the route -------------------------------------------------------------------------------------------

    def changed(self) -> None:
        for worker in self._workers:
            worker.send_state(self._state())

    def in_flight(self, version: int) -> int:
        """Return how many leases on a version the workers hold."""
        return sum(worker.used[version] for worker in self._workers)

    async def seen(self) -> None:
        """Return when every worker has confirmed the state of the engine."""
        for worker in tuple(self._workers):
            await worker.confirmed.wait()

    def _state(self) -> EngineState:
        route = self._route
        if self._services is None or route is None:
            return EngineState(None, known=self._services is not None and self._services.known)
        resident = tuple(route.resident().values())
        asleep = route.asleep is not None
        return EngineState(self._services.base, route.live, resident, asleep, self._services.known)

    def answering(self) -> int:
        """Return how many completions the workers are answering, as of their last confirmation."""
        return sum(worker.answering for worker in self._workers)

    def _watch(self, on: bool) -> None:
        self._watched = on
        for worker in self._workers:
            worker.link.send("watch", on)

    # -- messages of workers -------------------------------------------------------------------------------------------

    def uses(self, worker: Worker, used: Counter[int]) -> None:
        before, worker.used = worker.used, used
        if route := self._route:
            for version in before:
                route.check_drained(version)

    def lost(self, worker: Worker, url: str) -> None:
        """Report to the route that a worker found nothing at a URL, and send the worker the state in any case."""
        if self._route:
            self._route.lost(url)
        worker.send_state(self._state())

    def wake(self) -> None:
        """Wake a sleeping engine: a worker has a request for it."""
        if self._route and self._route.asleep:
            self._route.asleep.set()

    # -- requests of workers -------------------------------------------------------------------------------------------

    async def own(self, asked: tuple[dict[str, Any], bytes]) -> list[Message]:
        """Answer a request (scope, body) to one of our own routes with ASGI messages."""
        services = await self._caught_up()
        scope, body = asked
        sent: list[Message] = []
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return requests.pop() if requests else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await services.own(scope, receive, send)
        return sent

    async def own_stream(self, worker: Worker, asked: tuple[int, dict[str, Any]]) -> None:
        """Answer a request (number, scope) to a route of ours whose answer goes on and on, until the client leaves.

        The worker takes each message when its client has taken the one before.
        """
        services = await self._caught_up()
        number, scope = asked
        left = worker.left[number] = asyncio.Event()

        async def receive() -> Message:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if not await worker.link.ask("part", (number, message)):
                left.set()

        try:
            await services.own(scope, receive, send)
        finally:
            del worker.left[number]

    async def answer(self, asked: tuple[Any, ...]) -> str:
        services = await self._caught_up()
        command, messages, caller, session, identity, previous = asked
        return await services.answer(
            command, messages, caller=caller, session=session, identity=identity, previous=previous
        )

    async def held_up_to(self, asked: tuple[str, str, str | None]) -> Any:
        await self._caught_up()
        return await self.log.held_up_to(*asked)

    async def rated_in_chat(self, asked: tuple[list[dict[str, Any]], str, str | None]) -> bool:
        await self._caught_up()
        return await self.log.rated_in_chat(*asked)

    async def addition(self, asked: tuple[str, int | None, Heard]) -> Any:
        return await self._services.instructions.addition(*asked) if self._services else None

    async def score(self, asked: tuple[Sequence[dict[str, Any]], Sequence[Written]]) -> Scored:
        if self._services is None:
            raise Unavailable("burnish is starting: try again in a moment")
        return await self._services.scores.score(*asked)

    async def carried(self, named: Named) -> Carried:
        if self._services is None:
            raise Unavailable("burnish is starting: try again in a moment")
        return await self._services.rollouts.carried(named)

    async def _caught_up(self) -> Services:
        """Wait until every completion has come that a client has got an answer to."""
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.catch_up())
        if self._services is None:
            raise Unavailable("burnish is starting: try again in a moment")
        return self._services


class Worker:
    def __init__(self, hub: Hub, report_up: Callable[[], None]) -> None:
        """``report_up`` is called when it takes requests."""
        self.used: Counter[int] = Counter()
        self.answering = 0
        self.confirmed = asyncio.Event()
        self.left: dict[int, asyncio.Event] = {}
        """By the number of a stream: set when its client has left."""
        self._sent = 0
        on_message: dict[str, OnMessage] = {
            "capture": hub.log.capture,
            "refused": hub.refused,
            "uses": lambda used: hub.uses(self, used),
            "lost": lambda url: hub.lost(self, url),
            "wake": lambda _: hub.wake(),
            "confirm": self._confirm,
            "news": lambda news: hub.events.news(self, news),
            "left": self._note_left,
            "logged": _log,
            "up": lambda _: report_up(),
        }
        answering = (
            hub.own,
            hub.answer,
            hub.held_up_to,
            hub.rated_in_chat,
            hub.addition,
            hub.score,
            hub.carried,
        )
        on_request: dict[str, OnRequest] = {answer.__name__: answer for answer in answering}
        on_request["own_stream"] = partial(hub.own_stream, self)
        self.link = Link(on_message, on_request)

    def send_state(self, state: EngineState) -> None:
        self.confirmed.clear()
        self._sent += 1
        self.link.send("state", (self._sent, state))

    async def catch_up(self) -> None:
        """Return when everything that it has sent by now has come; at once when it is gone."""
        with suppress(Unavailable):
            self.answering = await self.link.ask("in_flight")

    def _note_left(self, number: int) -> None:
        if left := self.left.get(number):
            left.set()

    def _confirm(self, number: int) -> None:
        if number == self._sent:
            self.confirmed.set()


def _log(content: tuple[str, int, str, str | None]) -> None:
    """Log what a worker has logged."""
    name, level, text, trace = content
    record = logging.LogRecord(name, level, __file__, 0, text, (), None)
    record.exc_text = trace
    setattr(record, ADMITTED, True)
    logging.getLogger(name).handle(record)


# -- processes ---------------------------------------------------------------------------------------------------------


async def run_workers(
    hub: Hub, config: Config, listener: socket.socket, stopping: asyncio.Event, on_ready: Callable[[], None]
) -> None:
    """Run ``config.workers`` processes that answer at a socket until ``stopping`` is set, and all of them have ended.

    ``on_ready`` is called when the first of them takes requests.
    """
    # Each worker reports that it is up, and the first report counts.
    run_one = partial(_run_one, hub, config, listener, stopping, cache(on_ready))
    async with asyncio.TaskGroup() as group:
        for _ in range(config.workers):
            group.create_task(_keep_running(run_one, stopping))


async def _keep_running(run_one: Callable[[], Awaitable[int]], stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    pause_s = FIRST_PAUSE_S
    while not stopping.is_set():
        began = loop.time()
        status = await run_one()
        if stopping.is_set():
            return
        logger.error(
            "a worker ended (status %d): its requests were cut, and another worker takes its place", status
        )
        pause_s = FIRST_PAUSE_S if loop.time() - began > LIVED_S else min(2 * pause_s, LAST_PAUSE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()


async def _run_one(
    hub: Hub, config: Config, listener: socket.socket, stopping: asyncio.Event, report_up: Callable[[], None]
) -> int:
    ours, theirs = socket.socketpair()
    with theirs:
        fds = (listener.fileno(), theirs.fileno())
        # A session of its own: Ctrl-C in the terminal reaches only this process, which lets the workers finish.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "burnish.proxy.workers.worker", *map(str, fds)),
            pass_fds=fds,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    worker = Worker(hub, report_up)
    await worker.link.connect(ours)
    worker.link.send("config", config)
    async with asyncio.TaskGroup() as group:
        stop = group.create_task(_stop(worker, config, stopping))
        try:
            await hub.serve(worker)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_LIMIT_S):
                    await process.wait()
        finally:
            stop.cancel()
            if process.returncode is None:
                process.kill()
    return await process.wait()


async def _stop(worker: Worker, config: Config, stopping: asyncio.Event) -> None:
    await stopping.wait()
    worker.link.send("stop")
    await asyncio.sleep(config.stop_timeout_s + END_LIMIT_S)
    worker.link.close()  # it did not end by itself
