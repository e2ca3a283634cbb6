"""``GET /burnish/events``: what happens in burnish, as it happens, for open pages.

Nothing is watched unless a page is open, or was until a moment ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import burnish
from burnish.parts.hooks import Part
from burnish.parts.page.paths import EVENTS
from burnish.parts.page.stream import Pages
from burnish.parts.page.under_way import UnderWay
from burnish.proxy.described import described
from burnish.proxy.http.errors import BurnishError, Unavailable
from burnish.proxy.http.listener import ENDLESS
from burnish.proxy.log.batch import Stored
from burnish.proxy.log.followers import Follower
from burnish.proxy.records import Feedback, Passthrough
from burnish.proxy.relay.flight import Flight

logger = logging.getLogger(__name__)

LOOK_S = 0.1
"""Between two looks at the answers under way, and between two reads of rows."""
RUN_S, STATUS_S = 0.5, 1.0
STILL = ("size_bytes", "free_bytes")
"""Members of the status's ``log`` whose changes aren't worth an event."""
MOST_STREAMS = 50
"""A thousand that read nothing make everybody else wait for seconds."""
LINGER_S = 30.0
"""A page that is loaded again, or loses its connection, goes on where it was."""
FAULT_PAUSE_S = 5.0
ROWS = 100
"""Read at once."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """What pages see besides the answers under way. Replaced when the engine is found."""

    rows: Callable[[Collection[str]], Awaitable[list[Json]]]
    """Takes IDs of completions; returns rows as in ``GET /burnish/completions``, earliest first."""
    covered: Callable[[Feedback], Awaitable[Collection[str]]]
    """Returns the IDs of the completions whose rows feedback may have changed."""
    status: Callable[[], Awaitable[Json]]
    """As ``GET /burnish/status``."""
    run: Callable[[], Json | None]
    """The training run under way, as ``GET /burnish/runs/{id}``."""
    ended_run: Callable[[str], Awaitable[Json]]
    versions: Callable[[], object]
    """Returns another value when versions have changed."""


class Events(Part):
    """Watches burnish for its open pages."""

    def __init__(self, flights: Callable[[], Iterable[Flight]]) -> None:
        """``flights`` returns the answers that burnish is giving."""
        self._pages = Pages(burnish.__version__)
        self._under_way = UnderWay(flights)
        self._sources: Sources | None = None
        self._rows = Follower("open pages miss rows", self._send_rows, LOOK_S)
        self._changed: dict[str, None] = {}
        """Completions whose rows pages don't have."""
        self._rated: list[Feedback] = []
        """What changed other rows than that of the answer that it names."""
        self._last_status: Json | None = None
        self._last_run: Json | None = None
        self._last_versions: object = None
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._streams = 0

    def see(self, sources: Sources) -> None:
        self._sources = sources
        self._last_versions = sources.versions()
        self._rows.wake()

    def route(self) -> Route:
        @described("what happens, as a stream of [events](#events)", str, media_type="text/event-stream")
        async def events(request: Request) -> Response:
            last_seen = request.headers.get("last-event-id")
            return _Stream(lambda write: self._follow(last_seen, write), self._admitted)

        return Route(EVENTS, events, methods=["GET"])

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count a stream while it's open. Raises Unavailable if there are too many."""
        if self._streams >= MOST_STREAMS:
            raise Unavailable(
                f"{MOST_STREAMS} pages of burnish are open, and each takes a stream of events: close some of them"
            )
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def stop(self) -> None:
        if self._resting:
            self._resting.cancel()
        if watching := self._watching:
            self._watching = None
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    # -- what others report --------------------------------------------------------------------------------------------

    def stored(self, entry: Stored) -> None:
        if self._watching is None or isinstance(entry, Passthrough):
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._change, entry.completion.id)

    async def rated(self, feedback: Feedback) -> None:
        if self._watching is None:
            return
        if feedback.draft.scope != "completion":
            self._rated.append(feedback)
        self._change(feedback.draft.completion_id)

    def rewarded(self, completion_ids: Collection[str]) -> None:
        if self._watching:
            self._change(*completion_ids)

    def _change(self, *completion_ids: str) -> None:
        self._changed |= dict.fromkeys(completion_ids)
        self._rows.wake()

    async def erased(self, user: str) -> None:
        if self._watching:
            self._pages.erase(user)

    def imported(self) -> None:
        """Every row may have changed."""
        if self._watching:
            self._pages.start_over()

    async def reset(self) -> None:
        self.imported()

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _follow(self, last_seen: str | None, write: Callable[[bytes], Awaitable[None]]) -> None:
        if self._resting:
            self._resting.cancel()
            self._resting = None
        if self._watching is None:
            self._watching = self._loop.create_task(self._watch())
        try:
            await self._pages.follow(last_seen, write)
        finally:
            if not self._pages.open and self._watching:
                self._resting = self._loop.call_later(LINGER_S, self._rest)

    def _rest(self) -> None:
        self._resting = None
        if self._watching and not self._pages.open:
            self._watching.cancel()
            self._watching = None
            self._pages.close()
            self._under_way.forget()
            self._changed.clear()
            self._rated.clear()
            self._last_status = None

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rows.run())
            for step in (self._texts, self._run, self._status):
                group.create_task(_repeated(step))

    async def _texts(self) -> float:
        news = self._under_way.look()
        for answer in news.began:
            self._pages.began(answer)
        for name, added in news.added.items():
            self._pages.add(name, added)
        if news.ended:
            self._pages.flush()
            self._pages.ended(news.ended)
        self._pages.flush()
        return LOOK_S

    async def _send_rows(self) -> bool:
        """Send some of the rows that changed; return whether there are more."""
        if self._sources is None:
            return False
        while self._rated:
            self._changed |= dict.fromkeys(await self._sources.covered(self._rated[0]))
            del self._rated[0]  # others may have been added at the end meanwhile
        if names := dict.fromkeys(islice(self._changed, ROWS)):
            for name in names:
                del self._changed[name]
            try:
                rows = await self._sources.rows(names)
            except BurnishError:
                self._changed = names | self._changed
                raise
            for row in rows:
                self._pages.send("answer", row)
        return bool(self._changed)

    async def _run(self) -> float:
        if self._sources is None:
            return RUN_S
        last, run = self._last_run, self._sources.run()
        if last and (run is None or run["id"] != last["id"]):
            self._pages.send("run", await self._sources.ended_run(last["id"]))
        if run and run != last:
            self._pages.send("run", run)
        self._last_run = run
        versions = self._sources.versions()
        if versions != self._last_versions:
            self._last_versions = versions
            self._pages.send("versions", {})
        return RUN_S

    async def _status(self) -> float:
        if self._sources is None:
            return STATUS_S
        status = await self._sources.status()
        # The disk is never still.
        told = status | {"log": {**status["log"], **dict.fromkeys(STILL)}}
        if told != self._last_status:
            self._last_status = told
            self._pages.send("status", status)
        return STATUS_S


async def _repeated(step: Callable[[], Awaitable[float]]) -> None:
    """Do something again and again. It returns how long to wait."""
    while True:
        try:
            pause_s = await step()
        except BurnishError as error:
            logger.debug("pages have to wait: %s", error)
            pause_s = FAULT_PAUSE_S
        except Exception:
            # A fault in one kind of event must not end the others.
            logger.exception("open pages miss events; trying again in %g s", FAULT_PAUSE_S)
            pause_s = FAULT_PAUSE_S
        await asyncio.sleep(pause_s)


class _Stream(Response):
    def __init__(
        self,
        follow: Callable[[Callable[[bytes], Awaitable[None]]], Coroutine[Any, Any, None]],
        admitted: Callable[[], AbstractContextManager[None]],
    ) -> None:
        # Behind nginx, events would otherwise wait for more.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._follow = follow
        self._admitted = admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(part: bytes) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": True})

        with self._admitted():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "GET":
                if endless := scope.get("extensions", {}).get(ENDLESS):
                    endless()
                async with asyncio.TaskGroup() as group:
                    leaving = group.create_task(_left(receive))
                    following = group.create_task(self._follow(write))
                    await asyncio.wait({leaving, following}, return_when=asyncio.FIRST_COMPLETED)
                    leaving.cancel()
                    following.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
