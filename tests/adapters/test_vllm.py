"""Hosts of engines that run already, against doubles that speak as the engines do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from burnish.adapters.errors import (
    CorruptAdapter,
    EngineError,
    EngineRefused,
    IncompatibleAdapter,
    ProbeFailed,
)
from burnish.adapters.hosts.base import AdapterHost, Endpoint, engine_name
from burnish.adapters.hosts.named_lora import NamedLoraHost
from burnish.adapters.hosts.sglang import SglangHost
from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.support.inprocess import listening
from tests.support.lora import version_of, write_peft
from tests.support.vllm_double import NamedLoraDouble, SglangDouble, VllmDouble, tiny_lora

DIGEST = "sha256:" + "0" * 64
Make = Callable[..., AdapterVersion]
MakeHost = Callable[..., NamedLoraHost]
KINDS: dict[str, tuple[type[NamedLoraDouble], type[NamedLoraHost]]] = {
    "vllm": (VllmDouble, VllmHost),
    "sglang": (SglangDouble, SglangHost),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def double(kind: str) -> NamedLoraDouble:
    return KINDS[kind][0]()


@pytest.fixture
async def url(double: NamedLoraDouble) -> AsyncIterator[str]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Made anew for each request, so that a test can change what the engine was started with.
        await double.app()(scope, receive, send)

    async with listening(app) as url:
        yield url


@pytest.fixture
def versions() -> list[AdapterVersion]:
    return []


@pytest.fixture
def make(tmp_path: Path, versions: list[AdapterVersion]) -> Make:
    """One more version, of any rank and configuration."""

    def made(number: int, rank: int = 4, digest: str = DIGEST, **config: object) -> AdapterVersion:
        path = write_peft(tmp_path / f"v{number:04}", tiny_lora(number, rank), rank, **config)
        versions.append(version_of(path, number, digest))
        return versions[-1]

    return made


@pytest.fixture
async def make_host(kind: str, url: str, versions: list[AdapterVersion]) -> AsyncIterator[MakeHost]:
    hosts = []

    def made(**changes: Any) -> NamedLoraHost:
        settings: dict[str, Any] = {
            "url": url,
            "base_model": "smollm2",
            "base_digest": DIGEST,
            "versions": lambda: versions,
        }
        hosts.append(KINDS[kind][1](**settings | changes))
        return hosts[-1]

    yield made
    for host in hosts:
        await host.close()


@pytest.fixture
def host(make_host: MakeHost) -> NamedLoraHost:
    return make_host()


def posted(double: NamedLoraDouble, route: str) -> list[dict[str, Any]]:
    return [body for path, body in double.asked if path == route]


async def test_a_host_is_what_every_engine_is(host: NamedLoraHost, url: str) -> None:
    same: AdapterHost = host
    assert await same.load(None) == Endpoint(url, "smollm2", 0)
    assert host.limits.max_rank == 16
    await host.check()
    await host.unload(0)
    await host.unload(99)
    assert await host.served() == {0: Endpoint(url, "smollm2", 0)}


async def test_a_version_goes_in_under_a_name_that_holds_its_content(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make, kind: str
) -> None:
    version = make(7)
    endpoint = await host.load(version)
    name = engine_name(version)
    assert endpoint.model == (name if kind == "vllm" else f"smollm2:{name}")
    assert endpoint.version == 7
    assert double.loaded == {name: str(version.path.absolute())}
    assert posted(double, double.load_route) == [{"lora_name": name, "lora_path": str(version.path)}]
    await host.probe(endpoint)
    assert await host.load(version) == endpoint
    assert len(posted(double, double.load_route)) == 1, "nothing is ever loaded over itself"
    assert (await host.served()).keys() == {0, 7}
    await host.unload(7)
    assert double.loaded == {}
    await host.unload(7)
    assert posted(double, double.unload_route) == [{"lora_name": name}]


async def test_the_key_goes_with_every_request(
    double: NamedLoraDouble, make_host: MakeHost, make: Make, kind: str
) -> None:
    double.api_key = "secret"
    host = make_host(api_key="secret")
    endpoint = await host.load(make(1))
    assert endpoint.api_key == "secret"
    await host.probe(endpoint)
    stranger = make_host()
    with pytest.raises(EngineRefused, match="401"):
        await stranger.load(None)
    assert await stranger.served() == {}


async def test_another_base_model_is_named(make_host: MakeHost) -> None:
    host = make_host(base_model="qwen3")
    with pytest.raises(EngineError, match=r"serves smollm2, not qwen3.*--served-model-name qwen3"):
        await host.load(None)
    assert await host.served() == {}


async def test_weights_trained_on_another_base_never_reach_the_engine(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    with pytest.raises(IncompatibleAdapter, match="other weights"):
        await host.load(make(1, digest="sha256:" + "1" * 64))
    assert double.asked == []


@pytest.mark.parametrize("config", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}])
async def test_what_no_setting_can_serve_never_reaches_the_engine(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make, config: dict[str, object]
) -> None:
    with pytest.raises(IncompatibleAdapter, match=next(iter(config))):
        await host.load(make(1, **config))
    assert double.asked == []


async def test_a_configuration_that_cannot_be_read_is_corrupt(host: NamedLoraHost, make: Make) -> None:
    version = make(1)
    (version.path / "adapter_config.json").write_text("[]")
    with pytest.raises(CorruptAdapter, match=r"adapter_config\.json"):
        await host.load(version)


async def test_a_rank_above_the_limit_says_how_to_raise_it(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    with pytest.raises(IncompatibleAdapter, match=r"rank 24.*--max-lora-rank (24|32)"):
        await host.load(make(1, rank=24))
    assert double.loaded == {}
    double.max_rank = 24
    await host.load(make(2, rank=4, rank_pattern={"q_proj": 24}))


async def test_what_only_vllm_knows_it_cannot_serve_is_incompatible(
    versions: list[AdapterVersion], make: Make
) -> None:
    double = VllmDouble()
    async with listening(double.app()) as url:
        host = VllmHost(url, base_model="smollm2", base_digest=DIGEST, versions=lambda: versions)
        for number, config in enumerate(({"lora_bias": True}, {"bias": "all"}), start=1):
            with pytest.raises(IncompatibleAdapter, match="bias"):
                await host.load(make(number, **config))
        await host.close()
    assert double.loaded == {}


async def test_an_engine_that_cannot_load_at_runtime_says_how_to_start_it(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make, kind: str
) -> None:
    double.can_load = False
    how = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve" if kind == "vllm" else "sglang.launch_server"
    with pytest.raises(EngineError, match=rf"{how}.*--enable-lora") as raised:
        await host.load(make(1))
    assert not isinstance(raised.value, IncompatibleAdapter)
    with pytest.raises(EngineError, match=how):
        await host.check()
    await host.load(None)


async def test_an_engine_on_another_machine_cannot_see_the_directory(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    double.shares_files = False
    version = make(1)
    with pytest.raises(EngineError, match=f"cannot see {version.path}.*mount"):
        await host.load(version)


async def test_the_same_name_with_another_directory_behind_it_is_not_ours(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    version = make(1)
    double.loaded[engine_name(version)] = "/somebody/else"
    with pytest.raises(EngineError, match="already"):
        await host.load(version)
    assert (await host.served()).keys() == {0}
    await host.unload(1)
    assert double.loaded == {engine_name(version): "/somebody/else"}, "another's adapter is left alone"


async def test_a_load_that_another_did_in_between_is_as_good(
    double: NamedLoraDouble, make: Make, make_host: MakeHost
) -> None:
    version = make(1)
    endpoints = await asyncio.gather(*(make_host().load(version) for _ in range(8)))
    assert len(set(endpoints)) == 1
    assert double.loaded == {engine_name(version): str(version.path)}


async def test_an_engine_that_says_it_loaded_is_not_believed(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    double.lies = True
    with pytest.raises(EngineError, match="does not list it"):
        await host.load(make(1))


async def test_a_lost_answer_leaves_nothing_loaded(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = double.load

    async def slow(request: Any) -> Any:
        response = await load(request)
        await asyncio.sleep(5)
        return response

    monkeypatch.setattr(double, "load", slow)
    monkeypatch.setattr("burnish.adapters.hosts.named_lora.LOAD_TIMEOUT_S", 0.2)
    with pytest.raises(EngineError, match="did not answer"):
        await host.load(make(1))
    assert double.loaded == {}


async def test_a_cancelled_load_leaves_nothing_loaded(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = double.load, asyncio.Event()

    async def slow(request: Any) -> Any:
        response = await load(request)
        loaded.set()
        await asyncio.sleep(5)
        return response

    monkeypatch.setattr(double, "load", slow)
    task = asyncio.get_running_loop().create_task(host.load(make(1)))
    await loaded.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert double.loaded == {}


async def test_a_probe_of_what_is_gone_fails(
    host: NamedLoraHost, double: NamedLoraDouble, make: Make
) -> None:
    endpoint = await host.load(make(1))
    double.restart()
    with pytest.raises(ProbeFailed):
        await host.probe(endpoint)


async def test_an_engine_that_is_down_serves_nothing(make_host: MakeHost, make: Make) -> None:
    host = make_host(url="http://127.0.0.1:9")
    assert await host.served() == {}
    with pytest.raises(EngineError, match="cannot be reached"):
        await host.load(make(1))


async def test_what_is_no_such_engine_says_so(double: NamedLoraDouble, make_host: MakeHost) -> None:
    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    async with listening(other) as url:
        host = make_host(url=url)
        with pytest.raises(EngineError, match="is it one"):
            await host.load(None)
        assert await host.served() == {}


async def test_a_restart_that_forgets_is_repaired(
    host: NamedLoraHost, double: NamedLoraDouble, tmp_path: Path, versions: list[AdapterVersion]
) -> None:
    registry = Registry(tmp_path / "adapters")
    swap = Swap(registry, host, LiveRoute())
    reconciler = Reconciler(swap)
    await reconciler.reconcile_once()
    version = registry.register(
        write_peft(tmp_path / "trained", tiny_lora(1, 4), target_modules=["q_proj"]),
        base_model="smollm2",
        base_digest=DIGEST,
        parent=0,
        run_id="run_1",
        feedback_ids=[],
        objective="none",
        hyperparameters={},
        metrics={},
    )
    versions.append(version)
    await swap.go_live(version, "test")
    double.restart()
    done = await reconciler.reconcile_once()
    assert "v1 serves again" in done.actions
    assert done.fault is None
    assert list(double.loaded) == [engine_name(version)]
    await swap.close()
