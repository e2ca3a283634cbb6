"""The event stream of open pages, with replay for pages that reconnect. Pure except that it waits.

Every event is encoded once. A page that comes back names the last event that it has seen, and gets those after it. A
page that reads too slowly loses what waits for it, and is told so: memory doesn't grow with slow readers.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from burnish.proxy.surfaces.arriving import Increment

BEAT_S = 15.0
"""Proxies cut connections on which nothing is sent, often after 30 or 60 s."""
BEAT = b": beat\n\n"
LONGEST_S = 3600.0
"""Then the browser connects again, and must still have a key."""
RETRY_MS = 1000
KEPT_EVENTS, KEPT_BYTES = 2000, 4 * 1024 * 1024
"""For pages that come back."""
WAITING_BYTES = 1024 * 1024
"""For a page that reads slowly."""

Json = dict[str, Any]


def encoded(event: str, content: object, identifier: str = "") -> bytes:
    named = f"id: {identifier}\n" if identifier else ""
    return b"event: %b\n%bdata: %b\n\n" % (event.encode(), named.encode(), orjson.dumps(content))


@dataclass(slots=True)
class _Answer:
    """An answer under way, as far as it was read."""

    began: Json
    texts: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    def add(self, added: Increment) -> None:
        if added.text:
            self.texts.append(added.text)
        self.tools += added.tools


class Page:
    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.behind = False
        """Whether something was lost since the last ``hello``."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def put(self, event: bytes) -> None:
        if self.behind:
            return
        self.changed.set()
        self._waiting.append(event)
        self._waiting_bytes += len(event)
        if self._waiting_bytes > WAITING_BYTES:
            self.lose()

    def lose(self) -> None:
        """Drop what waits; the page gets a new ``hello`` instead."""
        self.behind = True
        self._waiting, self._waiting_bytes = [], 0
        self.changed.set()

    def take(self) -> bytes:
        taken = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        return taken


class Pages:
    """All open pages, the latest events, and the answers that are under way."""

    def __init__(self, version: str) -> None:
        """``version``: burnish's own."""
        self._version = version
        self._began = f"{time.time_ns() // 1_000_000:x}"
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._since = 0
        """Events after this one are known."""
        self._answers: dict[str, _Answer] = {}
        self._added: dict[str, Json] = {}
        """Of answers, since the last ``text`` event."""
        self.open: set[Page] = set()

    async def follow(self, last_seen: str | None, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write the stream of one page. ``last_seen``: the ID of the last event that it got earlier."""
        page, until = Page(), time.monotonic() + LONGEST_S
        part = self._first(last_seen)
        self.open.add(page)
        try:
            while True:
                await write(part)
                left = until - time.monotonic()
                if left <= 0:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(BEAT_S, left)):
                        await page.changed.wait()
                page.changed.clear()
                part = self._caught_up(page) if page.behind else page.take() or BEAT
        finally:
            self.open.discard(page)

    def send(self, event: str, content: object) -> None:
        """Send an event to all pages, now or when they come back."""
        self._number += 1
        found = encoded(event, content, self._name())
        self._kept.append((self._number, found))
        self._kept_bytes += len(found)
        while len(self._kept) > KEPT_EVENTS or self._kept_bytes > KEPT_BYTES:
            self._since, dropped = self._kept.popleft()
            self._kept_bytes -= len(dropped)
        self._put(found)

    def began(self, answer: Json) -> None:
        self._answers[answer["id"]] = _Answer(answer)
        self._put(encoded("began", answer))

    def add(self, identifier: str, added: Increment) -> None:
        """Add to an answer under way. Pages get it at the next ``flush``."""
        if (answer := self._answers.get(identifier)) is None:
            return
        answer.add(added)
        waiting = self._added.setdefault(identifier, {"add": ""})
        waiting["add"] += added.text
        if added.tools:
            waiting["tools"] = answer.tools
        if added.thinks:
            waiting["thinks"] = True

    def flush(self) -> None:
        """Send what was added to all answers, in one event."""
        if self._added:
            self._put(encoded("text", {"answers": self._added}))
            self._added = {}

    def ended(self, identifiers: Iterable[str]) -> None:
        for identifier in identifiers:
            self._answers.pop(identifier, None)
            self._added.pop(identifier, None)

    def erase(self, user: str) -> None:
        """Tell that a user was erased, and keep nothing from before."""
        self.ended([each for each, answer in self._answers.items() if answer.began["caller"] == user])
        self._forget_kept()
        for page in self.open:
            if not page.changed.is_set():
                continue
            page.lose()  # what waits may hold texts of that user
        self.send("erased", {"user": user})

    def start_over(self) -> None:
        """Have all pages load everything anew."""
        self._forget_kept()
        for page in self.open:
            page.lose()

    def close(self) -> None:
        """Forget everything, because nobody watches any more: what happens from now on isn't known."""
        self._forget_kept()
        self._answers.clear()
        self._added.clear()

    def _first(self, last_seen: str | None) -> bytes:
        seen = self._number_in(last_seen)
        missed = b"".join(event for number, event in self._kept if seen is not None and number > seen)
        return (
            b"retry: %d\n\n" % RETRY_MS + self._hello(resumed=seen is not None) + missed + self._under_way()
        )

    def _caught_up(self, page: Page) -> bytes:
        """Return the events that replace those that a slow page lost."""
        # While it is behind, it isn't given what ``_under_way`` sends to the others.
        part = self._hello(resumed=False) + self._under_way()
        page.behind = False
        return part

    def _number_in(self, last_seen: str | None) -> int | None:
        """Return the number of an event, if all after it are known."""
        began, _, number = (last_seen or "").partition("-")
        if began != self._began or not (number.isascii() and number.isdecimal()):
            return None
        found = int(number[:18])
        return found if self._since <= found <= self._number else None

    def _hello(self, *, resumed: bool) -> bytes:
        content = {"now": time.time(), "version": self._version, "resumed": resumed}
        # A page that comes back after a stream without events goes on from here. One that resumes has yet to get them.
        return encoded("hello", content, "" if resumed else self._name())

    def _under_way(self) -> bytes:
        """Return all answers under way as if they began now."""
        self.flush()
        texts = {
            name: {"add": "".join(answer.texts), "tools": answer.tools}
            for name, answer in self._answers.items()
        }
        began = b"".join(encoded("began", answer.began) for answer in self._answers.values())
        return began + encoded("text", {"answers": texts}) if texts else b""

    def _name(self) -> str:
        return f"{self._began}-{self._number}"

    def _put(self, event: bytes) -> None:
        for page in self.open:
            page.put(event)

    def _forget_kept(self) -> None:
        # One number is skipped, so that a page that has seen all so far doesn't take itself for up to date.
        self._number += 1
        self._since = self._number
        self._kept.clear()
        self._kept_bytes = 0
