"""One worker process: answers requests, and asks the hub for everything that exists only once.

Started by ``hub`` as ``python -m burnish.proxy.workers.worker LISTENER LINK``, both file descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from typing import Any
from weakref import WeakSet

import uvloop
from starlette.types import Message, Receive, Scope, Send

from burnish.adapters.route import LiveRoute
from burnish.proxy.access import IDENTITY, Heard, Identity
from burnish.proxy.apart import Apart
from burnish.proxy.asgi import App
from burnish.proxy.config import Config
from burnish.proxy.feedback import Command
from burnish.proxy.http.carried import Carried, Named
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.headers import named_headers
from burnish.proxy.http.listener import ENDLESS, tune_interpreter
from burnish.proxy.http.listener import server as server_of
from burnish.proxy.http.pool import Pool
from burnish.proxy.instructions.instructions import Addition
from burnish.proxy.observe.traces import traces_wanted
from burnish.proxy.page.events import LOOK_S
from burnish.proxy.page.paths import EVENTS
from burnish.proxy.page.under_way import UnderWay
from burnish.proxy.program_log import set_level
from burnish.proxy.rate_limited import RateLimited
from burnish.proxy.records import Completion, Passthrough
from burnish.proxy.relay.client import read_body
from burnish.proxy.relay.large import READ_LIMIT_S
from burnish.proxy.relay.relay import Relay
from burnish.proxy.relay.routing import LearningUpstream, Upstream
from burnish.proxy.relay.translated import Held
from burnish.proxy.relay.upstreams import Upstreams, main_upstream
from burnish.proxy.rewards.scores import Scored, Written
from burnish.proxy.surfaces import error_at
from burnish.proxy.workers.link import EngineState, Link, OnMessage

# Most requests end before the hub needs to know that they began.
SEND_AFTER_S = 0.005
SCOPE = (
    "type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers",
    IDENTITY,
)  # fmt: skip
"""Keys of a request's scope that the hub gets for our own routes."""


class _ToHub(logging.Handler):
    """Sends records to the hub, which prints and keeps them: only one process may write the file."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._link = link
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        try:
            content = (record.name, record.levelno, record.getMessage(), record.exc_text)
            self._loop.call_soon_threadsafe(self._link.send, "logged", content)
        except RuntimeError:  # the loop is closed
            self.handleError(record)


def main(listener: int, link: int) -> None:
    """Answer requests on a listening socket until the hub sends stop, or is gone. Both are file descriptors."""
    with (
        socket.socket(fileno=listener) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_work(listening, socket.socket(fileno=link)))


async def _work(listening: socket.socket, end: socket.socket) -> None:
    worker = _Worker()
    await worker.link.connect(end)
    logging.basicConfig(handlers=[RateLimited(_ToHub(worker.link, asyncio.get_running_loop()))])
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.stop_when_alone())
        await worker.begun.wait()
        server = server_of(worker.app, worker.config, error_at)
        serving = group.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()  # if it can't serve, its error ends the group
        tune_interpreter()
        worker.link.send("up")
        await worker.stopped.wait()
        server.should_exit = True
        server.force_exit = worker.link.closed.is_set()  # the hub is gone, so no answer can be logged
        await serving
        await worker.pool.close()
        worker.apart.close()
        worker.link.close()  # once all is sent


class _Worker:
    """The application of a worker, and its state as the hub sent it."""

    config: Config
    pool: Pool
    apart: Apart
    app: App

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()
        on_message: dict[str, OnMessage] = {
            "config": self._configure,
            "state": self._take_state,
            "stop": lambda _: self.stopped.set(),
            "watch": self._watch,
        }
        self.link = Link(on_message, {"in_flight": self._in_flight, "part": self._send_part})
        self._relays: WeakSet[Relay] = WeakSet()
        self._under_way = UnderWay(
            lambda: chain.from_iterable(relay.flights.values() for relay in self._relays)
        )
        self._looking: asyncio.TimerHandle | None = None
        self._streams: dict[int, Send] = {}
        """By number: clients that get an answer of ours that goes on and on."""
        self._numbers = count()
        self._route: _Route | None = None

    async def stop_when_alone(self) -> None:
        await self.link.closed.wait()
        if not self.begun.is_set():
            sys.exit(1)
        self.stopped.set()

    def _configure(self, config: Config) -> None:
        self.config = config
        set_level(config.log_level)
        self.pool = Pool(config)
        self.apart = Apart(READ_LIMIT_S)
        self._guard = Guard(config)
        self._instructions = _Instructions(self.link, on=config.instructions)

    def _take_state(self, numbered: tuple[int, EngineState]) -> None:
        number, state = numbered
        self._guard.knows_engine = state.known
        if state.base and self._route is None:
            self._route = _Route(self.link)
            plain = main_upstream(self.config, self.pool, state.base[0]) if self.config.upstream else None
            self._serve(LearningUpstream(*state.base, self._route, plain))
        elif not self.begun.is_set():
            self._serve(main_upstream(self.config, self.pool))
        if self._route:
            self._route.update(state)
        self.link.send("confirm", number)

    def _serve(self, main: Upstream) -> None:
        relay = self._relay = Relay(
            apart=self.apart,
            pool=self.pool,
            upstream=Upstreams(main, self.config, self.pool, self._guard),
            guard=self._guard,
            log=self,
            answer=self._answer,
            instructions=self._instructions,
            scores=_Scores(self.link),
            config=self.config,
            traced=traces_wanted(os.environ),
        )
        self._relays.add(relay)
        if self.begun.is_set():
            self.app.use(self._own, relay)
        else:
            refused = partial(self.link.send, "refused")
            self.app = App(self._guard, self._own, relay, _Rollouts(self.link), refused)
            self.begun.set()

    def capture(self, entry: Completion | Passthrough) -> None:
        self.link.send("capture", entry)

    async def held_up_to(self, name: str, caller: str, session: str | None) -> Held | None:
        found: Held | None = await self.link.ask("held_up_to", (name, caller, session))
        return found

    async def rated_in_chat(self, messages: list[dict[str, Any]], caller: str, session: str | None) -> bool:
        found: bool = await self.link.ask("rated_in_chat", (messages, caller, session))
        return found

    async def _in_flight(self, _: None) -> int:
        """Return how many completions are being answered. The answer comes behind everything sent before."""
        return self._relay.in_flight

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to one of our own routes, which the hub has."""
        if scope["path"] == EVENTS:
            await self._own_stream(scope, receive, send)
            return
        body = await read_body(receive, named_headers(scope), self.config.max_body_bytes)
        for message in await self.link.ask("own", (_for_hub(scope), body)):
            await send(message)

    async def _own_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose answer the hub sends piece by piece, until the client leaves."""
        number = next(self._numbers)
        self._streams[number] = send
        scope["extensions"][ENDLESS]()
        leaving = asyncio.get_running_loop().create_task(self._tell_when_left(number, receive))
        try:
            await self.link.ask("own_stream", (number, _for_hub(scope)))
        finally:
            leaving.cancel()
            self.link.send("left", number)
            del self._streams[number]

    async def _tell_when_left(self, number: int, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.link.send("left", number)

    async def _send_part(self, part: tuple[int, Message]) -> bool:
        """Return whether the client is still there."""
        number, message = part
        send = self._streams.get(number)
        if send:
            await send(message)
        return send is not None

    def _watch(self, on: bool) -> None:
        """Report the answers that are under way, or stop it."""
        if self._looking:
            self._looking.cancel()
            self._looking = None
        self._under_way.forget()
        if on:
            self._look()

    def _look(self) -> None:
        news = self._under_way.look()
        if any(news):
            self.link.send("news", news)
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    async def _answer(
        self,
        command: Command,
        messages: list[dict[str, Any]] | None,
        *,
        caller: str,
        session: str | None,
        identity: Identity,
        previous: str | None = None,
    ) -> str:
        text: str = await self.link.ask("answer", (command, messages, caller, session, identity, previous))
        return text


def _for_hub(scope: Scope) -> dict[str, Any]:
    return {name: scope[name] for name in SCOPE if name in scope}


class _Instructions:
    """The instructions of callers, which the hub has."""

    def __init__(self, link: Link, *, on: bool) -> None:
        self.on = on
        self._link = link

    async def addition(self, caller: str, version: int | None, heard: Heard) -> Addition | None:
        found: Addition | None = await self._link.ask("addition", (caller, version, heard))
        return found


class _Scores:
    """The reward model, which the hub has."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def score(self, messages: Sequence[dict[str, Any]], replies: Sequence[Written]) -> Scored:
        found: Scored = await self._link.ask("score", (tuple(messages), tuple(replies)))
        return found


class _Rollouts:
    """The open rollouts, which the hub has."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def carried(self, named: Named) -> Carried:
        found: Carried = await self._link.ask("carried", named)
        return found


class _Route(LiveRoute):
    """The route of the hub, as it was last sent."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._timer: asyncio.TimerHandle | None = None

    def update(self, state: EngineState) -> None:
        self.follow(state.live, state.resident)
        if state.asleep and not self.asleep:
            self.fall_asleep()
        elif self.asleep and not state.asleep:
            self.wake_up()
        self._send_uses()

    def use_changed(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SEND_AFTER_S, self._send_uses)

    def lost(self, url: str) -> None:
        super().lost(url)
        self._link.send("lost", url)

    async def awake(self) -> None:
        if self.asleep:
            self._link.send("wake")
        await super().awake()

    def _send_uses(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._link.send("uses", self.leases())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
