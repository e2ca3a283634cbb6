"""What is particular to engines that load a LoRA directory under a name: vLLM and SGLang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from burnish.adapters.errors import EngineError, IncompatibleAdapter, ProbeFailed
from burnish.adapters.hosts import named_lora
from burnish.adapters.hosts.base import Endpoint, engine_name
from burnish.adapters.proof import generates
from tests.adapters.engines import NamedLora, Sglang, Vllm
from tests.support.inprocess import listening
from tests.support.patience import within

KINDS = [Vllm, Sglang]


async def test_a_version_is_loaded_once_by_its_content(engine: NamedLora, kind: type[NamedLora]) -> None:
    host, version = engine.open(), engine.make(7)
    with pytest.raises(IncompatibleAdapter):
        await host.load(engine.make(1, use_dora=True))
    assert engine.double.asked == [], "no setting of the engine can change that"
    assert host.limits.max_rank == 16
    endpoint = await host.load(version)
    name = engine_name(version)
    assert endpoint == Endpoint(engine.url, name if kind is Vllm else f"tiny:{name}", 7, endpoint.api_key)
    assert engine.double.loaded == {name: str(version.path)}
    await host.load(version)
    assert engine.posted(engine.double.load_route) == [{"lora_name": name, "lora_path": str(version.path)}]
    for _ in range(2):
        await host.unload(7)
    assert engine.posted(engine.double.unload_route) == [{"lora_name": name}]


async def test_another_base_model_is_named(engine: NamedLora) -> None:
    host = engine.open(base_model="qwen3")
    with pytest.raises(EngineError, match=r"serves tiny, not qwen3.*--served-model-name qwen3"):
        await host.load(None)
    assert await host.served() == {}


async def test_a_rank_above_the_limit_says_how_to_raise_it(engine: NamedLora) -> None:
    """SGLang's words hold the path, here with "repository" in it, which is also in its words for a missing one."""
    engine.folder /= "repository"
    host = engine.open()
    with pytest.raises(IncompatibleAdapter, match=r"rank 24.*--max-lora-rank (24|32)"):
        await host.load(engine.make(1, rank=24))
    assert engine.double.loaded == {}
    engine.double.max_rank = 24
    await host.load(engine.make(2, rank_pattern={"q_proj": 24}))


@pytest.mark.parametrize("kind", [Vllm])
@pytest.mark.parametrize("config", [{"lora_bias": True}, {"bias": "all"}])
async def test_what_only_vllm_refuses_is_incompatible(engine: NamedLora, config: dict[str, Any]) -> None:
    with pytest.raises(IncompatibleAdapter, match="bias"):
        await engine.open().load(engine.make(1, **config))
    assert engine.double.loaded == {}


@pytest.mark.parametrize("kind", [Sglang])
async def test_a_base_with_a_colon_in_its_name_cannot_be_served_by_sglang(engine: NamedLora) -> None:
    with pytest.raises(EngineError, match="--served-model-name qwen3-8b"):
        await engine.open(base_model="qwen3:8b").load(None)


async def test_an_engine_that_cannot_load_is_explained(engine: NamedLora, kind: type[NamedLora]) -> None:
    engine.double.can_load = False
    host = engine.open()
    how = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve" if kind is Vllm else "sglang.launch_server"
    with pytest.raises(EngineError, match=rf"{how}.*--enable-lora") as raised:
        await host.load(engine.make(1))
    assert not isinstance(raised.value, IncompatibleAdapter)
    with pytest.raises(EngineError, match=how):
        await host.check()
    await host.load(None)


async def test_an_engine_on_another_machine_cannot_see_the_directory(engine: NamedLora) -> None:
    engine.double.shares_files = False
    version = engine.make(1)
    with pytest.raises(EngineError, match=f"cannot see {version.path}.*mount"):
        await engine.open().load(version)


async def test_the_same_name_with_another_directory_behind_it_is_left_alone(engine: NamedLora) -> None:
    host, version = engine.open(), engine.make(1)
    engine.double.loaded[engine_name(version)] = "/somebody/else"
    with pytest.raises(EngineError, match="already"):
        await host.load(version)
    assert (await host.served()).keys() == {0}
    await host.unload(1)
    assert engine.double.loaded == {engine_name(version): "/somebody/else"}


async def test_several_hosts_may_load_a_version_at_once(engine: NamedLora) -> None:
    version = engine.make(1)
    endpoints = await asyncio.gather(*(engine.open().load(version) for _ in range(8)))
    assert len(set(endpoints)) == 1
    assert engine.double.loaded == {engine_name(version): str(version.path)}


async def test_an_engine_that_does_not_list_what_it_loaded_is_not_believed(engine: NamedLora) -> None:
    engine.double.lies = True
    with pytest.raises(EngineError, match="does not list it"):
        await engine.open().load(engine.make(1))


@pytest.mark.parametrize("ended", ["timed out", "cancelled"])
async def test_a_load_without_an_answer_leaves_nothing_loaded(
    engine: NamedLora, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = engine.double.load, asyncio.Event()

    async def slow(request: Request) -> Response:
        response = await load(request)
        loaded.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return response

    monkeypatch.setattr(engine.double, "load", slow)
    if ended == "timed out":
        monkeypatch.setattr(named_lora, "LOAD_TIMEOUT_S", within(1))
    loading = asyncio.ensure_future(engine.open().load(engine.make(1)))
    await loaded.wait()
    if ended == "cancelled":
        loading.cancel()
    with pytest.raises((EngineError, asyncio.CancelledError)):
        await loading
    assert engine.double.loaded == {}


async def test_a_probe_of_a_version_that_is_gone_fails(engine: NamedLora) -> None:
    host = engine.open()
    endpoint = await host.load(engine.make(1))
    engine.double.restart()
    with pytest.raises(ProbeFailed):
        await generates(host, endpoint)


async def test_another_kind_of_server_is_not_taken_for_the_engine(engine: NamedLora) -> None:
    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    async with listening(other) as url:
        host = engine.open(url=url)
        with pytest.raises(EngineError, match="does not answer as"):
            await host.load(None)
        assert await host.served() == {}
