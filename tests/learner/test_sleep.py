"""Training beside a vLLM that sleeps meanwhile: the first request wakes it, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.route import LiveRoute
from burnish.adapters.sleep import Disturbed, while_asleep
from tests.learner.test_foreign_engine import world
from tests.learner.test_plan import rated
from tests.support.inprocess import listening
from tests.support.patience import within
from tests.support.vllm_double import Engine, ask, live_version

Lend = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


@pytest.fixture
def engine() -> Engine:
    return Engine(asleep=False)


@pytest.fixture
async def host(engine: Engine) -> AsyncIterator[VllmHost]:
    async with listening(engine.app()) as url:
        host = VllmHost(url, base_model="smollm2", base_digest="sha256:0", versions=tuple)
        yield host
        await host.close()


@pytest.fixture
async def route(host: VllmHost) -> LiveRoute:
    route = LiveRoute()
    route.flip(await host.load(None))
    return route


async def test_it_sleeps_only_while_there_is_work(host: VllmHost, route: LiveRoute, engine: Engine) -> None:
    seen = []

    async def work() -> None:
        seen.append(engine.asleep)

    await while_asleep(host, route, work)
    assert seen == [True]
    assert engine.asleep is False
    assert "/sleep?level=1&mode=wait" in [path for path, _ in engine.asked], "requests of others end first"
    async with asyncio.timeout(within(30)):
        await route.awake()


async def test_a_request_wakes_it_and_ends_the_work(host: VllmHost, route: LiveRoute, engine: Engine) -> None:
    began, ended = asyncio.Event(), []

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    sleeping = asyncio.ensure_future(while_asleep(host, route, work))
    await began.wait()
    async with asyncio.timeout(within(30)):
        await asyncio.gather(*(route.awake() for _ in range(3)))
    assert (engine.asleep, ended) == (False, ["cancelled"])
    with pytest.raises(Disturbed, match="training stopped"):
        await sleeping


async def test_it_stays_awake_for_a_running_request(host: VllmHost, route: LiveRoute, engine: Engine) -> None:
    async def work() -> None:
        raise AssertionError("there is no room for it")

    with route.lease(), pytest.raises(Disturbed, match="under way"):
        await while_asleep(host, route, work)
    assert not [path for path, _ in engine.asked if "sleep" in path]
    await route.awake()


async def test_work_that_fails_leaves_it_awake(host: VllmHost, route: LiveRoute, engine: Engine) -> None:
    async def work() -> None:
        raise EngineError("out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        await while_asleep(host, route, work)
    assert engine.asleep is False


@pytest.mark.parametrize("engine", [Engine(asleep=None)])
async def test_one_without_sleep_mode_stays_awake(host: VllmHost, route: LiveRoute, engine: Engine) -> None:
    done = []

    async def work() -> None:
        done.append(True)

    await while_asleep(host, route, work)
    assert done == [True]
    assert not [path for path, _ in engine.asked if "sleep" in path]


async def test_an_engine_left_asleep_is_woken_first(tmp_path: Path, weights: Path, engine: Engine) -> None:
    version = live_version(tmp_path, weights_digest(weights))
    engine.asleep = True
    async with world(tmp_path, engine, weights) as http:
        assert await ask(http, "default") == engine_name(version)


async def test_on_a_shared_gpu_the_engine_sleeps(tmp_path: Path, weights: Path, engine: Engine) -> None:
    async with rated(tmp_path, weights, engine, device="shared") as burnish:
        await burnish.rate(*["good", "bad"] * 4)
        await burnish.job()  # which fails
        paths = [path for path, _ in engine.asked]
        assert paths.index("/sleep?level=1&mode=wait") < paths.index("/wake_up")
        assert await ask(burnish.http, "default") == "smollm2"
        assert (await burnish.plan())["ready"]["new"] == 8, "no rating is lost"
