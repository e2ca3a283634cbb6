"""What is particular to llama-server in router mode: its preset file, its processes, its room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.base import engine_name
from burnish.adapters.proof import generates
from tests.adapters.engines import PROMPT, Router
from tests.support.engine import answer
from tests.support.llama_server import LlamaServer

KINDS = [Router]


async def test_the_preset_and_the_models_of_others_stay_as_they_are(engine: Router) -> None:
    host, before = engine.open(), engine.preset.read_bytes()
    base = await host.load(None)
    alone, pid = await answer(base, PROMPT), engine.server.child("tiny").pid
    first = await host.load(engine.make(1))
    assert first.model.startswith("tiny@v1-")
    assert engine.preset.read_bytes().startswith(before)
    assert await answer(base, PROMPT) == alone
    await host.unload(1)
    assert engine.preset.read_bytes() == before
    assert engine.server.child("tiny").pid == pid, "no reload has restarted it"


async def test_a_restarted_server_wakes_a_version_when_it_is_asked(engine: Router) -> None:
    version = engine.make(1)
    first = await engine.open().load(version)
    text = await answer(first, PROMPT)
    await engine.restart()
    after = engine.open()  # the proxy was restarted as well
    assert await after.served() == {}
    assert await answer(first, PROMPT) == text
    assert await after.load(version) == first
    await after.unload(1)
    assert await after.served() == {}


async def test_a_killed_process_is_noticed_and_replaced(engine: Router) -> None:
    host, version = engine.open(), engine.make(1)
    first = await host.load(version)
    engine.server.child(first.model).kill()
    while await host.served():  # until the router has noticed
        await asyncio.sleep(0)
    assert await host.load(version) == first
    await generates(host, first)


async def test_a_load_that_would_end_another_model_is_refused(engine: Router) -> None:
    host = engine.open()
    loaded = {n: await host.load(engine.make(n) if n else None) for n in range(3)}
    with pytest.raises(EngineError, match=r"would end one of them .* larger --models-max"):
        await host.load(engine.make(3))
    assert await host.served() == loaded


async def test_a_load_that_the_server_fails_leaves_nothing_and_can_be_repeated(engine: Router) -> None:
    host, version, before = engine.open(), engine.make(1), engine.preset.read_bytes()
    await host.load(version)
    await host.unload(1)
    (gguf,) = engine.state.iterdir()
    gguf.write_bytes(b"torn")
    with pytest.raises(EngineError, match=r"could not load tiny@v1-\w+ \(its process ended with status 1\)"):
        await host.load(version)
    assert (engine.preset.read_bytes(), await host.served()) == (before, {})
    await generates(host, await host.load(version))


async def test_a_cancelled_load_leaves_nothing(engine: Router) -> None:
    host, version, before = engine.open(), engine.make(1), engine.preset.read_bytes()
    loading = asyncio.ensure_future(host.load(version))
    while engine_name(version) not in engine.preset.read_text():
        await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert (engine.preset.read_bytes(), await host.served()) == (before, {})


async def test_a_server_that_cannot_serve_versions_is_told_how_to_start(engine: Router, tiny: Path) -> None:
    before = engine.preset.read_bytes()
    other = engine.folder / "other.ini"
    other.write_text(f"[tiny]\nmodel = {tiny}\n")
    single = ["--model", str(tiny), "--ctx-size", "512"]
    elsewhere = ["--models-preset", str(other)]
    for arguments, why in ((single, "router mode"), (elsewhere, "doesn't read the preset")):
        with LlamaServer(arguments, engine.folder / "other.log") as server:
            with pytest.raises(EngineError, match=why) as failed:
                await engine.open(url=server.url).load(engine.make(1))
        command = f"llama-server --models-preset {engine.preset} --models-max 0 --cache-ram 0"
        assert command in str(failed.value)
    assert engine.preset.read_bytes() == before


async def test_a_base_that_the_server_does_not_know_is_named(engine: Router) -> None:
    with pytest.raises(EngineError, match="has no model 'missing'"):
        await engine.open(base_model="missing").load(None)
