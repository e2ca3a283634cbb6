"""The real llama-server with one model, and the adapters that it was started with."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.llamacpp_given import LlamaCppGivenHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.proof import generates
from tests.adapters.engines import OTHER_DIGEST, PROMPT, Engine
from tests.support.engine import answer
from tests.support.llama_server import LlamaServer


class Given(Engine):
    async def start(self) -> None:
        self.plain = ["-m", str(self.gguf), "--alias", "tiny", "-c", "2048", "-np", "2", "--cache-ram", "0"]
        self.server = self.closing.enter_context(LlamaServer(self.plain, self.folder / "server.log"))
        self.url = self.server.url

    def host(self, **changes: Any) -> LlamaCppGivenHost:
        return LlamaCppGivenHost(**self.own(changes))


KINDS = [Given]


async def given(host: AdapterHost, engine: Given, version: AdapterVersion) -> None:
    """Do what the error says."""
    with pytest.raises(EngineError, match="takes an adapter only when it starts") as refused:
        await host.load(version)
    said = str(refused.value)
    options = shlex.split(said[said.index("--lora-scaled") : said.index(", then ask")])
    engine.server.arguments = engine.plain + options
    engine.server.restart()
    log = (engine.folder / "server.log").read_text()
    assert "'--lora-scaled' specified multiple times" not in log, "only the last would count"


async def test_a_version_is_served_once_the_server_was_started_with_it(engine: Given) -> None:
    host, server = engine.open(), engine.server
    base = await host.load(None)
    untouched = await answer(base, PROMPT)
    versions = [engine.make(1), engine.make(2)]
    await given(host, engine, versions[0])
    assert await answer(base, PROMPT) == untouched, "also before the route knows that there is an adapter now"
    await given(host, engine, versions[1])
    first, second = [await host.load(version) for version in versions]
    bare = await host.load(None)
    assert await host.served() == {0: bare, 1: first, 2: second}
    texts = [await answer(endpoint, PROMPT) for endpoint in (bare, first, second, bare, second, first)]
    assert texts == [untouched, texts[1], texts[2], untouched, texts[2], texts[1]]
    assert len(set(texts)) == 3
    for endpoint in (bare, first, second):
        await generates(host, endpoint)
    await host.unload(1)
    assert sorted(await host.served()) == [0, 2], "though the server still has it"
    assert await host.load(versions[0]) == first
    assert sorted(await host.served()) == [0, 1, 2]
    await host.unload(1)
    await host.forget(versions[0])
    server.restart()  # with the options that it has, which name the version's file
    assert await host.load(versions[0]) == first


async def test_errors_say_what_to_do(engine: Given) -> None:
    host = engine.open()
    with pytest.raises(IncompatibleAdapter, match="was trained on base weights"):
        await host.load(engine.make(3, digest=OTHER_DIGEST))
    assert list(await host.served()) == [0]
    with pytest.raises(EngineError, match="--models-preset"):
        await host.check()
    engine.server.__exit__()
    assert await host.served() == {}
    with pytest.raises(EngineError, match="cannot be reached"):
        await host.load(engine.make(1))
