"""Several engines behind one ``upstream``: balanced, each with its own served set, any of them may come and go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from tests.proxy.log.exchanges import until
from tests.support.inprocess import Switched, calling
from tests.support.patience import within
from tests.support.vllm_double import Engine, ask, live_version, trouble


class Rack:
    def __init__(self) -> None:
        self.engines = [Engine(), Engine()]
        self._switched = [Switched(engine.app()) for engine in self.engines]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self._switched]

    async def start(self, place: int) -> None:
        await self._switched[place].on()

    async def stop(self, place: int) -> None:
        self.engines[place].restart()
        await self._switched[place].off()


@pytest.fixture
async def rack() -> AsyncIterator[Rack]:
    rack = Rack()
    for place in (0, 1):
        await rack.start(place)
    yield rack
    for place in (0, 1):
        await rack.stop(place)


@asynccontextmanager
async def before(tmp_path: Path, rack: Rack, weights: Path | None) -> AsyncIterator[httpx.AsyncClient]:
    settings: dict[str, Any] = {"engine": "auto", "train": {"base": str(weights)}} if weights else {}
    async with calling(tmp_path, upstream=",".join(rack.urls), **settings) as http:
        yield http


@pytest.fixture
def name(tmp_path: Path, weights: Path) -> str:
    """Name of the live version in the engines."""
    return engine_name(live_version(tmp_path, weights_digest(weights)))


@pytest.fixture
async def http(tmp_path: Path, weights: Path, rack: Rack, name: str) -> AsyncIterator[httpx.AsyncClient]:
    async with before(tmp_path, rack, weights) as client:
        yield client


def chats(rack: Rack) -> list[int]:
    return [Counter(path for path, _ in engine.asked)["/v1/chat/completions"] for engine in rack.engines]


async def test_a_version_goes_live_on_all_of_them(http: httpx.AsyncClient, rack: Rack, name: str) -> None:
    assert [list(engine.loaded) for engine in rack.engines] == [[name], [name]]
    assert {await ask(http, "default") for _ in range(8)} == {name}
    assert chats(rack) == [4, 4]
    status = (await http.get("/burnish/status")).json()
    assert status["live"]["served_by"] == rack.urls
    await http.post("/burnish/adapters/rollback", json={"to": 0})
    assert {await ask(http, "default") for _ in range(4)} == {"smollm2"}


async def test_one_that_goes_away_costs_no_request(http: httpx.AsyncClient, rack: Rack, name: str) -> None:
    await rack.stop(0)
    assert {await ask(http, "default") for _ in range(6)} == {name}
    await rack.start(0)
    await until(lambda: name in rack.engines[0].loaded)
    seen = chats(rack)[0]
    async with asyncio.timeout(within(30)):
        while chats(rack)[0] == seen:
            assert await ask(http, "default") == name


async def test_one_that_forgets_gets_the_version(http: httpx.AsyncClient, rack: Rack, name: str) -> None:
    for _ in range(3):
        rack.engines[1].restart()
        assert set(await asyncio.gather(*(ask(http, "default") for _ in range(6)))) == {name}
    await until(lambda: name in rack.engines[1].loaded)


async def test_burnish_starts_while_one_is_down(tmp_path: Path, weights: Path, rack: Rack, name: str) -> None:
    await rack.stop(1)
    async with before(tmp_path, rack, weights) as http:
        assert {await ask(http, "default") for _ in range(3)} == {name}
        await rack.start(1)
        await until(lambda: name in rack.engines[1].loaded)


async def test_one_that_refuses_a_version_keeps_the_old_one_live(http: httpx.AsyncClient, rack: Rack) -> None:
    await http.post("/burnish/adapters/rollback", json={"to": 0})
    for engine in rack.engines:
        engine.restart()
    rack.engines[1].max_rank = 1
    assert "rank" in (await http.post("/burnish/adapters/1/promote", json={})).json()["error"]["message"]
    assert {await ask(http, "default") for _ in range(4)} == {"smollm2"}
    assert [engine.loaded for engine in rack.engines] == [{}, {}], "the other one has been undone"
    rack.engines[1].max_rank = 16
    assert (await http.post("/burnish/adapters/1/promote", json={})).status_code == 200


async def test_one_beyond_repair_is_skipped_and_named(http: httpx.AsyncClient, rack: Rack, name: str) -> None:
    rack.engines[1].max_rank = 1
    rack.engines[1].restart()
    await until(lambda: "/v1/load_lora_adapter" in [path for path, _ in rack.engines[1].asked[-3:]])
    assert {await ask(http, "default") for _ in range(6)} == {name}
    words = await until(lambda: trouble(http))
    assert rack.urls[1] in words and "rank" in words


async def test_replicas_of_different_models_are_refused(tmp_path: Path, weights: Path, rack: Rack) -> None:
    rack.engines[1].base = "qwen"
    async with before(tmp_path, rack, weights) as http:
        learner = (await http.get("/burnish/status")).json()["learner"]
        assert "replicas must be the same engine" in learner["reason"]


async def test_plain_requests_are_shared_too_and_skip_one_that_is_down(tmp_path: Path, rack: Rack) -> None:
    async with before(tmp_path, rack, None) as http:
        for _ in range(4):
            assert await ask(http, "other") == "other"
        assert chats(rack) == [2, 2]
        await rack.stop(0)
        for _ in range(5):
            assert await ask(http, "other") == "other"
        assert (await http.get("/v1/models")).status_code == 200
        await rack.stop(1)
        answer = await http.post("/v1/chat/completions", json={"model": "other", "messages": []})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
        await rack.start(1)
        assert await ask(http, "other") == "other"


async def learns(http: httpx.AsyncClient) -> bool:
    return bool((await http.get("/burnish/status")).json()["learner"]["state"] != "off")


async def test_one_that_starts_later_is_found(tmp_path: Path, weights: Path, rack: Rack, name: str) -> None:
    for place in (0, 1):
        await rack.stop(place)
    async with before(tmp_path, rack, weights) as http:
        assert "cannot be reached" in (await http.get("/burnish/status")).json()["learner"]["reason"]
        assert not await learns(http)
        await rack.start(1)
        assert await ask(http, "other") == "other", "at once, as a plain upstream"
        await until(lambda: learns(http))
        assert await ask(http, "default") == name
        assert (await http.post("/burnish/train", json={"dry_run": True})).status_code == 200
        await rack.start(0)
        await until(lambda: name in rack.engines[0].loaded)
