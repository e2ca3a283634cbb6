"""Pages that read slowly or come back: what waits for them is bounded, and they are told what they missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from burnish.parts.page import stream
from burnish.parts.page.stream import KEPT_EVENTS, WAITING_BYTES, Pages
from burnish.proxy.surfaces.arriving import Increment
from burnish.proxy.surfaces.sse import SseParser
from tests.proxy.log.exchanges import until


class Reader:
    """A page that takes a part only when it is told to."""

    def __init__(self, pages: Pages, last_seen: str | None = None) -> None:
        self.parts: list[bytes] = []
        self._may = asyncio.Semaphore(0)
        follow = pages.follow(last_seen, self._write)
        self.following = asyncio.get_running_loop().create_task(follow)

    async def _write(self, part: bytes) -> None:
        await self._may.acquire()
        self.parts.append(part)

    async def take(self) -> list[str]:
        """Take one part; return the names of its events."""
        before = len(self.parts)
        self._may.release()
        await until(lambda: len(self.parts) > before)
        return [event.name for event in SseParser().feed(self.parts[-1])]


@asynccontextmanager
async def reading(pages: Pages, last_seen: str | None = None) -> AsyncIterator[Reader]:
    reader = Reader(pages, last_seen)
    try:
        await asyncio.sleep(0)
        yield reader
    finally:
        reader.following.cancel()
        await asyncio.wait({reader.following})


def began(name: str, caller: str = "ann") -> dict[str, Any]:
    return {"id": name, "caller": caller}


async def test_a_slow_page_loses_what_waits_and_gets_the_state_instead():
    pages = Pages("1")
    async with reading(pages) as slow, reading(pages) as quick:
        assert await slow.take() == await quick.take() == ["hello"]
        pages.began(began("a"))
        pages.add("a", Increment("so far"))
        pages.flush()
        row = {"text": "x" * (WAITING_BYTES // 4)}
        taken = []
        for _ in range(6):
            pages.send("answer", row)
            taken += await quick.take()
        assert taken == ["began", "text", *["answer"] * 6]
        (waiting,) = [page for page in pages.open if page.behind]
        assert waiting.take() == b""
        # This part was on its way already.
        assert await slow.take() == ["began", "text", "answer"]
        assert await slow.take() == ["hello", "began", "text"]
        assert b'"resumed":false' in slow.parts[-1]
        assert b"so far" in slow.parts[-1]
        pages.send("versions", {})
        assert await slow.take() == await quick.take() == ["versions"]


async def test_text_isnt_said_twice_to_a_page_that_was_behind():
    pages = Pages("1")
    async with reading(pages) as slow:
        await slow.take()
        pages.began(began("a"))
        pages.start_over()
        pages.add("a", Increment("once"))
        assert await slow.take() == ["hello", "began", "text"]
        pages.flush()
        pages.send("versions", {})
        assert await slow.take() == ["versions"]


def identifier(part: bytes) -> str:
    return part.rpartition(b"id: ")[2].partition(b"\n")[0].decode()


async def test_events_are_kept_for_a_page_that_comes_back_up_to_a_limit():
    pages = Pages("1")
    async with reading(pages) as page:
        await page.take()
    seen = identifier(page.parts[-1])
    for number in range(KEPT_EVENTS):
        pages.send("run", {"number": number})
    async with reading(pages, seen) as page:
        assert await page.take() == ["hello", *["run"] * KEPT_EVENTS]
    pages.send("run", {})
    async with reading(pages, seen) as page:
        assert await page.take() == ["hello"]
        assert b'"resumed":false' in page.parts[-1]


async def test_nothing_of_an_erased_user_stays():
    pages = Pages("1")
    async with reading(pages) as slow:
        await slow.take()
        seen = identifier(slow.parts[-1])
        pages.began(began("a", "eve"))
        pages.add("a", Increment("secret"))
        pages.send("answer", {"text": "secret"})
        pages.erase("eve")
        assert await slow.take() == ["hello"]
    async with reading(pages, seen) as again:
        await again.take()
    assert b"secret" not in b"".join([*slow.parts, *again.parts])


async def test_a_quiet_stream_beats_and_ends_after_an_hour(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    clock = SimpleNamespace(time=time.time, time_ns=time.time_ns, monotonic=lambda: now)
    monkeypatch.setattr(stream, "time", clock)
    monkeypatch.setattr(stream, "BEAT_S", 0.01)
    async with reading(Pages("1")) as page:
        for _ in range(4):
            await page.take()
        assert not page.following.done()
        now = stream.LONGEST_S
        await page.take()
        await until(page.following.done)
        assert page.parts[1:] == [stream.BEAT] * 4
