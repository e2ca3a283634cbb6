from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from burnish.adapters.hosts.base import Endpoint, engine_name
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, ensure_small_model
from burnish.adapters.hosts.llamacpp import LlamaCppHost
from burnish.adapters.manifest import AdapterVersion
from tests.support.engine import answer, deltas
from tests.support.llama_server import LlamaServer
from tests.support.lora import random_lora, version_of, write_peft

PROMPT = "Name three colours."
KEY = "the-users-own-key"

Make = Callable[..., AdapterVersion]
Open = Callable[..., LlamaCppHost]


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "models.ini"
    base = f"model = {ensure_small_model()}\nctx-size = 2048\nparallel = 2\nfit = off\ncache-ram = 0\n"
    path.write_text(
        f"version = 1\n; mine\n[smollm2]\n{base}alias = chat\n\n# someone else's\n[other]\n{base}# the end\n"
    )
    return path


@pytest.fixture
def router(preset: Path, tmp_path: Path) -> Iterator[LlamaServer]:
    arguments = ["--models-preset", str(preset), "--models-max", "3"]
    with LlamaServer(arguments, tmp_path / "router.log", api_key=KEY) as server:
        yield server


@pytest.fixture
def versions() -> list[AdapterVersion]:
    """What the registry holds."""
    return []


@pytest.fixture
def make(tmp_path: Path, versions: list[AdapterVersion]) -> Make:
    def make(seed: int, number: int | None = None, base_digest: str = SMALL_MODEL_DIGEST) -> AdapterVersion:
        path = write_peft(tmp_path / f"trained-{seed}", random_lora(seed, strength=0.1))
        versions.append(version_of(path, number or seed, base_digest))
        return versions[-1]

    return make


@pytest.fixture
async def open_host(preset: Path, tmp_path: Path, versions: list[AdapterVersion]) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        def open_host(
            url: str, registry: list[AdapterVersion] | None = None, state: str = "state", api_key: str = KEY
        ) -> LlamaCppHost:
            known = versions if registry is None else registry
            host = LlamaCppHost(
                url,
                base_model="smollm2",
                base_digest=SMALL_MODEL_DIGEST,
                base_path=ensure_small_model(),
                preset=preset,
                state_dir=tmp_path / state,
                versions=lambda: known,
                api_key=api_key,
            )
            stack.push_async_callback(host.close)
            return host

        yield open_host


@pytest.fixture
def host(open_host: Open, router: LlamaServer) -> LlamaCppHost:
    return open_host(router.url)


def content(preset: Path) -> bytes:
    return preset.read_bytes()


def converted(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "state").iterdir()]


async def test_versions_live_side_by_side_and_answer_as_themselves(
    host: LlamaCppHost, make: Make, preset: Path, router: LlamaServer
) -> None:
    before = content(preset)
    base = await host.load(None)
    alone = await answer(base, PROMPT)
    first = await host.load(make(1))
    second = await host.load(make(2))
    assert base.model == "smollm2"
    assert first.model.startswith("smollm2@v1-")
    assert content(preset).startswith(before), "not a byte of others has changed"
    texts = [await answer(endpoint, PROMPT) for endpoint in (base, first, second)]
    assert texts[0] == alone, "the base model answers as before"
    assert len(set(texts)) == 3
    assert await host.served() == {0: base, 1: first, 2: second}
    async for delta in deltas(first, PROMPT, tokens=4):
        assert delta.model == first.model
    for endpoint in (base, first, second):
        await host.probe(endpoint)
    assert await host.load(make(1)) == first, "loading twice is loading once"
    bare = router.child("smollm2").pid
    await host.unload(1)
    await host.unload(1)
    await host.unload(77)
    assert await host.served() == {0: base, 2: second}
    await host.unload(2)
    await host.unload(0)
    assert await host.served() == {0: base}, "the user's own section is not ours to unload"
    assert content(preset) == before
    assert router.child("smollm2").pid == bare, "no reload has restarted it"


async def test_a_restarted_server_knows_our_sections_but_serves_nothing_until_asked(
    host: LlamaCppHost, open_host: Open, make: Make, router: LlamaServer
) -> None:
    version = make(1)
    first = await host.load(version)
    text = await answer(first, PROMPT)
    await asyncio.to_thread(router.restart)
    assert await host.served() == {}
    after = open_host(router.url)  # the proxy was started anew as well
    assert await answer(first, PROMPT) == text, "a request wakes it, and it is the same weights"
    assert await after.load(version) == first
    assert await after.served() == {1: first}
    await after.unload(1)
    assert await after.served() == {}


async def test_a_killed_process_is_noticed_and_replaced(
    host: LlamaCppHost, make: Make, router: LlamaServer
) -> None:
    version = make(1)
    first = await host.load(version)
    router.child(first.model).kill()
    for _ in range(100):
        if not await host.served():
            break
        await asyncio.sleep(0.1)
    assert await host.served() == {}
    assert await host.load(version) == first
    await host.probe(first)


async def test_streams_of_others_go_on_during_a_load_and_an_unload(host: LlamaCppHost, make: Make) -> None:
    first = await host.load(make(1))
    quiet = await answer(first, PROMPT, tokens=120)

    async def stream() -> str:
        return "".join([delta.text async for delta in deltas(first, PROMPT, tokens=120)])

    # One only: what is decoded together has a say in what llama.cpp answers with an adapter.
    under_way = asyncio.ensure_future(stream())
    await asyncio.sleep(0.2)
    await host.load(make(2))
    await host.unload(2)
    assert await under_way == quiet


async def test_two_proxies_on_one_server_do_not_disturb_each_other(
    open_host: Open, router: LlamaServer, make: Make, preset: Path
) -> None:
    before = content(preset)
    ours, theirs = make(1, number=7), make(2, number=7)
    mine, other = open_host(router.url, [ours]), open_host(router.url, [theirs], "state-2")
    first, second = await asyncio.gather(mine.load(ours), other.load(theirs))
    assert first.model != second.model, "the same number, other content: another name"
    assert await answer(first, PROMPT) != await answer(second, PROMPT)
    assert await mine.served() == {7: first}
    assert await other.served() == {7: second}
    await mine.unload(7)
    assert await mine.served() == {}
    assert await other.served() == {7: second}
    await other.probe(second)
    await other.unload(7)
    assert content(preset) == before


async def test_a_load_that_would_end_another_model_is_refused(host: LlamaCppHost, make: Make) -> None:
    loaded = {0: await host.load(None), 1: await host.load(make(1)), 2: await host.load(make(2))}
    with pytest.raises(EngineError, match=r"would end one of them .* larger --models-max"):
        await host.load(make(3))
    assert await host.served() == loaded


async def test_a_damaged_adapter_is_refused_and_leaves_nothing(
    host: LlamaCppHost, tmp_path: Path, preset: Path
) -> None:
    before = content(preset)
    nan = random_lora(1)
    next(iter(nan.values()))[0, 0] = float("nan")
    with pytest.raises(CorruptAdapter, match="NaN"):
        await host.load(version_of(write_peft(tmp_path / "a", nan), 1, SMALL_MODEL_DIGEST))
    assert (content(preset), converted(tmp_path), await host.served()) == (before, [], {})


async def test_an_adapter_of_another_base_is_refused(host: LlamaCppHost, make: Make, preset: Path) -> None:
    before = content(preset)
    with pytest.raises(IncompatibleAdapter, match="trained on base weights sha256:0000"):
        await host.load(make(1, base_digest="sha256:0000"))
    assert content(preset) == before


async def test_a_full_disk_leaves_nothing(
    host: LlamaCppHost, make: Make, tmp_path: Path, preset: Path
) -> None:
    version, before = make(1), content(preset)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(EngineError, match="cannot write smollm2@v1 as GGUF"):
            await host.load(version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (content(preset), converted(tmp_path)) == (before, [])
    await host.probe(await host.load(version))


async def test_a_load_that_the_server_fails_leaves_nothing_and_can_be_repeated(
    host: LlamaCppHost, make: Make, tmp_path: Path, preset: Path
) -> None:
    version, before = make(1), content(preset)
    await host.load(version)
    await host.unload(1)
    (gguf,) = (tmp_path / "state").iterdir()
    gguf.write_bytes(b"torn")
    with pytest.raises(
        EngineError, match=r"could not load smollm2@v1-\w+ \(its process ended with status 1\)"
    ):
        await host.load(version)
    assert (content(preset), await host.served()) == (before, {})
    await host.probe(await host.load(version))


async def test_a_cancelled_load_leaves_nothing(host: LlamaCppHost, make: Make, preset: Path) -> None:
    version, before = make(1), content(preset)
    loading = asyncio.ensure_future(host.load(version))
    while engine_name(version) not in content(preset).decode():
        await asyncio.sleep(0.01)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert (content(preset), await host.served()) == (before, {})


async def test_a_server_that_is_down_serves_nothing_and_a_wrong_key_is_said(
    open_host: Open, router: LlamaServer, make: Make, preset: Path
) -> None:
    before = content(preset)
    with pytest.raises(EngineRefused, match="401"):
        await open_host(router.url, api_key="wrong").load(make(1))
    down = open_host("http://127.0.0.1:9")
    assert await down.served() == {}
    with pytest.raises(EngineError, match="cannot be reached"):
        await down.load(make(2))
    assert content(preset) == before


async def test_a_server_with_one_model_is_told_how_to_become_a_router(
    open_host: Open, make: Make, tmp_path: Path, preset: Path
) -> None:
    arguments = ["--model", str(ensure_small_model()), "--ctx-size", "512"]
    with LlamaServer(arguments, tmp_path / "single.log") as single:
        with pytest.raises(EngineError) as failed:
            await open_host(single.url).load(make(1))
    assert f"llama-server --models-preset {preset} --models-max 0 --cache-ram 0" in str(failed.value)


async def test_a_server_that_reads_another_preset_is_noticed(
    open_host: Open, make: Make, tmp_path: Path, preset: Path
) -> None:
    other = tmp_path / "other.ini"
    other.write_text(f"[smollm2]\nmodel = {ensure_small_model()}\n")
    before = content(preset)
    with LlamaServer(["--models-preset", str(other)], tmp_path / "other.log") as server:
        with pytest.raises(EngineError, match="does not read the preset"):
            await open_host(server.url).load(make(1))
    assert content(preset) == before


async def test_a_base_that_the_server_does_not_know_is_said(router: LlamaServer, open_host: Open) -> None:
    host = open_host(router.url)
    host.base_model = "missing"
    with pytest.raises(EngineError, match="has no model 'missing'"):
        await host.load(None)


async def test_the_key_shows_nowhere(host: LlamaCppHost) -> None:
    endpoint: Endpoint = await host.load(None)
    assert endpoint.api_key == KEY
    assert KEY not in repr(endpoint)
