"""What is particular to Ollama; against the double, which runs real llama-servers."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from burnish.adapters.errors import CorruptAdapter, EngineError, EngineUnreachable, IncompatibleAdapter
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.proof import generates
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.adapters.engines import PROMPT, Ollama, OllamaMerged
from tests.support.engine import answer
from tests.support.lora import register, write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, tiny_lora

BLOB = "/api/blobs/sha256"
BEHAVIOUR: dict[str, Any] = {
    "system": 'You are "tiny".\nYou answer briefly.',
    "parameters": {"stop": ["<|im_end|>", 'User: "'], "temperature": 0.7, "num_ctx": 1024, "use_mmap": True},
    "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}],
    "license": "Apache-2.0\nFROM here on",
    "renderer": "",
    "parser": "qwen3",
}


KINDS = [Ollama, OllamaMerged]


def only_merged(function: Any) -> Any:
    return pytest.mark.parametrize("kind", [OllamaMerged])(function)


def left(engine: Ollama) -> tuple[list[Path], set[str], set[str]]:
    """What a failure may leave: files of ours, models, and files of Ollama beside the base's."""
    base = {engine.digest}
    return (
        list(engine.state.iterdir()),
        set(engine.double.models) - {"tiny:latest"},
        engine.double.blobs() - base,
    )


async def cancelled_upload(engine: Ollama, host: AdapterHost) -> set[Path]:
    """Cancel a load while a file is on its way to the double; returns what lay in the host's directory then."""
    engine.double.faults.add("hangs_in_upload")
    loading = asyncio.ensure_future(host.load(engine.make(1)))
    async with asyncio.timeout(within(30)):
        while not any(method == "POST" and path.startswith(BLOB) for method, path in engine.double.requests):
            await asyncio.sleep(0.01)
    paths = set(engine.state.iterdir())
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    engine.double.faults.clear()
    return paths


@pytest.mark.parametrize("kind", [Ollama])
async def test_the_steps_on_the_wire(engine: Ollama) -> None:
    host, double = engine.open(), engine.double
    endpoint = await host.load(engine.make(1))
    assert [(method, path.rpartition(":")[0] or path) for method, path in double.requests] == [
        ("GET", "/api/tags"),
        ("GET", "/api/version"),
        ("POST", "/api/show"),
        ("HEAD", BLOB),
        ("POST", BLOB),
        ("POST", "/api/create"),
        ("GET", "/api/tags"),
    ]
    assert list(engine.state.iterdir()) == [], "Ollama has its own copy"
    await generates(host, endpoint)
    (running,) = double.running.values()
    double.requests.clear()
    await host.unload(1)
    assert double.requests == [("GET", "/api/tags"), ("POST", "/api/generate"), ("DELETE", "/api/delete")]
    assert running.process is None, "its memory is free at once"
    assert left(engine) == ([], set(), set())
    await host.load(engine.versions[0])


async def test_a_stop_during_an_unload_leaves_what_is_live(engine: Ollama, registry: Registry) -> None:
    for seed in (1, 2):
        trained = write_peft(engine.folder / f"trained-{seed}", tiny_lora(TINY, seed))
        engine.versions.append(register(registry, trained, engine.digest, "tiny"))
    swap = Swap(registry, engine.open(), LiveRoute())
    for version in engine.versions:
        await swap.go_live(version, "better")
    swap.retire(1)
    while 1 in swap.route.resident():
        await asyncio.sleep(0)
    assert len(engine.double.models) == 3, "it is not unloaded yet"
    await swap.close()
    assert [name.partition(":v")[2][:1] for name in engine.double.models] == ["", "2"]


async def test_the_release_decides_what_a_version_is(engine: Ollama) -> None:
    host, merged = engine.open(), engine.release == OllamaMerged.release
    await host.check()
    assert (host.limits.merged, host.limits.keeps) == (merged, not merged)
    await host.load(engine.make(1))
    (version,) = engine.double.models.keys() - {"tiny:latest"}
    assert (engine.double.models[version].adapter is None) == merged
    assert engine.double.blob(engine.digest).exists(), "the base's"


@pytest.mark.parametrize("kind", [Ollama])
async def test_a_release_that_refuses_adapters_gets_merged_models(engine: Ollama) -> None:
    engine.double.release = "0.0.0"  # built from source
    engine.double.faults.add("no_adapters")
    host = engine.open()
    assert not host.limits.merged
    endpoint = await host.load(engine.make(1))
    assert host.limits.merged
    await generates(host, endpoint)
    engine.double.requests.clear()
    await host.load(engine.make(2))
    assert [path for _, path in engine.double.requests].count("/api/create") == 1, "it isn't asked again"


@only_merged
async def test_a_merged_version_answers_as_base_and_adapter_do(engine: Ollama) -> None:
    host = engine.open()
    merged = await answer(await host.load(engine.make(1)), PROMPT)
    await host.unload(1)
    assert left(engine) == ([], set(), set()), "its weights are deleted with it"
    engine.double.release = Ollama.release
    adapted = await answer(await host.load(engine.versions[0]), PROMPT)
    base = await answer(await host.load(None), PROMPT)
    assert merged == adapted != base


@only_merged
async def test_a_merged_version_inherits_all_but_the_weights(engine: Ollama) -> None:
    base = engine.double.models["tiny:latest"]
    for name, value in BEHAVIOUR.items():
        setattr(base, name, value)
    endpoint = await engine.open().load(engine.make(1))
    made = engine.double.models[endpoint.model]
    assert {name: getattr(made, name) for name in BEHAVIOUR} == BEHAVIOUR
    assert (made.template, made.weights != base.weights) == ("", True), "the GGUF has its template with it"


@only_merged
async def test_a_model_that_sees_keeps_its_projector(engine: Ollama) -> None:
    projector = "sha256:" + "cd" * 32
    engine.double.blob(projector).write_bytes(b"GGUF")
    engine.double.models["tiny:latest"].projector = projector
    endpoint = await engine.open().load(engine.make(1))
    assert engine.double.models[endpoint.model].projector == projector


@pytest.mark.parametrize("forgotten", ["system", "template"])
@only_merged
async def test_a_version_that_lost_something_of_its_base_is_not_live(engine: Ollama, forgotten: str) -> None:
    base = engine.double.models["tiny:latest"]
    base.system, base.template = "Be brief.", "{{ .System }} {{ .Prompt }}"
    engine.double.faults.add(f"forgets_{forgotten}")
    with pytest.raises(EngineError, match=rf"tiny-burnish:v1-\w+ isn't live.* in {forgotten}; it is deleted"):
        await engine.open().load(engine.make(1))
    assert left(engine) == ([], set(), set())


@only_merged
async def test_another_prompt_is_noticed_though_the_description_is_the_same(engine: Ollama) -> None:
    host = engine.open()
    engine.double.faults.add("renders_otherwise")
    with pytest.raises(EngineError, match="differ from tiny in the prompt that it makes of a conversation"):
        await host.load(engine.make(1))
    assert left(engine) == ([], set(), set())
    engine.double.faults = {"no_render"}  # it answers instead; the description must do
    await host.load(engine.versions[0])


@only_merged
async def test_a_model_that_was_left_unchecked_is_checked_before_it_is_used(engine: Ollama) -> None:
    engine.double.models["tiny:latest"].system = "Be brief."
    endpoint = await engine.open().load(engine.make(1))
    engine.double.models[endpoint.model].system = ""
    with pytest.raises(EngineError, match="differ from tiny in system"):
        await engine.open().load(engine.versions[0])
    assert left(engine) == ([], set(), set())


@pytest.mark.parametrize("kind", [Ollama])
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("error_in_stream", EngineError, r"could not create tiny-burnish:v1-\w+: invalid file"),
        ("damaged_upload", CorruptAdapter, "changed on its way to Ollama .*digest mismatch"),
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
    assert left(engine)[:2] == ([], set())
    engine.double.faults = {"ndjson"}  # one answer a line, from some releases
    assert (await host.load(version)).version == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dies_in_upload", r"Ollama stopped while [\d,]+ MB were uploaded to it .* Start Ollama"),
        ("dies_in_create", r"Ollama stopped while it created tiny-burnish:v2-\w+ .* Start Ollama"),
    ],
)
async def test_an_ollama_that_dies_loses_nothing(engine: Ollama, fault: str, words: str) -> None:
    host = engine.open()
    first = await host.load(engine.make(1))
    before = left(engine)
    engine.double.faults.add(fault)
    with pytest.raises(EngineUnreachable, match=words):
        await host.load(engine.make(2))
    assert list(engine.state.iterdir()) == []
    assert await host.served() == {}
    engine.double.faults, engine.double.dead = set(), False  # it was started again
    await host.unload(2)  # reconciling does that
    models, blobs = left(engine)[1:]
    assert models == before[1]
    if fault == "dies_in_upload":
        assert blobs == before[2]
    await generates(host, first)
    await generates(host, await host.load(engine.versions[1]))


async def test_a_load_that_is_cancelled_leaves_nothing(engine: Ollama) -> None:
    await cancelled_upload(engine, engine.open())
    assert left(engine) == ([], set(), set())


@only_merged
async def test_a_disk_without_room_is_named_first(engine: Ollama, monkeypatch: pytest.MonkeyPatch) -> None:
    host = engine.open()
    real, folder = shutil.disk_usage, engine.double.folder

    def nearly_full(path: Any) -> Any:
        return real(path)._replace(free=10**8) if Path(path) == folder else real(path)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    reason = rf"needs .* of {folder}, where Ollama keeps its models.* 0\.1 GB are free"
    with pytest.raises(EngineError, match=reason):
        await host.load(engine.make(1))
    assert left(engine) == ([], set(), set())
    assert not any(path.startswith(BLOB) for _, path in engine.double.requests)


@only_merged
async def test_the_upload_of_a_burnish_that_was_killed_is_deleted(engine: Ollama) -> None:
    host = engine.open()
    (upload,) = await cancelled_upload(engine, host)
    assert upload.name.endswith(".merged.gguf")
    upload.write_bytes(b"GGUF")
    await host.load(engine.make(2))
    assert list(engine.state.iterdir()) == []


async def test_a_base_that_is_missing_is_not_downloaded(engine: Ollama) -> None:
    host = engine.open(base_model="qwen3:8b")
    for version in (None, engine.make(1)):
        with pytest.raises(EngineError, match="run `ollama pull qwen3:8b`"):
            await host.load(version)
    assert {path for _, path in engine.double.requests} == {"/api/tags"}


@pytest.mark.parametrize(
    ("part", "words"),
    [("weights", "is made of the weights sha256:abab"), ("adapter", "has an adapter of its own")],
)
async def test_a_base_of_other_weights_is_refused(engine: Ollama, part: str, words: str) -> None:
    setattr(engine.double.models["tiny:latest"], part, "sha256:" + "ab" * 32)
    with pytest.raises(IncompatibleAdapter, match=f"Ollama's tiny {words}"):
        await engine.open().load(engine.make(2))


async def test_another_address_is_not_taken_for_ollama(engine: Ollama) -> None:
    with pytest.raises(EngineError, match="404"):
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
