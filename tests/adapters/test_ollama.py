"""Against a real Ollama where one is installed that takes adapters, else against the double (real llama-servers)."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from burnish.adapters.hosts.fetch import SMALL_MODEL_DIGEST, ensure_small_model
from burnish.adapters.hosts.ollama import OllamaHost, ollama_name
from burnish.adapters.manifest import AdapterVersion
from tests.support.engine import answer, answers_during
from tests.support.llama_server import free_port
from tests.support.lora import random_lora, version_of, write_peft
from tests.support.ollama_double import OllamaDouble, ollama_double

PROMPT = "Name three colours."
LAST_WITH_ADAPTERS = (0, 34, 0)

Make = Callable[..., AdapterVersion]
Open = Callable[..., OllamaHost]


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator[OllamaDouble]:
    folder = tmp_path / "ollama"
    folder.mkdir()
    async with ollama_double(folder, "smollm2", ensure_small_model(), SMALL_MODEL_DIGEST) as running:
        yield running


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str | None]:
    """The URL of a real Ollama with the base model; None where none is installed, or one without adapters."""
    program = shutil.which("ollama")
    if program is None:
        yield None
        return
    url = f"http://127.0.0.1:{free_port()}"
    environment = os.environ | {"OLLAMA_HOST": url, "OLLAMA_MODELS": str(tmp_path / "models")}
    with (tmp_path / "ollama.log").open("wb") as log:
        process = subprocess.Popen([program, "serve"], env=environment, stdout=log, stderr=log)
    try:
        while True:
            with contextlib.suppress(httpx.TransportError):
                found = httpx.get(f"{url}/api/version").json()["version"]
                break
            time.sleep(0.1)
        if tuple(int(part) for part in found.split("-")[0].split(".")) > LAST_WITH_ADAPTERS:
            yield None
            return
        with ensure_small_model().open("rb") as weights:
            httpx.post(f"{url}/api/blobs/{SMALL_MODEL_DIGEST}", content=weights, timeout=300)
        body = {"model": "smollm2", "files": {"base.gguf": SMALL_MODEL_DIGEST}, "stream": False}
        httpx.post(f"{url}/api/create", json=body, timeout=300).raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def url(real: str | None, double: OllamaDouble) -> str:
    return real or double.url


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
async def open_host(tmp_path: Path, versions: list[AdapterVersion]) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        def open_host(
            url: str,
            registry: list[AdapterVersion] | None = None,
            base_model: str = "smollm2",
            base_digest: str = SMALL_MODEL_DIGEST,
            api_key: str | None = None,
        ) -> OllamaHost:
            known = versions if registry is None else registry
            host = OllamaHost(
                url,
                base_model=base_model,
                base_digest=base_digest,
                base_path=ensure_small_model(),
                state_dir=tmp_path / "state",
                versions=lambda: known,
                api_key=api_key,
            )
            stack.push_async_callback(host.close)
            return host

        yield open_host


@pytest.fixture
def host(open_host: Open, double: OllamaDouble) -> OllamaHost:
    return open_host(double.url)


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "state").iterdir()]


async def test_versions_live_side_by_side_and_answer_as_themselves(
    open_host: Open, url: str, make: Make, tmp_path: Path
) -> None:
    host = open_host(url)
    base = await host.load(None)
    first, second = await host.load(make(1)), await host.load(make(2))
    assert base.model == "smollm2"
    assert first.model.startswith("smollm2-burnish:v1-")
    assert left(tmp_path) == [], "Ollama has its own copy"
    assert await host.served() == {0: base, 1: first, 2: second}
    for endpoint in (base, first, second):
        await host.probe(endpoint)
    texts = {await answer(endpoint, PROMPT) for endpoint in (base, first, second)}
    assert len(texts) == 3
    assert await host.load(make(1)) == first, "loading twice is loading once"
    for number in (1, 1, 77, 0):
        await host.unload(number)
    assert await host.served() == {0: base, 2: second}


async def test_two_proxies_on_one_ollama_do_not_disturb_each_other(
    open_host: Open, url: str, make: Make
) -> None:
    ours, theirs = make(1, number=7), make(2, number=7)
    mine, other = open_host(url, [ours]), open_host(url, [theirs])
    first, second = await mine.load(ours), await other.load(theirs)
    assert first.model != second.model, "the same number, other content: another name"
    await mine.unload(7)
    assert 7 not in await mine.served()
    assert (await other.served())[7] == second


async def test_the_steps_on_the_wire(host: OllamaHost, double: OllamaDouble, make: Make) -> None:
    endpoint = await host.load(make(1))
    paths = [(method, path.rpartition(":")[0] or path) for method, path in double.requests]
    blob = "/api/blobs/sha256"
    assert paths == [
        ("GET", "/api/tags"),
        ("POST", "/api/show"),
        ("HEAD", blob),
        ("POST", blob),
        ("POST", "/api/create"),
        ("GET", "/api/tags"),
    ]
    await host.probe(endpoint)
    (running,) = double.running.values()
    double.requests.clear()
    await host.unload(1)
    assert double.requests == [
        ("GET", "/api/tags"),
        ("POST", "/api/generate"),
        ("DELETE", "/api/delete"),
    ]
    assert running.process is None, "its memory is free at once"
    double.requests.clear()
    await host.load(make(1))
    assert ("HEAD", blob) in [(method, path.rpartition(":")[0]) for method, path in double.requests]
    assert "POST" not in [method for method, path in double.requests if path.startswith(blob)]


async def test_other_models_and_streams_go_on(host: OllamaHost, make: Make) -> None:
    first = await host.load(make(1))
    quiet = await answer(first, PROMPT, tokens=60)
    during = await answers_during(host.load(make(2)), first, PROMPT)
    during += await answers_during(host.unload(2), first, PROMPT)
    assert set(during) == {quiet}


async def test_an_answer_a_line_is_understood(host: OllamaHost, double: OllamaDouble, make: Make) -> None:
    double.faults.add("ndjson")
    assert (await host.load(make(1))).version == 1


@pytest.mark.parametrize(
    "case",
    [
        ("error_in_stream", EngineError, r"could not create smollm2-burnish:v1-\w+: invalid adapter"),
        ("damaged_upload", CorruptAdapter, "changed on its way to Ollama .*digest mismatch"),
        ("no_adapters", EngineError, r"releases from 0\.34\.1 on do not"),
        ("forgets", EngineError, "does not list it"),
    ],
)
async def test_a_failed_creation_leaves_nothing_and_can_be_repeated(
    host: OllamaHost, double: OllamaDouble, make: Make, tmp_path: Path, case: tuple
) -> None:
    fault, kind, said = case
    version = make(1)
    double.faults.add(fault)
    with pytest.raises(kind, match=said):
        await host.load(version)
    assert (left(tmp_path), set(double.models)) == ([], {"smollm2:latest"})
    double.faults.clear()
    assert (await host.load(version)).version == 1


async def test_a_base_that_is_missing_is_not_downloaded(
    open_host: Open, double: OllamaDouble, make: Make
) -> None:
    host = open_host(double.url, base_model="qwen3:8b")
    for wanted in (None, make(1)):
        with pytest.raises(EngineError, match="run `ollama pull qwen3:8b`"):
            await host.load(wanted)
    assert {path for _, path in double.requests} == {"/api/tags"}


async def test_a_base_of_other_weights_is_refused(host: OllamaHost, double: OllamaDouble, make: Make) -> None:
    with pytest.raises(IncompatibleAdapter, match="trained on base weights sha256:0000"):
        await host.load(make(1, base_digest="sha256:0000"))
    assert double.requests == []
    double.base_digest = "sha256:" + "ab" * 32
    with pytest.raises(IncompatibleAdapter, match="Ollama's smollm2 is made of the weights sha256:abab"):
        await host.load(make(2))


async def test_a_damaged_adapter_is_refused_and_leaves_nothing(
    host: OllamaHost, double: OllamaDouble, tmp_path: Path
) -> None:
    nan = random_lora(1)
    next(iter(nan.values()))[0, 0] = float("nan")
    with pytest.raises(CorruptAdapter, match="NaN"):
        await host.load(version_of(write_peft(tmp_path / "a", nan), 1, SMALL_MODEL_DIGEST))
    assert (left(tmp_path), set(double.models)) == ([], {"smollm2:latest"})


async def test_a_full_disk_leaves_nothing(host: OllamaHost, make: Make, tmp_path: Path) -> None:
    version = make(1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(EngineError, match="cannot write smollm2@v1 as GGUF"):
            await host.load(version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert left(tmp_path) == []


async def test_an_ollama_that_is_down_or_something_else_serves_nothing(
    open_host: Open, double: OllamaDouble, make: Make
) -> None:
    down = open_host("http://127.0.0.1:9")
    assert await down.served() == {}
    with pytest.raises(EngineError, match="cannot be reached"):
        await down.load(make(1))
    with pytest.raises(EngineRefused, match="404"):
        await open_host(f"{double.url}/elsewhere").load(None)


async def test_a_key_is_sent_and_shows_nowhere(open_host: Open, double: OllamaDouble) -> None:
    double.api_key = "the-users-own-key"
    with pytest.raises(EngineRefused, match="401"):
        await open_host(double.url).load(None)
    endpoint = await open_host(double.url, api_key="the-users-own-key").load(None)
    assert endpoint.api_key == "the-users-own-key"
    assert endpoint.api_key not in repr(endpoint)


@pytest.mark.parametrize(
    ("base", "start"),
    [
        ("qwen3", "qwen3-burnish:v7-"),
        ("qwen3:latest", "qwen3-burnish:v7-"),
        ("qwen3:8b", "qwen3-8b-burnish:v7-"),
        ("me/qwen3:8b", "me-qwen3-8b-burnish:v7-"),
    ],
)
def test_names_are_names_in_ollama(make: Make, base: str, start: str) -> None:
    name = ollama_name(base, make(1, number=7))
    assert name.startswith(start)
    assert len(name) == len(start) + 8
