"""What the host of mlx_lm.server decides by itself; tests/engines asks the real one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from safetensors.numpy import save_file

from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter, ProbeFailed
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.detect import Detected, weights_digest
from burnish.adapters.hosts.foreign import open_host
from burnish.adapters.hosts.mlx import NOWHERE, MlxHost
from burnish.adapters.manifest import AdapterVersion
from tests.support.lora import random_lora, version_of, write_peft
from tests.support.upstream import Received, upstream

Q = "model.layers.0.self_attn.q_proj"
WIDTH = 576
CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 1,
    "vocab_size": 9, "intermediate_size": 8, "num_attention_heads": 9, "rope_theta": 100000.0,
}  # fmt: skip
Make = Callable[..., AdapterVersion]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base of one layer."""
    path = tmp_path / "base"
    path.mkdir()
    save_file({f"{Q}.weight": np.zeros((WIDTH, WIDTH), np.float32)}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def versions() -> list[AdapterVersion]:
    return []


@pytest.fixture
def make(tmp_path: Path, base: Path, versions: list[AdapterVersion]) -> Make:
    def made(number: int, **config: object) -> AdapterVersion:
        tensors = {name: each for name, each in random_lora(number).items() if Q in name}
        path = write_peft(tmp_path / f"v{number}", tensors, **config)
        versions.append(version_of(path, number, weights_digest(base)))
        return versions[-1]

    return made


class Server:
    """Answers as mlx_lm.server does, with log-probabilities by the adapter's name."""

    def __init__(self) -> None:
        self.healthy = True
        self.ignores = False
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        status, content = self._answer(request)
        body = orjson.dumps(content)
        writer.write(b"HTTP/1.0 %d X\r\ncontent-type: application/json\r\n\r\n%b" % (status, body))
        await writer.drain()
        writer.close()

    def _answer(self, request: Received) -> tuple[int, dict[str, Any]]:
        if request.target == "/health":
            return (200, {"status": "ok"}) if self.healthy else (503, {"status": "unavailable"})
        body = orjson.loads(request.body)
        self.asked.append(body)
        adapter = None if self.ignores else body["adapters"]
        if adapter and not Path(adapter).exists():
            return 404, {"error": f"The adapter path does not exist: {adapter}"}
        top = {"id": 1, "logprob": -float(len(str(adapter)))}
        content = [{"top_logprobs": [top]}]
        return 200, {"choices": [{"text": "Hi", "logprobs": {"content": content}}]}


@asynccontextmanager
async def hosting(
    tmp_path: Path, base: Path, versions: list[AdapterVersion]
) -> AsyncIterator[tuple[MlxHost, Server]]:
    server = Server()
    async with upstream(server) as running:
        host = MlxHost(
            running.url,
            base_path=base,
            base_digest=weights_digest(base),
            state_dir=tmp_path / "state",
            versions=lambda: versions,
        )
        yield host, server
        await host.close()


async def test_a_request_names_the_converted_version_and_the_base_names_none(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, server):
        bare, version = await host.load(None), await host.load(make(3))
        assert bare.fields == (("adapters", None),), "what a caller may have put there does not count"
        directory = Path(dict(version.fields)["adapters"])
        assert directory.parent == tmp_path / "state"
        assert sorted(os.listdir(directory)) == ["adapter_config.json", "adapters.safetensors"]
        assert {bare.model, version.model} == {str(base)}, 'beside "default_model" adapters are ignored'
        await host.probe(version)
        assert [body["adapters"] for body in server.asked] == [None, str(directory)]
        assert await host.served() == {0: bare, 3: version}
        await host.unload(3)
        await host.unload(0)
        await host.unload(99)
        assert await host.served() == {0: bare}
        assert list((tmp_path / "state").iterdir()) == []


async def test_an_ignored_adapter_is_found_out(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, server):
        await host.check()
        assert server.asked[0]["adapters"] == NOWHERE
        server.ignores = True
        with pytest.raises(ProbeFailed, match="exactly as the base model"):
            await host.probe(await host.load(make(1)))
        with pytest.raises(EngineError, match=rf"ignores `adapters`.*mlx_lm\.server --model {base}"):
            await host.check()


async def test_a_version_that_the_server_cannot_see_says_so(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, _):
        endpoint = await host.load(make(1))
        await host.unload(1)
        with pytest.raises(ProbeFailed, match="must run on this machine"):
            await host.probe(endpoint)


async def test_a_server_whose_generation_died_serves_nothing(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, server):
        await host.load(make(1))
        server.healthy = False
        assert await host.served() == {}
        with pytest.raises(EngineError, match="not healthy"):
            await host.load(versions[0])


async def test_a_base_that_mlx_would_misread_is_refused_with_the_remedy(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    config: dict[str, Any] = {"model_type": "llama", "rope_parameters": {"rope_theta": 100000.0}}
    (base / "config.json").write_text(json.dumps(config))
    async with hosting(tmp_path, base, versions) as (host, _):
        for asking in (host.check(), host.load(None), host.load(make(1))):
            with pytest.raises(EngineError, match=r'Add "rope_theta": 100000\.0 to the top level'):
                await asking
        (base / "config.json").write_text(json.dumps(config | {"rope_theta": 100000.0}))
        await host.load(versions[0])


async def test_what_cannot_be_served_is_refused_and_leaves_nothing(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, _):
        with pytest.raises(IncompatibleAdapter, match="use_dora"):
            await host.load(make(1, use_dora=True))
        torn = make(2).path / "adapter_model.safetensors"
        torn.write_bytes(torn.read_bytes()[:-1])
        with pytest.raises(CorruptAdapter):
            await host.load(versions[1])
        other = version_of(make(3).path, 3, "sha256:" + "0" * 64)
        with pytest.raises(IncompatibleAdapter, match="trained on base weights"):
            await host.load(other)
        assert list((tmp_path / "state").iterdir()) == []


async def test_a_state_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, base: Path, make: Make, versions: list[AdapterVersion]
) -> None:
    async with hosting(tmp_path, base, versions) as (host, _):
        (tmp_path / "state").rmdir()
        (tmp_path / "state").write_text("a file where the directory was")
        with pytest.raises(EngineError, match=r"cannot write .*@v1 for MLX"):
            await host.load(make(1))


async def test_scraps_of_a_killed_conversion_are_cleared(tmp_path: Path, base: Path) -> None:
    scrap = tmp_path / "state" / ".v0001-1234.mlx.77.partial"
    scrap.mkdir(parents=True)
    (scrap / "adapters.safetensors").write_bytes(b"half")
    async with hosting(tmp_path, base, []):
        assert not scrap.exists()


def test_mlx_must_serve_the_weights_that_are_trained_on(tmp_path: Path, base: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.safetensors").write_bytes(b"other")
    (other / "config.json").write_text(json.dumps(CONFIG))
    found = Detected("mlx", str(base), base)
    api = EngineApi("http://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"leave train\.base unset"):
        open_host(found, api, other, versions=list, state_dir=tmp_path / "state", preset=None)
    assert isinstance(
        open_host(found, api, base, versions=list, state_dir=tmp_path / "state", preset=None), MlxHost
    )
