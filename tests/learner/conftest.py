"""A learner on real parts: log, registry, swap and trainer. Unless a test names a model, the engine is a double."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import httpx
import psutil
import pytest

from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from burnish.app.asgi import own_application
from burnish.config.config import load_config
from burnish.config.tables import TrainConfig
from burnish.gate import Evidence, Verdict, judge
from burnish.learner.cycle import Cycle
from burnish.learner.foreign_engine import foreign_host
from burnish.learner.learner import Learner
from burnish.learner.machine import Machine, Meter
from burnish.learner.plan import Planner
from burnish.learner.routes import learner_routes
from burnish.learner.transfer import Transfer
from burnish.proxy.log import Log
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.runs import Run
from tests.learner.test_plan import burnish
from tests.proxy.log.exchanges import answered, assistant, capture, rate, user
from tests.support.fixtures import log, patient, pytest_asyncio_loop_factories, weights
from tests.support.inprocess import listening, refusal
from tests.support.lora import random_lora, register, write_peft
from tests.support.patience import within
from tests.support.shared import shared
from tests.support.tiny_gguf import random_llama
from tests.support.vllm_double import Engine

__all__ = ["burnish", "log", "patient", "pytest_asyncio_loop_factories", "weights"]


class WatchedLog(Log):
    """A log on which a test can wait for the next change of a run."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.run_changed = asyncio.Event()

    async def start_run(self, run: Run) -> None:
        await super().start_run(run)
        self.run_changed.set()

    async def update_run(self, run: Run) -> None:
        await super().update_run(run)
        self.run_changed.set()


class QuietMachine(Meter):
    """Says what a test sets; at first that nothing is known, so nothing prevents a run."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.looks = 0

    def now(self) -> Machine:
        return replace(self.machine, load=None)

    async def measured(self) -> Machine:
        self.looks += 1
        return self.machine


@dataclass
class World:
    """The parts, as the application puts them together."""

    data: Path
    log: WatchedLog
    registry: Registry
    host: AdapterHost
    swap: Swap
    learner: Learner
    http: httpx.AsyncClient
    """Of the learner's routes."""

    async def refused(self, path: str, body: dict[str, Any]) -> str:
        return await refusal(self.http, path, body)

    async def ask(self, messages: list[dict[str, Any]], **params: Any) -> tuple[str, str]:
        """Ask the live version, and log it as the relay would; returns the reply and the ID of the completion."""
        with self.swap.route.lease() as lease:
            body = {"model": lease.endpoint.model, "messages": messages, **params}
            headers = {"authorization": f"Bearer {lease.endpoint.api_key}"}
            base_url, limit_s = lease.endpoint.url, within(300)
            async with httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=limit_s) as http:
                answer = await http.post("/v1/chat/completions", json=body, headers=headers)
            choice = answer.json()["choices"][0]
            text, finish = choice["message"]["content"], choice["finish_reason"]
            params.pop("seed", None)
            chunks = (answered(assistant(text), finish=finish),)
            served: dict[str, Any] = {"adapter_version": lease.endpoint.version, "params": params}
            completion = capture(self.log, messages, text, chunks=chunks, **served)
        return text, completion

    async def rate(self, completion_id: str, reward: float) -> None:
        await rate(self.log, completion_id, reward, scale="binary")
        self.learner.wake()

    async def rated(self, *rewards: float) -> None:
        for reward in rewards:
            number = (await self.log.counts())["completions"]
            made = capture(self.log, [user(f"Question {number}?")], f"Answer {number}.", adapter_version=0)
            await self.rate(made, reward)

    async def run_when(self, met: Callable[[Run], bool], limit_s: float) -> Run:
        async with asyncio.timeout(within(limit_s)):
            while True:
                self.log.run_changed.clear()
                if (runs := await self.log.runs(1)) and met(runs[0]):
                    return runs[0]
                await self.log.run_changed.wait()

    async def ended(self, run_id: str, limit_s: float) -> Run:
        return await self.run_when(lambda run: run.id == run_id and run.ended_at is not None, limit_s)

    async def trainer(self, limit_s: float = 30.0) -> psutil.Process:
        async with asyncio.timeout(within(limit_s)):
            while True:
                for child in psutil.Process().children(recursive=True):
                    line = child.cmdline()
                    if "burnish.training" in line and any(part.startswith(str(self.data)) for part in line):
                        return child
                await asyncio.sleep(0.05)

    def make_version(self, seed: int) -> AdapterVersion:
        files = write_peft(self.data / f"made-{seed}", random_lora(seed))
        return register(self.registry, files, self.host.base_digest)


Open = Callable[..., Awaitable[World]]


@asynccontextmanager
async def world(
    data: Path,
    registry: Registry,
    host: AdapterHost,
    *,
    base_weights: Path,
    jobs: Path | None = None,
    gate: Callable[[Evidence], Verdict] = judge,
    meter: Meter | None = None,
    proofs: bool = False,
    **settings: Any,
) -> AsyncIterator[World]:
    """``proofs``: make those of versions that have none; ``settings`` are those of ``[train]``."""
    cache = cache_dir() / "weights"
    train = TrainConfig(**({"schedule": "manual", "threads": 1} | settings))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(host.close)
        log = WatchedLog.open(data / "burnish.db")
        stack.callback(log.close)
        swap = Swap(registry, host, LiveRoute())
        stack.push_async_callback(swap.close)
        registry.recover()
        await Reconciler(swap).reconcile_once()
        rules = Rules(train.rater_weights, train.objective, next_turns=train.next_turn)
        weights: dict[str, Any] = {"base_weights": base_weights, "weights_cache": cache}
        planner = Planner(log=log, registry=registry, host=host, train=train, rules=rules, **weights)
        cycle = Cycle(planner=planner, swap=swap, jobs=jobs or data / "jobs", gate=gate)
        if proofs:
            swap.with_proof = cycle.with_proof
        learner = Learner(cycle, meter or QuietMachine())
        await learner.start()
        stack.push_async_callback(learner.stop)
        transfer = Transfer(registry, host.base_model, host.base_digest, base_weights, cache)
        app = own_application(learner_routes(learner, registry, transfer, log, data))
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://burnish")
        await stack.enter_async_context(http)
        yield World(data, log, registry, host, swap, learner, http)


def embedded(data: Path, model: Path, state: Path, **settings: Any) -> AbstractAsyncContextManager[World]:
    """Open a world whose embedded engine serves a file; ``settings``: as ``world`` has them."""
    host = EmbeddedHost(model, base_model="smollm2", state_dir=state)
    return world(data, Registry(data / "adapters"), host, **{"base_weights": model} | settings)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says nothing, quickly; ``open_world(model=…)`` takes it."""

    def make(folder: Path) -> None:
        folder.mkdir()
        random_llama(folder / "tiny.gguf")

    return shared(tmp_path_factory, "tiny-llama", make) / "tiny.gguf"


@pytest.fixture(scope="session")
def engine_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that each adapter is converted once for all tests."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="session")
def taught(lesson: Path) -> Path:
    """The data directory of a tiny model that learnt from ratings. Not to be changed: ``open_world`` takes a copy."""
    return lesson / "judged"


@pytest.fixture
def unjudged(lesson: Path, tmp_path: Path) -> Path:
    """The same before its version was judged, to change. When it's opened, the judgement goes on."""
    return shutil.copytree(lesson / "trained", tmp_path / "unjudged")


@pytest.fixture(scope="session")
def lesson(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, engine_state: Path) -> Path:
    from tests.learner.taught import teach

    def make(folder: Path) -> None:
        with ThreadPoolExecutor(1) as thread:  # where no event loop is
            thread.submit(asyncio.run, teach(folder, tiny_model, engine_state)).result()

    return shared(tmp_path_factory, "taught", make)


async def no_reset(reason: str) -> NoReturn:
    """Stand where `/rl reset yes` would start learning over."""
    pytest.fail(f"reset: {reason}")


@pytest.fixture
async def open_world(tmp_path: Path, weights: Path, engine_state: Path) -> AsyncIterator[Open]:
    """Open a world on the data directory of the test; a second one closes the first.

    With ``model`` the embedded engine serves that file, else a double of vLLM answers. With ``copy`` it begins as
    another data directory is. The settings are those of ``world``.
    """
    data = tmp_path / "data"
    async with AsyncExitStack() as engines, AsyncExitStack() as opened:

        async def open_(model: Path | None = None, *, copy: Path | None = None, **settings: Any) -> World:
            await opened.aclose()
            if copy:
                shutil.copytree(copy, data)
            if model:
                return await opened.enter_async_context(embedded(data, model, engine_state, **settings))
            registry = Registry(data / "adapters")
            url = await engines.enter_async_context(listening(Engine().app()))
            named: dict[str, Any] = {"data_dir": data, "upstream": url, "train": {"base": str(weights)}}
            host, _ = await foreign_host(load_config(named), registry.versions)
            settings = {"base_weights": weights} | settings
            return await opened.enter_async_context(world(data, registry, host, **settings))

        yield open_
