"""``python -m bench.hostile.crowd URL PID``: ordinary clients of a burnish, in a process of their own.

They send small chat completions and ratings at a fixed rate, and ask ``/healthz`` again and again on one connection.
Each exchange is a line of output; the first one means that they have begun. Closing stdin ends the crowd; exchanges
without an answer come last.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

CHATS_PER_S = 40
RATINGS_PER_S = 5
PROBED_EVERY_S = 0.005
MOST_OPEN = 100
"""Of a kind; beyond it nothing more is sent until one ends."""
LAST_S = 0.5
"""For the answers to what was sent before the end."""
MODEL = "quiet"
CHAT, RATING, PROBE = "chat", "rating", "probe"


class Seen(NamedTuple):
    """One exchange."""

    kind: str
    began: float
    """On the monotonic clock, in seconds."""
    took_s: float
    waited_s: float = 0.0
    """Of it how long this process or burnish's event loop, the longer of the two, waited for a core."""
    status: int = 0
    """0: no answer."""
    degraded: bool = False
    """Whether ``/healthz`` told of trouble."""

    @property
    def own_s(self) -> float:
        """Return how long it took less the wait for a core."""
        return max(0.0, self.took_s - self.waited_s)

    def line(self) -> str:
        return " ".join(map(str, self))


def seen(line: str) -> Seen:
    """Read a line of the output."""
    kind, began, took_s, waited_s, status, degraded = line.split()
    return Seen(kind, float(began), float(took_s), float(waited_s), int(status), degraded == "True")


Call = Callable[[], Awaitable[tuple[int, bool]]]
"""Returns the status, and whether the answer told of trouble."""


class Crowd:
    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._pid = pid
        self._open: dict[int, tuple[str, float]] = {}
        self._numbers = 0
        self._ending = False
        self._latest = ""
        """The completion that came last."""

    async def run(self) -> None:
        """Ask and rate until stdin is closed."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(self._url, connector=connector, timeout=timeout) as session:
            await self._observed(CHAT, lambda: self._ask(session))
            sys.stdout.flush()
            work = [
                asyncio.ensure_future(self._paced(CHATS_PER_S, CHAT, lambda: self._ask(session))),
                asyncio.ensure_future(self._paced(RATINGS_PER_S, RATING, lambda: self._rate(session))),
                asyncio.ensure_future(self._probe()),
            ]
            await asyncio.to_thread(sys.stdin.read)
            self._ending = True
            await asyncio.sleep(LAST_S)
            now = time.monotonic()
            for kind, began in self._open.values():
                print(Seen(kind, began, now - began).line())
            for each in work:
                each.cancel()
            await asyncio.wait(work)

    async def _paced(self, rate: float, kind: str, call: Call) -> None:
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not self._ending:
                due += 1 / rate
                await asyncio.sleep(due - time.monotonic())
                if sum(each == kind for each, _ in self._open.values()) < MOST_OPEN:
                    group.create_task(self._observed(kind, call))

    async def _observed(self, kind: str, call: Call) -> None:
        self._numbers += 1
        number, began, waits_s = self._numbers, time.monotonic(), self._waits_s()
        self._open[number] = kind, began
        status, degraded = 0, False
        with suppress(aiohttp.ClientError, asyncio.IncompleteReadError, OSError):
            status, degraded = await call()
        del self._open[number]
        took_s = time.monotonic() - began
        waited_s = max(now - before for now, before in zip(self._waits_s(), waits_s, strict=True))
        print(Seen(kind, began, took_s, waited_s, status, degraded).line())

    async def _ask(self, session: aiohttp.ClientSession) -> tuple[int, bool]:
        text = f"Question {self._numbers}: what is tea?"
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        async with session.post("/v1/chat/completions", json=body) as response:
            await response.read()
            self._latest = response.headers.get("x-burnish-completion-id", self._latest)
            return response.status, False

    async def _rate(self, session: aiohttp.ClientSession) -> tuple[int, bool]:
        """Rate the latest answer; if no other came since, change its rating."""
        rating = {"completion_id": self._latest, "rating": ("good", "bad")[self._numbers % 2]}
        async with session.post("/v1/feedback", json=rating) as response:
            await response.read()
            return response.status, False

    async def _probe(self) -> None:
        """Ask ``/healthz`` again and again: its longest answer is the longest pause of the event loop."""
        address = urlsplit(self._url)
        while not self._ending:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                ask = partial(_healthz, reader, writer)
                with closing(writer):
                    while not (self._ending or reader.at_eof()):
                        await asyncio.sleep(PROBED_EVERY_S)
                        await self._observed(PROBE, ask)
            await asyncio.sleep(PROBED_EVERY_S)

    def _waits_s(self) -> tuple[float, float]:
        """Return how long this process and burnish's first thread have waited for a core so far; Linux only."""
        return _waited_s("self"), _waited_s(f"{self._pid}/task/{self._pid}")


def _waited_s(thread: str) -> float:
    with suppress(OSError):
        return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


async def _healthz(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bool]:
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    return int(head.split()[1]), b'"degraded"' in body


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("pid", type=int)
    given = parser.parse_args()
    asyncio.run(Crowd(given.url, given.pid).run())
