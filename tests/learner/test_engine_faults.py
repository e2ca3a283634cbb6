"""Whatever goes wrong while a version goes live: the old one serves on, the reason is said, retry works."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import Reconciler, Repair
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from tests.proxy.log.exchanges import until
from tests.support.inprocess import Switched, calling
from tests.support.lora import random_lora, register, write_peft
from tests.support.vllm_double import Engine, ask, error, live_version, trouble

Fault = Callable[[str], Response | None]
"""What is answered instead, given the model or adapter that the request names."""


@dataclass
class Faulty(Engine):
    """The double, in which things can be made to fail."""

    broken: dict[str, Fault] = field(default_factory=dict)
    """By path."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, answers of the version ``slow`` wait."""
    slow: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self.broken:
            body = json.loads((await Request(scope, receive).body()) or b"{}")
            if fault := self.broken[scope["path"]](str(body.get("lora_name") or body.get("model"))):
                await fault(scope, receive, send)
                return

            async def again() -> dict[str, Any]:
                return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

            receive = again
        await self.app()(scope, receive, send)

    async def chat(self, request: Request) -> Response:
        answer = await super().chat(request)
        if self.slow and self.slow in bytes(answer.body).decode():
            await self.held.wait()
        return answer


def registered(tmp_path: Path, weights: Path, seed: int, **changes: Any) -> AdapterVersion:
    """A version that is not live; ``changes``: other provenance than usual."""
    made = write_peft(tmp_path / f"made-{seed}", random_lora(seed))
    return register(Registry(tmp_path / "data" / "adapters"), made, weights_digest(weights), **changes)


@dataclass
class World:
    engine: Faulty
    http: httpx.AsyncClient
    first: AdapterVersion
    """Live."""
    second: AdapterVersion
    """A candidate."""
    switched: Switched

    async def promote(self, version: int = 2) -> httpx.Response:
        return await self.http.post(f"/burnish/adapters/{version}/promote", json={"force": True})

    async def live(self) -> int:
        return int((await self.http.get("/burnish/status")).json()["live"]["version"])

    async def refused(self, *words: str) -> None:
        """A promotion fails and says why, and the old version serves on."""
        answer = await self.promote()
        assert answer.status_code >= 400, answer.text
        for word in words:
            assert word in answer.json()["error"]["message"]
        assert await self.live() == 1
        assert await ask(self.http, "default") == engine_name(self.first)
        assert list(self.engine.loaded) == [engine_name(self.first)]

    async def goes_live(self) -> None:
        answer = await self.promote()
        assert answer.status_code == 200, answer.text
        assert await ask(self.http, "default") == engine_name(self.second)


@pytest.fixture
async def world(tmp_path: Path, weights: Path) -> AsyncIterator[World]:
    first, second = (registered(tmp_path, weights, seed) for seed in (1, 2))
    Registry(tmp_path / "data" / "adapters").record(1, "live", "for the test", replaced=0)
    engine = Faulty()
    async with opened(tmp_path, engine, weights) as (http, switched):
        yield World(engine, http, first, second, switched)


@asynccontextmanager
async def opened(
    tmp_path: Path, engine: Faulty, weights: Path
) -> AsyncIterator[tuple[httpx.AsyncClient, Switched]]:
    switched, train = Switched(engine), {"base": str(weights)}
    await switched.on()
    async with calling(tmp_path, upstream=switched.url, engine="auto", train=train) as http:
        yield http, switched
    await switched.off()


LOAD = "/v1/load_lora_adapter"
PROBE = "/v1/completions"


def dead(model: str) -> Response | None:
    return error(500, "EngineDeadError", "InternalServerError") if "@v2" in model else None


@pytest.mark.parametrize(
    ("route", "fault", "words"),
    [
        (LOAD, lambda _: error(500, "CUDA out of memory.", "InternalServerError"), "CUDA out of memory"),
        (LOAD, dead, "EngineDeadError"),
        (LOAD, lambda _: Response("<html>Bad Gateway</html>", 502, media_type="text/html"), "502"),
        (LOAD, lambda _: error(400, "LoRA rank 4 is greater than max_lora_rank 2.", "BadRequestError"), "rank"),
        (LOAD, lambda _: JSONResponse({"detail": "Not Found"}, 404), "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        (LOAD, lambda _: Response("Success, but not really"), "does not list it"),
        (PROBE, dead, "test generation failed: EngineDeadError"),
    ],
    ids=["out of memory", "dead inside", "a proxy's page", "rank", "routes off", "a lie", "dies after the load"],
)  # fmt: skip
async def test_a_load_that_fails(world: World, route: str, fault: Fault, words: str) -> None:
    world.engine.broken[route] = fault
    await world.refused(*words.split(": "))
    world.engine.broken.clear()
    await world.goes_live()


async def test_an_engine_that_is_gone_at_load(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.engine.restart()
    await world.switched.off()
    assert "cannot be reached" in (await world.promote()).json()["error"]["message"]
    assert await world.live() == 1
    assert "cannot be reached" in await until(lambda: trouble(world.http))
    assert (await world.http.get("/healthz")).json()["status"] == "degraded"
    waits, wait_live = asyncio.Event(), LiveRoute.wait_live

    async def waited_for(route: LiveRoute, timeout_s: float) -> None:
        waits.set()
        await wait_live(route, timeout_s)

    monkeypatch.setattr(LiveRoute, "wait_live", waited_for)
    waiting = asyncio.ensure_future(ask(world.http, "default"))
    await waits.wait()
    await world.switched.on()
    assert await waiting == engine_name(world.first), "a request that came in between waits"
    await world.goes_live()


async def test_an_engine_that_dies_while_the_old_version_drains(world: World) -> None:
    world.engine.slow = engine_name(world.first)
    under_way = asyncio.ensure_future(ask(world.http, "default"))
    await until(lambda: "/v1/chat/completions" in [path for path, _ in world.engine.asked])
    await world.goes_live()
    world.engine.restart()  # it forgets both, in the middle of the drain
    assert await ask(world.http, "default") == engine_name(world.second)
    world.engine.held.set()
    assert await under_way == engine_name(world.first), "ends on the version on which it began"
    assert await world.live() == 2
    await world.http.post("/burnish/adapters/rollback", json={"to": 1})
    assert await ask(world.http, "default") == engine_name(world.first)


@pytest.mark.parametrize("key", ["use_dora", "modules_to_save"])
async def test_what_the_engine_cannot_take(tmp_path: Path, weights: Path, key: str) -> None:
    first, engine = live_version(tmp_path, weights_digest(weights)), Faulty()
    path = write_peft(tmp_path / "odd", random_lora(2), **{key: True})
    odd = register(Registry(tmp_path / "data" / "adapters"), path, weights_digest(weights))
    async with opened(tmp_path, engine, weights) as (http, switched):
        world = World(engine, http, first, odd, switched)
        await world.refused(key)
        loaded = [body["lora_name"] for path, body in engine.asked if path == LOAD]
        assert engine_name(world.first) in loaded
        assert engine_name(odd) not in loaded, "it never reaches the engine"


@pytest.mark.parametrize("damage", ["truncated", "changed", "gone"])
async def test_files_that_are_not_what_was_registered(world: World, damage: str) -> None:
    file = world.second.path / "adapter_model.safetensors"
    content = file.read_bytes()
    os.chmod(file, 0o600)
    os.chmod(file.parent, 0o700)
    if damage == "gone":
        file.unlink()
    else:
        nan = b"\x00\x00\xc0\x7f"
        file.write_bytes(content[: len(content) // 2] if damage == "truncated" else content[:-4] + nan)
    await world.refused("adapter_model.safetensors")
    file.write_bytes(content)
    await world.goes_live()


async def test_a_name_that_another_has_taken(world: World) -> None:
    world.engine.loaded[engine_name(world.second)] = "/somebody/elses"
    assert "already" in (await world.promote()).json()["error"]["message"]
    assert await ask(world.http, "default") == engine_name(world.first)
    assert world.engine.loaded[engine_name(world.second)] == "/somebody/elses", "not ours to unload"
    del world.engine.loaded[engine_name(world.second)]
    await world.goes_live()


async def test_two_proxies_one_engine(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = Counter[Reconciler](), Reconciler.reconcile_once

    async def counted(reconciler: Reconciler) -> Repair:
        found = await look(reconciler)
        looks[reconciler] += 1
        return found

    monkeypatch.setattr(Reconciler, "reconcile_once", counted)
    engine = Faulty()
    names = []
    for seed, owner in ((1, "a"), (2, "b")):
        (tmp_path / owner).mkdir()
        version = registered(tmp_path / owner, weights, seed)
        Registry(tmp_path / owner / "data" / "adapters").record(1, "live", "for the test", replaced=0)
        names.append(engine_name(version))
    assert names[0] != names[1], "the same number, other weights"
    async with (
        opened(tmp_path / "a", engine, weights) as (a, _),
        opened(tmp_path / "b", engine, weights) as (b, _),
    ):
        assert set(engine.loaded) == set(names)
        for _ in range(2):
            assert [await ask(http, "default") for http in (a, b)] == names
            engine.restart()
        await a.post("/burnish/adapters/rollback", json={"to": 0})
        assert [await ask(http, "default") for http in (a, b)] == ["smollm2", names[1]]
        looks.clear()
        await until(lambda: len(looks) == 2)
        assert await ask(b, "default") == names[1]
