"""burnish in front of an engine that somebody else runs: here a double of vLLM that forgets when it restarts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from burnish.adapters.hosts.base import engine_name
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.registry import EVENTS
from burnish.adapters.weights_file import WEIGHTS
from tests.support.inprocess import calling, listening, refusal
from tests.support.program import call
from tests.support.program import said as said_by
from tests.support.vllm_double import Engine, ask, live_version, trouble


@asynccontextmanager
async def world(
    tmp_path: Path, engine: Engine, weights: Path | None, flags: dict[str, Any] | None = None, **train: Any
) -> AsyncIterator[httpx.AsyncClient]:
    train |= {"base": str(weights)} if weights else {}
    async with listening(engine.app()) as upstream:
        async with calling(tmp_path, upstream=upstream, engine="auto", train=train, **(flags or {})) as http:
            yield http


async def test_the_live_version_answers_for_the_base_and_others_pass(tmp_path: Path, weights: Path) -> None:
    engine, version = Engine(), live_version(tmp_path, weights_digest(weights))
    name = engine_name(version)
    async with world(tmp_path, engine, weights) as http:
        assert engine.loaded == {name: str(version.path.absolute())}
        assert [await ask(http, model) for model in ("default", "smollm2", "smollm2@v1")] == [name] * 3
        assert await ask(http, "smollm2@base") == "smollm2"
        assert await ask(http, "other") == "other"
        names = [each["id"] for each in (await http.get("/v1/models")).json()["data"]]
        assert names == ["default", "smollm2", "smollm2@base", "smollm2@v1", "other"]
        state = (await http.get("/burnish/status")).json()
        assert (state["live"]["version"], state["engine"]["trouble"]) == (1, None)
        logged = (await http.get("/burnish/completions")).json()["data"]
        assert [each["adapter_version"] for each in logged] == [None, 0, 1, 1, 1]
        assert [each["base_digest"] for each in logged] == [None, *[weights_digest(weights)] * 4]

        assert (await http.post("/burnish/adapters/rollback", json={"to": 0})).json()["live"] == 0
        assert await ask(http, "default") == "smollm2"
        assert await ask(http, "smollm2@v1") == name, "it stays loaded while there is room"
        assert await ask(http, "smollm2@base") == "smollm2", "the bare model stays"


async def test_a_translated_request_gets_the_live_version(tmp_path: Path, weights: Path) -> None:
    engine, version = Engine(), live_version(tmp_path, weights_digest(weights))
    question = {"max_tokens": 9, "messages": [{"role": "user", "content": "Who are you?"}]}
    said = []
    async with world(tmp_path, engine, weights) as http:
        for model in ("default", "smollm2@base", "smollm2", "other"):
            engine.restart()
            answer = await http.post("/v1/messages", json={"model": model, **question})
            said.append(answer.json()["content"][0]["text"])
        logged = (await http.get("/burnish/completions")).json()["data"]
    assert said == [engine_name(version), "smollm2", engine_name(version), "other"]
    assert [each["adapter_version"] for each in logged] == [None, 1, 0, 1]


async def test_a_version_of_other_weights_is_refused_and_base_serves(tmp_path: Path, weights: Path) -> None:
    engine = Engine()
    live_version(tmp_path, "sha256:" + "0" * 64)
    async with world(tmp_path, engine, weights) as http:
        assert await ask(http, "default") == "smollm2"
        assert "was trained on base weights" in await trouble(http)
        assert engine.loaded == {}


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
async def test_a_lost_history_of_versions_is_trouble_until_a_version_is_chosen(
    tmp_path: Path, weights: Path, spoil: Callable[[Path], object]
) -> None:
    live_version(tmp_path, weights_digest(weights))
    spoil(tmp_path / "data" / "adapters" / "events.jsonl")
    async with world(tmp_path, Engine(), weights) as http:
        health = (await http.get("/healthz")).json()
        assert health["status"] == "degraded"
        assert "which version was live" in health["trouble"][0]
        assert (await http.get("/burnish/adapters")).json()["adapters"][0]["state"] == "candidate"
        await http.post("/burnish/adapters/rollback", json={"to": 0})
    async with world(tmp_path, Engine(), weights) as http:
        assert (await http.get("/healthz")).json()["trouble"] == []


DAMAGED: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "a line that is none": (lambda a: append(a, b"garbage\n"), None),
    "a live version that nobody knows": (lambda a: append(a, live_version_99(a)), "no version 99"),
    "weights gone": (lambda a: (a / "v0001" / WEIGHTS).unlink(), f"has no {WEIGHTS}"),
    "manifest damaged": (lambda a: (a / "v0001" / "manifest.json").write_text("{"), "cannot be read"),
    "version gone": (lambda a: shutil.rmtree(a / "v0001"), "no version 1"),
}


def live_version_99(adapters: Path) -> bytes:
    last = (adapters / EVENTS).read_bytes().splitlines()[-1]
    return orjson.dumps(orjson.loads(last) | {"version": 99}) + b"\n"


def append(adapters: Path, line: bytes) -> None:
    with (adapters / EVENTS).open("ab") as events:
        events.write(line)


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_damaged_registry_serves_and_says_why(tmp_path: Path, weights: Path, damage: str) -> None:
    version = live_version(tmp_path, weights_digest(weights))
    spoil, trouble = DAMAGED[damage]
    spoil(tmp_path / "data" / "adapters")
    async with world(tmp_path, Engine(), weights) as http:
        intact = trouble is None or "99" in trouble
        assert await ask(http, "default") == (engine_name(version) if intact else "smollm2")
        told = (await http.get("/healthz")).json()["trouble"]
        assert (trouble in told[0]) if trouble else not told


@pytest.mark.parametrize("can_load", [True, False])
async def test_status_says_if_versions_can_be_swapped(tmp_path: Path, weights: Path, can_load: bool) -> None:
    async with world(tmp_path, Engine(can_load=can_load), weights) as http:
        shown = (await asyncio.to_thread(call, "status", url=str(http.base_url))).stdout
        said = await asyncio.to_thread(said_by, "status", url=str(http.base_url))
    assert ("versions can be swapped in this engine" in shown) is can_load
    assert ("--enable-lora" in (said["engine"]["obstacle"] or "")) is not can_load


async def test_without_weights_it_passes_through_and_says_what_is_missing(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(), None) as http:
        assert await ask(http, "default") == "smollm2"
        learner = (await http.get("/burnish/status")).json()["learner"]
        assert (learner["state"], "set train.base" in learner["reason"]) == ("off", True)
        assert "set train.base" in await refusal(http, "/burnish/train", {})


@pytest.mark.parametrize(("rank", "note"), [(32, "rank 32 lowered to 16"), (16, None)])
async def test_too_high_a_rank_is_lowered(tmp_path: Path, weights: Path, rank: int, note: str | None) -> None:
    async with world(tmp_path, Engine(), weights, rank=rank) as http:
        plan = (await http.post("/burnish/train", json={"dry_run": True})).json()
        assert plan["hyperparameters"]["rank"] == 16
        assert (note in plan["note"]) if note else (plan["note"] is None)


async def test_weights_of_another_model_are_refused_and_traffic_passes(tmp_path: Path, weights: Path) -> None:
    engine, served = Engine(), tmp_path / "served"
    served.mkdir()
    engine.root = str(served)
    for path, layers in ((served, 2), (weights, 3)):
        sizes = {"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": layers, "vocab_size": 9}
        (path / "config.json").write_text(json.dumps(sizes))
    async with world(tmp_path, engine, weights) as http:
        assert await ask(http, "default") == "smollm2"
        reason = (await http.get("/burnish/status")).json()["learner"]["reason"]
        assert "layers 3 instead of 2" in reason
