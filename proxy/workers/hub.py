"""The workers, as the process sees them that keeps the log, the engine and the learning.

Each worker is told what the route offers whenever that changes, and says that it has seen it; it tells which versions
it uses, and what was said (captures). What only this process can answer – our own routes, ``/rl`` commands,
instructions – a worker asks for. It is answered behind all that any client had got an answer to before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from burnish.adapters.route import LiveRoute
from burnish.proxy.errors import Unavailable
from burnish.proxy.instructions.instructions import Instructions
from burnish.proxy.log import Log
from burnish.proxy.records import Completion, Passthrough
from burnish.proxy.relay.relay import Answer
from burnish.proxy.workers.link import Link, Told
from burnish.proxy.workers.offer import Offer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What this process answers with; new ones when an engine that was down is found."""

    own: ASGIApp
    answer: Answer
    instructions: Instructions
    base: tuple[str, str] | None = None
    route: LiveRoute | None = None


class Hub:
    """All workers together; for the route, whoever leases versions elsewhere."""

    def __init__(self, log: Log, refused: Callable[[int], None]) -> None:
        """``refused`` is told the status of each error that leaves from a worker."""
        self._log = log
        self.refused = refused
        self._workers: set[Worker] = set()
        self._parts: Parts | None = None

    def become(self, parts: Parts) -> None:
        """Answer with other parts from now on."""
        self._parts = parts
        if parts.route:
            parts.route.elsewhere = self
        self.changed()

    async def joined(self, worker: Worker) -> None:
        """Serve a worker until it is gone."""
        self._workers.add(worker)
        worker.show(self._offer())
        try:
            await worker.link.closed.wait()
        finally:
            self._workers.discard(worker)
            self._left(worker)

    @property
    def _route(self) -> LiveRoute | None:
        return self._parts.route if self._parts else None

    def _left(self, worker: Worker) -> None:
        used, worker.used = worker.used, Counter()
        worker.has_seen.set()
        if route := self._route:
            for version in used:
                route.ended(version)

    # -- what the route asks -------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Show every worker what is offered now."""
        for worker in self._workers:
            worker.show(self._offer())

    def in_flight(self, version: int) -> int:
        """Return how many leases on a version the workers have out."""
        return sum(worker.used[version] for worker in self._workers)

    async def seen(self) -> None:
        """Return when every worker has seen what is offered now."""
        for worker in tuple(self._workers):
            await worker.has_seen.wait()

    def _offer(self) -> Offer:
        route = self._route
        if self._parts is None or route is None:
            return Offer(None)
        resident = tuple(route.resident().values())
        return Offer(self._parts.base, route.live, resident, route.asleep is not None)

    def answering(self) -> int:
        """Return how many completions the workers are answering, as of the last question to them."""
        return sum(worker.answering for worker in self._workers)

    # -- what workers say ----------------------------------------------------------------------------------------------

    def capture(self, entry: Completion | Passthrough) -> None:
        """Log what a worker has answered."""
        self._log.capture(entry)

    def uses(self, worker: Worker, used: Counter[int]) -> None:
        """Take note of the versions that a worker has leased."""
        before, worker.used = worker.used, used
        if route := self._route:
            for version in before:
                route.ended(version)

    def lost(self, worker: Worker, url: str) -> None:
        """Take note that a worker found nothing at a URL; what it may use instead is shown in any case."""
        if self._route:
            self._route.lost(url)
        worker.show(self._offer())

    def wanted_awake(self) -> None:
        """Wake a sleeping engine: a worker has a request for it."""
        if self._route and self._route.asleep:
            self._route.asleep.set()

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def own(self, asked: tuple[dict[str, Any], bytes]) -> list[Message]:
        """Answer a request for one of our own routes, given as scope and body, with the messages of its answer."""
        parts = await self._behind_all()
        scope, body = asked
        sent: list[Message] = []
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return requests.pop() if requests else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await parts.own(scope, receive, send)
        return sent

    async def answer(self, asked: tuple[Any, ...]) -> str:
        """Carry out a ``/rl`` command."""
        parts = await self._behind_all()
        command, messages, caller, session, previous = asked
        return await parts.answer(command, messages, caller=caller, session=session, previous=previous)

    async def held(self, asked: tuple[str, str, str | None]) -> list[dict[str, Any]] | None:
        """Return the messages up to a response, and the response."""
        await self._behind_all()
        return await self._log.held(*asked)

    async def addition(self, asked: tuple[str, int | None]) -> Any:
        """Return what is added to a caller's system prompt."""
        parts = self._parts
        return await parts.instructions.addition(*asked) if parts else None

    async def _behind_all(self) -> Parts:
        """Wait until every capture has come in that belongs to an answer somebody has."""
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.told_all())
        if self._parts is None:
            raise Unavailable("burnish is starting: try again in a moment")
        return self._parts


class Worker:
    """One worker."""

    def __init__(self, hub: Hub) -> None:
        self.up = asyncio.Event()
        """Set when it takes requests."""
        self.used: Counter[int] = Counter()
        self.answering = 0
        self.has_seen = asyncio.Event()
        self._shown = 0
        told: dict[str, Told] = {
            "capture": hub.capture,
            "refused": hub.refused,
            "uses": lambda used: hub.uses(self, used),
            "lost": lambda url: hub.lost(self, url),
            "awake": lambda _: hub.wanted_awake(),
            "seen": self._seen,
            "up": lambda _: self.up.set(),
        }
        self.link = Link(
            told, {"own": hub.own, "answer": hub.answer, "held": hub.held, "addition": hub.addition}
        )

    def show(self, offer: Offer) -> None:
        """Tell it what is offered."""
        self.has_seen.clear()
        self._shown += 1
        self.link.tell("offer", (self._shown, offer))

    async def told_all(self) -> None:
        """Return when all that it had to tell by now has come; at once when it is gone."""
        with suppress(Unavailable):
            self.answering = await self.link.ask("told")

    def _seen(self, number: int) -> None:
        if number == self._shown:
            self.has_seen.set()
