"""The real llama-server with one model, and the adapters that it was started with."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, ensure_small_model
from burnish.adapters.hosts.llamacpp_given import LlamaCppGivenHost
from burnish.adapters.manifest import AdapterVersion
from tests.support.engine import answer
from tests.support.llama_server import LlamaServer
from tests.support.lora import random_lora, version_of, write_peft

PROMPT = "Name three colours."
Make = Callable[..., AdapterVersion]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LlamaServer]:
    plain = [
        "-m",
        str(ensure_small_model()),
        "--alias",
        "smollm2",
        "-c",
        "2048",
        "-np",
        "2",
        "--cache-ram",
        "0",
    ]
    with LlamaServer(plain, tmp_path / "server.log") as running:
        yield running


@pytest.fixture
def versions() -> list[AdapterVersion]:
    return []


@pytest.fixture
def make(tmp_path: Path, versions: list[AdapterVersion]) -> Make:
    def make(seed: int, digest: str = SMALL_MODEL_DIGEST) -> AdapterVersion:
        path = write_peft(tmp_path / f"trained-{seed}", random_lora(seed, strength=0.1))
        versions.append(version_of(path, seed, digest))
        return versions[-1]

    return make


@pytest.fixture
async def host(
    server: LlamaServer, tmp_path: Path, versions: list[AdapterVersion]
) -> AsyncIterator[LlamaCppGivenHost]:
    host = LlamaCppGivenHost(
        server.url,
        base_model="smollm2",
        base_digest=SMALL_MODEL_DIGEST,
        base_path=ensure_small_model(),
        state_dir=tmp_path / "state",
        versions=lambda: versions,
    )
    yield host
    await host.close()


async def given(host: LlamaCppGivenHost, server: LlamaServer, version: AdapterVersion) -> None:
    """Do what the error says."""
    with pytest.raises(EngineError, match="takes an adapter only when it starts") as refused:
        await host.load(version)
    said = str(refused.value)
    options = shlex.split(said[said.index("--lora-scaled") : said.index(", then ask")])
    server.arguments = [each for each in server.arguments if each not in options] + options
    server.restart()


async def test_a_version_is_served_once_the_server_was_started_with_it(
    host: LlamaCppGivenHost, server: LlamaServer, make: Make
) -> None:
    base = await host.load(None)
    untouched = await answer(base, PROMPT)
    for seed in (1, 2):
        await given(host, server, make(seed))
    first, second = [await host.load(version) for version in (make(1), make(2))]
    bare = await host.load(None)
    assert await host.served() == {0: bare, 1: first, 2: second}
    texts = [await answer(endpoint, PROMPT) for endpoint in (bare, first, second, bare, second, first)]
    assert texts[0] == texts[3] == untouched
    assert texts[1] == texts[5]
    assert texts[2] == texts[4]
    assert len(set(texts)) == 3
    for endpoint in (bare, first, second):
        await host.probe(endpoint)
    await host.unload(1)
    assert sorted(await host.served()) == [0, 2], "given up, though the server still has it"
    assert await host.load(make(1)) == first
    assert sorted(await host.served()) == [0, 1, 2]
    await host.unload(1)
    await host.forget(make(1))
    server.restart()  # with the options that it has, which name the version's file
    assert await host.load(make(1)) == first


async def test_the_bare_model_answers_as_itself_right_after_a_restart_that_brought_an_adapter(
    host: LlamaCppGivenHost, server: LlamaServer, make: Make
) -> None:
    base = await host.load(None)
    untouched = await answer(base, PROMPT)
    await given(host, server, make(1))
    adapted = await answer(await host.load(make(1)), PROMPT)
    # As before the restart: nobody has told the route yet that there is an adapter now.
    assert await answer(base, PROMPT) == untouched != adapted


async def test_weights_trained_on_another_base_are_refused(host: LlamaCppGivenHost, make: Make) -> None:
    with pytest.raises(IncompatibleAdapter, match="was trained on base weights"):
        await host.load(make(3, "sha256:" + "0" * 64))
    assert list(await host.served()) == [0]


async def test_a_server_that_is_down_serves_nothing(
    host: LlamaCppGivenHost, server: LlamaServer, make: Make
) -> None:
    server.__exit__()
    assert await host.served() == {}
    with pytest.raises(EngineError, match="cannot be reached"):
        await host.load(make(1))


async def test_the_doctor_is_told_of_router_mode(host: LlamaCppGivenHost) -> None:
    with pytest.raises(EngineError, match="--models-preset"):
        await host.check()
