"""One engine of each kind that serves versions, for tests that every host must pass."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file, save_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.converted import converted_path
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.llamacpp import LlamaCppHost
from burnish.adapters.hosts.mlx import MlxHost
from burnish.adapters.hosts.ollama import OllamaHost
from burnish.adapters.hosts.vllm import SglangHost, VllmHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.weights_file import WEIGHTS
from tests.support.inprocess import listening
from tests.support.llama_server import LlamaServer
from tests.support.lora import DIGEST, version_of, write_peft
from tests.support.next_tokens import next_tokens, text_of, word
from tests.support.ollama_double import WITH_ADAPTERS, WITHOUT_ADAPTERS, OllamaDouble, ollama_double
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, tiny_lora
from tests.support.vllm_double import NamedLoraDouble, SglangDouble, VllmDouble

OTHER_DIGEST = "sha256:" + "1" * 64
KEY = "the-users-own-key"
PROMPT = "Name three colours."


@dataclass
class Engine:
    """An engine, the hosts that were opened on it, and the versions that they know."""

    folder: Path
    gguf: Path
    """Of the base model."""
    url: str = ""
    digest: str = DIGEST
    versions: list[AdapterVersion] = field(default_factory=list)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)

    base_model: ClassVar[str] = "tiny"
    answers: ClassVar[bool] = False
    """It computes real answers."""
    converts: ClassVar[bool] = True
    """Its host writes versions in a form of its own into ``state``."""
    base_stays: ClassVar[bool] = True
    takes_key: ClassVar[bool] = False

    @property
    def state(self) -> Path:
        return self.folder / "state"

    async def start(self) -> None: ...

    async def restart(self) -> None: ...

    def deafen(self, version: AdapterVersion) -> None:
        """Let the engine take a version, and answer as the base model."""
        zeros_in_place_of(version, self.gguf, self.state, self.digest)

    def open(self, **changes: Any) -> AdapterHost:
        """Open a host on this engine; ``changes``: other arguments than usual."""
        host = self.host(**changes)
        self.closing.push_async_callback(host.close)
        return host

    def host(self, **changes: Any) -> AdapterHost:
        raise NotImplementedError

    def make(
        self, number: int, *, seed: int = 0, rank: int = 4, digest: str = "", **config: Any
    ) -> AdapterVersion:
        """Make one more version; another seed gives other weights."""
        path = self.folder / f"trained-{number}-{seed}-{len(self.versions)}"
        write_peft(path, tiny_lora(TINY, seed or number, rank), rank, **config)
        self.versions.append(version_of(path, number, digest or self.digest, "tiny"))
        return self.versions[-1]

    def own(self, changes: dict[str, Any]) -> dict[str, Any]:
        usual = {
            "url": self.url,
            "base_model": self.base_model,
            "base_digest": self.digest,
            "base_path": self.gguf,
            "state_dir": self.state,
            "versions": lambda: self.versions,
        }
        return usual | changes


class Embedded(Engine):
    answers = True
    base_stays = False

    def host(self, **changes: Any) -> EmbeddedHost:
        host = EmbeddedHost(self.gguf, base_model="tiny", state_dir=self.state, **changes)
        self.digest = host.base_digest
        self.children = host.processes
        return host

    async def restart(self) -> None:
        for pid in self.children().values():
            os.kill(pid, signal.SIGKILL)


class Router(Engine):
    """llama-server in router mode."""

    answers = True
    takes_key = True

    async def start(self) -> None:
        self.preset = self.folder / "models.ini"
        base = f"model = {self.gguf}\nctx-size = 4096\nparallel = 2\nfit = off\ncache-ram = 0\n"
        self.preset.write_text(
            f"version = 1\n; mine\n[tiny]\n{base}alias = chat\n\n# someone else's\n[other]\n{base}# the end\n"
        )
        arguments = ["--models-preset", str(self.preset), "--models-max", "3"]
        self.server = LlamaServer(arguments, self.folder / "router.log", api_key=KEY)
        self.closing.enter_context(self.server)
        self.url = self.server.url

    async def restart(self) -> None:
        self.server.restart()

    def host(self, **changes: Any) -> LlamaCppHost:
        return LlamaCppHost(preset=self.preset, **self.own({"api_key": KEY} | changes))


class Ollama(Engine):
    answers = True
    takes_key = True
    double: OllamaDouble
    release: ClassVar[str] = WITH_ADAPTERS

    async def start(self) -> None:
        folder = self.folder / "ollama"
        folder.mkdir()
        self.double = await self.closing.enter_async_context(
            ollama_double(folder, "tiny", self.gguf, self.digest, release=self.release)
        )
        self.double.api_key = KEY
        self.url = self.double.url

    async def restart(self) -> None:
        for name in list(self.double.running):
            await self.double._stop(name)
        self.double.release += ".1"  # it stopped for an update: nothing else shows that it did

    def deafen(self, version: AdapterVersion) -> None:
        self.double.faults.add("deaf")

    def host(self, **changes: Any) -> OllamaHost:
        return OllamaHost(**self.own({"api_key": KEY} | changes))


class OllamaMerged(Ollama):
    """A release that takes no adapters."""

    release = WITHOUT_ADAPTERS


class NamedLora(Engine):
    """vLLM or SGLang."""

    converts = False
    takes_key = True
    double: NamedLoraDouble
    doubles: ClassVar[type[NamedLoraDouble]]
    hosts: ClassVar[type[VllmHost] | type[SglangHost]]

    async def start(self) -> None:
        self.double = self.doubles(base="tiny", api_key=KEY)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            # Made for each request, so that a test can change how the engine was started.
            await self.double.app()(scope, receive, send)

        self.url = await self.closing.enter_async_context(listening(app))

    async def restart(self) -> None:
        self.double.restart()

    def host(self, **changes: Any) -> VllmHost | SglangHost:
        own = self.own({"api_key": KEY} | changes)
        return self.hosts(**{name: own[name] for name in own.keys() - {"base_path", "state_dir"}})

    def deafen(self, version: AdapterVersion) -> None:
        self.double.deaf = True

    def posted(self, route: str) -> list[dict[str, Any]]:
        return [body for path, body in self.double.asked if path == route]


class Vllm(NamedLora):
    doubles, hosts = VllmDouble, VllmHost


class Sglang(NamedLora):
    doubles, hosts = SglangDouble, SglangHost


class Mlx(Engine):
    """mlx_lm.server, as far as the host sees it: log-probabilities depend on the adapter's path."""

    async def start(self) -> None:
        self.base = self.folder / "base"
        self.base.mkdir()
        weights = {f"{name}.weight": np.zeros(size, np.float32) for name, size in TINY.modules.items()}
        save_file(weights, self.base / "model.safetensors")
        self.configure(rope_theta=100000.0)
        self.healthy, self.ignores = True, False
        self.asked: list[dict[str, Any]] = []
        routes = [Route("/health", self._health), Route("/v1/completions", self._complete, methods=["POST"])]
        self.url = await self.closing.enter_async_context(listening(Starlette(routes=routes)))

    def configure(self, **config: Any) -> None:
        (self.base / "config.json").write_text(json.dumps({"model_type": "llama"} | config))

    def host(self, **changes: Any) -> MlxHost:
        own = self.own({"base_path": self.base} | changes)
        return MlxHost(**{name: own[name] for name in own.keys() - {"base_model"}})

    def deafen(self, version: AdapterVersion) -> None:
        self.ignores = True

    async def _health(self, _: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"} if self.healthy else {}, 200 if self.healthy else 503)

    async def _complete(self, request: Request) -> JSONResponse:
        return self._answer(orjson.loads(await request.body()))

    def _answer(self, body: dict[str, Any]) -> JSONResponse:
        self.asked.append(body)
        adapter = None if self.ignores else body["adapters"]
        if adapter and not Path(adapter).exists():
            return JSONResponse({"error": f"The adapter path does not exist: {adapter}"}, 404)
        logps = next_tokens(body["prompt"], adapter and Path(adapter))
        tops = [{"id": token, "token": word(token), "logprob": logp} for token, logp in logps.items()]
        choice = {"text": text_of(logps), "logprobs": {"content": [{"top_logprobs": tops}]}}
        return JSONResponse({"choices": [choice]})


KINDS: list[type[Engine]] = [Embedded, Router, Ollama, OllamaMerged, Vllm, Sglang, Mlx]


def zeros_in_place_of(version: AdapterVersion, base: Path, state: Path, digest: str) -> None:
    """Convert a version to an adapter that changes nothing: with it llama.cpp answers as a deaf engine does."""
    silent = state / "silent"
    shutil.copytree(version.path, silent, dirs_exist_ok=True)
    tensors = {name: each * ("lora_A" in name) for name, each in load_file(silent / WEIGHTS).items()}
    save_file(tensors, silent / WEIGHTS)
    target = converted_path(state, version, digest)
    target.unlink(missing_ok=True)
    to_gguf(silent, read_base(base), target)
    shutil.rmtree(silent)


def ask_within(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let a request to an engine take this long at most."""
    defaults = EngineApi.ask.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "timeout_s", within(seconds))


@contextmanager
def full_disk(limit: int = 10_000) -> Iterator[None]:
    """Let no file of this process or its children grow beyond this many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
