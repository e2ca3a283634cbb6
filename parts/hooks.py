"""The contract of a part, and how it learns what happens in burnish.

A part is a class. The list in ``app/app.py`` names those that burnish brings along, and ``parts`` in a user's
configuration file names others: ``parts = ["my_module:Part"]``. mitmproxy's addons are the model.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from starlette.routing import BaseRoute

from burnish.parts.core import Core
from burnish.proxy.http.errors import NotFound, Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.records import Feedback
from burnish.proxy.relay.steps import Step
from burnish.system import durable

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Before an event is delivered again."""
DELIVERY_LIMIT_S = 60.0


class Part:
    """An optional part of burnish. A method that a subclass leaves out does nothing, and costs nothing."""

    name: str = ""
    """Stands in the status, and names the file of its events."""
    foreign: bool = True
    """False for those that burnish brings along."""
    durable: bool = True
    """Whether it must take events from before a crash."""

    async def start(self) -> None:
        """Called once, before any request."""

    async def stop(self) -> None:
        """Called once, after the last request, if ``start`` was called."""

    async def use(self, core: Core) -> None:
        """Take the core that serves from now on: after ``start``, and when an engine that was down is found."""

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        """Return routes of its own."""
        return ()

    def steps(self, core: Core) -> Sequence[Step]:
        """Return what it does with requests for completions."""
        return ()

    def status(self) -> Mapping[str, Any] | None:
        """Return its member of ``/burnish/status``, which has the part's name."""
        return None

    # Observers. What they raise is logged, and others go on.

    def stored(self, entry: Stored) -> None:
        """Called for each completion and passthrough that the log has stored. On the log's thread: be quick."""

    def rewarded(self, completion_ids: Collection[str]) -> None:
        """Called when completions got a reward."""

    def imported(self) -> None:
        """Called when records of another log, or of another program, were stored."""

    def version(self, number: int) -> None:
        """Called when another version is live; 0: the base model."""

    # Events that are delivered again until the method returns, over restarts too. So it may get one twice.

    async def rated(self, feedback: Feedback) -> None:
        """Take feedback that was given, or taken back (``undone_at``)."""

    async def erased(self, user: str) -> None:
        """Erase what is kept of a user, as the log has."""

    async def reset(self) -> None:
        """Forget what was learnt: learning starts over."""


class OnlyRoutes(Part):
    """A part of burnish's own that has routes and nothing else."""

    foreign = False

    def __init__(self, name: str, routes: Callable[[Core], Sequence[BaseRoute]]) -> None:
        self.name = name
        self._routes = routes

    def routes(self, core: Core) -> Sequence[BaseRoute]:
        return self._routes(core)


Kind = Literal["rated", "erased", "reset"]


class Event(NamedTuple):
    kind: Kind
    subject: str = ""
    """The ID of the feedback, or the name of the user."""


def overrides(part: Part, method: str) -> bool:
    return getattr(type(part), method) is not getattr(Part, method)


class Deliveries:
    """The events that one part has not taken yet, in order. They are in a file, so a crash loses none."""

    def __init__(self, part: Part, folder: Path) -> None:
        self.part = part
        self.trouble: str | None = None
        """Why the first of them could not be delivered."""
        self._file = folder / f"{part.name}.json" if part.durable else None
        events = _events_in(self._file) if self._file else []
        self._events = deque[tuple[Event, asyncio.Future[None] | None]]((event, None) for event in events)
        """Each with what waits for it, if it came since the start."""
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> asyncio.Future[None] | None:
        """Deliver an event as soon as possible.

        Return a future that is done when the part has taken it, and that fails with the first attempt; None if the
        part has no method for it.
        """
        if not overrides(self.part, event.kind):
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        self._events.append((event, future))
        self._save()
        self._news.set()
        return future

    async def run(self, log: Log) -> None:
        """Deliver all events, for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            while not self._events:
                self._news.clear()
                await self._news.wait()
            event, waiting = self._events[0]
            try:
                async with asyncio.timeout(DELIVERY_LIMIT_S):
                    await self._deliver(event, log)
            except Exception as error:  # noqa: BLE001 – a fault of a part stays with it
                words = str(error) or f"it took longer than {DELIVERY_LIMIT_S:g} s"
                if words != self.trouble:
                    logger.warning("the part %s is behind: %s. burnish tries again", self.part.name, words)
                self.trouble = words
                if waiting and not waiting.done():
                    waiting.set_exception(Unavailable(f"the part {self.part.name} is behind: {words}"))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            self.trouble, pause_s = None, FIRST_PAUSE_S
            self._events.popleft()
            self._save()
            if waiting and not waiting.done():
                waiting.set_result(None)

    async def _deliver(self, event: Event, log: Log) -> None:
        if event.kind == "erased":
            await self.part.erased(event.subject)
        elif event.kind == "reset":
            await self.part.reset()
        else:
            with suppress(NotFound):  # it was erased meanwhile
                await self.part.rated(await log.feedback(event.subject))

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            if self._events:
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
                durable.replace(self._file, json.dumps([event for event, _ in self._events]))
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            logger.error("%s can't be written, so a crash loses events of a part: %s", self._file, error)


class Hooks:
    """All parts, in the order in which their steps act."""

    def __init__(self, parts: Iterable[Part], folder: Path) -> None:
        """``folder`` keeps the events that a part has not taken yet."""
        self.parts = tuple(parts)
        self._deliveries = [Deliveries(part, folder) for part in self.parts]
        self._observers = {
            method: [part for part in self.parts if overrides(part, method)]
            for method in ("stored", "rewarded", "imported", "version")
        }
        self._started: list[Part] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    async def start(self, log: Log) -> None:
        for part in self.parts:
            self._started.append(part)
            await part.start()
        self._tasks = [self._loop.create_task(each.run(log)) for each in self._deliveries]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for part in reversed(self._started):
            await part.stop()

    def status(self) -> list[dict[str, Any]]:
        """Return each part, and how many events it has yet to take."""
        return [
            {
                "name": deliveries.part.name,
                "foreign": deliveries.part.foreign,
                "behind": len(deliveries),
                "trouble": deliveries.trouble,
            }
            for deliveries in self._deliveries
        ]

    def shown(self) -> dict[str, Any]:
        """Return the members of the status that parts have, by their names."""
        members = {part.name: part.status() for part in self.parts}
        return {name: member for name, member in members.items() if member is not None}

    def stored(self, entry: Stored) -> None:
        """On the log's thread."""
        self._tell("stored", entry)

    def rewarded(self, completion_ids: Collection[str]) -> None:
        self._tell("rewarded", completion_ids)

    def imported(self) -> None:
        self._tell("imported")

    def version(self, number: int) -> None:
        """From any thread."""
        if self._observers["version"]:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._tell, "version", number)

    def rated(self, feedback: Feedback) -> None:
        for deliveries in self._deliveries:
            deliveries.put(Event("rated", feedback.id))

    async def erased(self, user: str) -> None:
        """Raises Unavailable if a part has not erased the user yet, and tries again."""
        await self._all(Event("erased", user))

    async def reset(self) -> None:
        """Raises Unavailable if a part has not forgotten what it learnt, and tries again."""
        await self._all(Event("reset"))

    async def _all(self, event: Event) -> None:
        futures = [deliveries.put(event) for deliveries in self._deliveries]
        await asyncio.gather(*filter(None, futures))

    def _tell(self, method: str, *arguments: object) -> None:
        for part in self._observers[method]:
            try:
                getattr(part, method)(*arguments)
            except Exception:
                # A fault of one part must not stop the log or the others.
                logger.exception("the part %s failed at %s", part.name, method)


def _events_in(file: Path) -> list[Event]:
    try:
        return [Event(*event) for event in json.loads(file.read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        logger.error("%s can't be read, so a part misses the events in it: %s", file, error)
        return []


def _retrieved(future: asyncio.Future[None]) -> None:
    """Look at a failure that nobody waits for, so that asyncio doesn't complain."""
    if not future.cancelled():
        future.exception()
