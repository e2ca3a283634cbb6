"""A page's side of the event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from burnish.proxy.surfaces.sse import SseParser
from tests.support.patience import within

LIMIT_S = 30.0


@dataclass(frozen=True)
class Seen:
    name: str
    content: Any
    id: str | None


@dataclass
class Watcher:
    """What an open page has got."""

    events: list[Seen] = field(default_factory=list)
    last_id: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _read: int = 0
    """Events that were waited for."""

    def add(self, event: Seen) -> None:
        self.events.append(event)
        self.last_id = event.id or self.last_id
        self._changed.set()

    async def next(
        self, name: str, fits: Callable[[Any], object] = lambda content: True, **members: Any
    ) -> Any:
        """Wait for the next event of a name that fits and has these members; return its content."""
        async with asyncio.timeout(within(LIMIT_S)):
            while True:
                while self._read < len(self.events):
                    self._read += 1
                    seen = self.events[self._read - 1]
                    if seen.name == name and members.items() <= seen.content.items() and fits(seen.content):
                        return seen.content
                self._changed.clear()
                await self._changed.wait()

    def all(self, name: str) -> list[Any]:
        return [each.content for each in self.events if each.name == name]

    def text(self, identifier: str) -> str:
        """What a page shows of an answer under way."""
        shown = ""
        for each in self.events:
            if each.name == "began" and each.content["id"] == identifier:
                shown = ""
            elif each.name == "text" and identifier in each.content["answers"]:
                shown += each.content["answers"][identifier]["add"]
        return shown


@asynccontextmanager
async def watching(url: str, last_id: str = "", **headers: str) -> AsyncIterator[Watcher]:
    """Open the stream of events as a page does, over a connection of its own, until the block ends."""
    seen = Watcher(last_id=last_id)
    given = headers | ({"last-event-id": last_id} if last_id else {})
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=within(60)) as client:
        async with client.stream("GET", "/burnish/events", headers=given) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            reading = asyncio.get_running_loop().create_task(_read(response, seen))
            try:
                yield seen
            finally:
                reading.cancel()
                await asyncio.wait({reading})
                if not reading.cancelled():
                    reading.exception()  # burnish stopped first


async def _read(response: httpx.Response, seen: Watcher) -> None:
    identifier, parser = None, SseParser()
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            identifier = line.removeprefix("id: ")
        for event in parser.feed(line.encode() + b"\n"):
            seen.add(Seen(event.name, orjson.loads(event.data), identifier))
            identifier = None
