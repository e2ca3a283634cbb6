"""What is particular to Ollama; against the double, which runs real llama-servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineRefused, IncompatibleAdapter
from tests.adapters.engines import Ollama

KIND = Ollama


async def test_the_steps_on_the_wire(engine: Ollama) -> None:
    host, double = engine.open(), engine.double
    endpoint = await host.load(engine.make(1))
    blob = "/api/blobs/sha256"
    assert [(method, path.rpartition(":")[0] or path) for method, path in double.requests] == [
        ("GET", "/api/tags"),
        ("POST", "/api/show"),
        ("HEAD", blob),
        ("POST", blob),
        ("POST", "/api/create"),
        ("GET", "/api/tags"),
    ]
    assert list(engine.state.iterdir()) == [], "Ollama has its own copy"
    await host.probe(endpoint)
    (running,) = double.running.values()
    double.requests.clear()
    await host.unload(1)
    assert double.requests == [("GET", "/api/tags"), ("POST", "/api/generate"), ("DELETE", "/api/delete")]
    assert running.process is None, "its memory is free at once"
    double.requests.clear()
    await host.load(engine.versions[0])
    assert {method for method, path in double.requests if path.startswith(blob)} == {"HEAD"}


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("error_in_stream", EngineError, r"could not create tiny-burnish:v1-\w+: invalid adapter"),
        ("damaged_upload", CorruptAdapter, "changed on its way to Ollama .*digest mismatch"),
        ("no_adapters", EngineError, r"releases from 0\.34\.1 on"),
        ("forgets", EngineError, "does not list it"),
    ],
)
async def test_a_failed_creation_leaves_nothing_and_can_be_repeated(
    engine: Ollama, fault: str, error: type[Exception], words: str
) -> None:
    host, version = engine.open(), engine.make(1)
    engine.double.faults.add(fault)
    with pytest.raises(error, match=words):
        await host.load(version)
    assert (list(engine.state.iterdir()), set(engine.double.models)) == ([], {"tiny:latest"})
    engine.double.faults = {"ndjson"}  # one answer a line, from some releases
    assert (await host.load(version)).version == 1


async def test_a_base_that_is_missing_is_not_downloaded(engine: Ollama) -> None:
    host = engine.open(base_model="qwen3:8b")
    for version in (None, engine.make(1)):
        with pytest.raises(EngineError, match="run `ollama pull qwen3:8b`"):
            await host.load(version)
    assert {path for _, path in engine.double.requests} == {"/api/tags"}


async def test_a_base_of_other_weights_is_refused(engine: Ollama) -> None:
    engine.double.base_digest = "sha256:" + "ab" * 32
    with pytest.raises(IncompatibleAdapter, match="Ollama's tiny is made of the weights sha256:abab"):
        await engine.open().load(engine.make(2))


async def test_another_address_is_not_taken_for_ollama(engine: Ollama) -> None:
    with pytest.raises(EngineRefused, match="404"):
        await engine.open(url=f"{engine.url}/elsewhere").load(None)


@pytest.mark.parametrize(
    ("base", "start"),
    [
        ("qwen3", "qwen3-burnish:v7-"),
        ("qwen3:latest", "qwen3-burnish:v7-"),
        ("qwen3:8b", "qwen3-8b-burnish:v7-"),
        ("me/qwen3:8b", "me-qwen3-8b-burnish:v7-"),
    ],
)
def test_names_are_names_in_ollama(tmp_path: Path, base: str, start: str) -> None:
    engine = Ollama(tmp_path, tmp_path)
    name = engine.host(base_model=base).name_of(engine.make(7))
    assert name.startswith(start)
    assert len(name) == len(start) + 8
