"""Runs, versions, status and rows reach pages when they change, and a fault in one doesn't stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from burnish.app.asgi import own_application
from burnish.parts.page import events
from burnish.parts.page.events import Events, Sources
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import followers
from burnish.proxy.records import Feedback, FeedbackDraft
from tests.proxy.log.exchanges import until
from tests.support.inprocess import listening
from tests.support.watching import Watcher, watching

Json = dict[str, Any]


@dataclass
class World:
    """What a page may see, changed by hand."""

    status: Json = field(default_factory=lambda: {"log": {"free_bytes": 1, "size_bytes": 1}, "counts": {}})
    run: Json | None = None
    versions: int = 0
    broken: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def sources(self) -> Sources:
        async def rows(names: Collection[str]) -> list[Json]:
            self.asked.append([*names])
            if self.broken:
                raise Unavailable("the log can't be read")
            return [{"id": name} for name in names]

        async def covered(feedback: Feedback) -> list[str]:
            return [feedback.draft.completion_id, "cmpl_beside"]

        async def status() -> Json:
            return self.status

        async def ended(run_id: str) -> Json:
            return {"id": run_id, "status": "live"}

        run, versions = (lambda: self.run), (lambda: self.versions)
        return Sources(rows=rows, covered=covered, status=status, run=run, ended_run=ended, versions=versions)


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[tuple[Watcher, Events, str]]:
    made = Events(list)
    made.see(world.sources())
    async with listening(own_application([made.route()])) as url, watching(url) as page:
        await page.next("status")
        yield page, made, url
    await made.stop()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "RUN_S", "STATUS_S", "FAULT_PAUSE_S"):
        monkeypatch.setattr(events, name, 0.01)
    monkeypatch.setattr(followers, "FAULT_PAUSE_S", 0.01)


async def test_a_run_is_followed_to_its_end():
    world = World()
    async with watched(world) as (page, _, _):
        world.run = {"id": "run_1", "status": "training", "step": 1}
        assert await page.next("run") == world.run
        world.run = {"id": "run_1", "status": "training", "step": 2}
        assert await page.next("run") == world.run
        world.run = None
        assert await page.next("run") == {"id": "run_1", "status": "live"}
        world.versions = 1
        assert await page.next("versions") == {}
    assert len(page.all("run")) == 3, "nothing is sent twice"
    assert len(page.all("versions")) == 1


async def test_the_status_is_sent_when_it_changes_but_not_for_the_disk_alone():
    world = World()
    async with watched(world) as (page, _, _):
        world.status = {"log": {"free_bytes": 2, "size_bytes": 3}, "counts": {}}
        world.run = {"id": "run_1"}
        await page.next("run")
        world.status = {"log": {"free_bytes": 4, "size_bytes": 5}, "counts": {"ratings": 1}}
        assert await page.next("status") == world.status
    assert len(page.all("status")) == 2


def rated(name: str, scope: Any = "completion") -> Feedback:
    return Feedback("fb_1", 0.0, "conv_1", FeedbackDraft(name, "completion_id", reward=1.0, scope=scope))


async def test_rows_that_cant_be_read_come_later():
    world = World(broken=True)
    async with watched(world) as (page, made, _):
        await made.rated(rated("cmpl_1"))
        await until(lambda: world.asked)
        world.broken = False
        assert await page.next("answer") == {"id": "cmpl_1"}
        await made.rated(rated("cmpl_2", "turn"))
        assert {(await page.next("answer"))["id"] for _ in range(2)} == {"cmpl_2", "cmpl_beside"}


async def test_a_rating_that_comes_while_another_is_read_reaches_pages_too():
    begun, hold = asyncio.Event(), asyncio.Event()

    async def covered(feedback: Feedback) -> list[str]:
        begun.set()
        await hold.wait()
        return [f"{feedback.draft.completion_id}_beside"]

    world = World()
    async with watched(world) as (page, made, _):
        made.see(replace(world.sources(), covered=covered))
        await made.rated(rated("cmpl_1", "turn"))
        await begun.wait()
        await made.rated(rated("cmpl_2", "turn"))
        hold.set()
        left = {"cmpl_1_beside", "cmpl_2_beside"}
        while left:
            left.discard((await page.next("answer"))["id"])


async def test_nothing_is_watched_once_no_page_is_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "LINGER_S", 0.0)
    world = World()
    async with watched(world) as (page, made, url):
        seen = page.last_id
        async with watching(url) as second:
            await second.next("hello")
    await made.rated(rated("cmpl_1"))
    assert world.asked == []
    async with listening(own_application([made.route()])) as url, watching(url, seen) as page:
        assert (await page.next("hello"))["resumed"] is False, "nobody knows what happened meanwhile"
    await made.stop()
