"""What is particular to mlx_lm.server; tests/engines runs the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from burnish.adapters.errors import EngineError, NotApplied, ProbeFailed
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.detect import Detected
from burnish.adapters.hosts.foreign import open_host
from burnish.adapters.hosts.mlx import NOWHERE, MlxHost
from burnish.adapters.proof import generates, prove
from tests.adapters.engines import Mlx

KINDS = [Mlx]


async def test_a_request_names_the_converted_version_and_the_base_names_none(engine: Mlx) -> None:
    host = engine.open()
    bare, version = await host.load(None), await host.load(engine.make(3))
    assert bare.fields == (("adapters", None),), "ours win over the caller's"
    directory = Path(dict(version.fields)["adapters"])
    assert directory.parent == engine.state
    assert sorted(os.listdir(directory)) == ["adapter_config.json", "adapters.safetensors"]
    assert {bare.model, version.model} == {str(engine.base)}, 'beside "default_model" adapters are ignored'
    await generates(host, version)
    assert [body["adapters"] for body in engine.asked] == [str(directory)]
    await host.unload(3)
    assert list(engine.state.iterdir()) == []


async def test_an_ignored_adapter_is_found_out(engine: Mlx) -> None:
    host = engine.open()
    await host.check()
    assert engine.asked[0]["adapters"] == NOWHERE
    engine.ignores = True
    version = engine.make(1)
    with pytest.raises(NotApplied, match=rf"ignores it.*mlx_lm\.server --model {engine.base}"):
        await prove(host, version, await host.load(version))
    with pytest.raises(EngineError, match=rf"ignores `adapters`.*mlx_lm\.server --model {engine.base}"):
        await host.check()


async def test_a_version_that_the_server_cannot_see_says_so(engine: Mlx) -> None:
    host = engine.open()
    endpoint = await host.load(engine.make(1))
    await host.unload(1)
    with pytest.raises(ProbeFailed, match="must run on this machine"):
        await generates(host, endpoint)


async def test_a_server_whose_generation_died_serves_nothing(engine: Mlx) -> None:
    host, version = engine.open(), engine.make(1)
    await host.load(version)
    engine.healthy = False
    assert await host.served() == {}
    with pytest.raises(EngineError, match="not healthy"):
        await host.load(version)


async def test_a_base_that_mlx_would_misread_is_refused_with_the_remedy(engine: Mlx) -> None:
    host, version = engine.open(), engine.make(1)
    engine.configure(rope_parameters={"rope_theta": 100000.0})
    for asking in (host.check(), host.load(None), host.load(version)):
        with pytest.raises(EngineError, match=r'Add "rope_theta": 100000\.0 to the top level'):
            await asking
    engine.configure(rope_parameters={"rope_theta": 100000.0}, rope_theta=100000.0)
    await host.load(version)


async def test_files_of_a_killed_conversion_are_cleared(engine: Mlx) -> None:
    scrap = engine.state / ".v0001-1234.mlx.77.partial"
    scrap.mkdir(parents=True)
    (scrap / "adapters.safetensors").write_bytes(b"half")
    engine.open()
    assert not scrap.exists()


async def test_mlx_must_serve_the_weights_that_are_trained_on(engine: Mlx) -> None:
    engine.configure(architectures=["LlamaForCausalLM"], hidden_size=64, num_hidden_layers=2, vocab_size=9)
    other = engine.folder / "other"
    other.mkdir()
    for path in engine.base.iterdir():
        (other / path.name).write_bytes(path.read_bytes())

    def opened(weights: Path) -> object:
        found = Detected("mlx", str(engine.base), engine.base)
        api = EngineApi("http://127.0.0.1:9")
        return open_host(found, api, weights, versions=list, state_dir=engine.state, preset=None)

    with pytest.raises(EngineError, match=r"leave train\.base unset"):
        opened(other)
    assert isinstance(opened(engine.base), MlxHost)
