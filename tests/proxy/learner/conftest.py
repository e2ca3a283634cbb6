"""A whole learner on real parts: log, registry, engine with the small model, swap, trainer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.reconcile import Reconciler
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from burnish.proxy.config import TrainConfig
from burnish.proxy.learner.cycle import Cycle
from burnish.proxy.learner.learner import Learner
from burnish.proxy.learner.transfer import Transfer
from burnish.proxy.log import Log
from burnish.proxy.records import FeedbackDraft, Run
from tests.proxy.log.exchanges import answered, assistant, capture, user
from tests.support.lora import random_lora, write_peft
from tests.support.tiny_gguf import random_llama


@dataclass
class World:
    """The parts, as the application puts them together."""

    data: Path
    log: Log
    registry: Registry
    host: EmbeddedHost
    swap: Swap
    learner: Learner
    transfer: Transfer

    async def ask(self, messages: list[dict[str, Any]], **params: Any) -> tuple[str, str]:
        """Ask what is live, and log it as the relay would; returns the reply and the completion's id."""
        with self.swap.route.lease() as lease:
            body = {"model": lease.endpoint.model, "messages": messages, **params}
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"{lease.endpoint.url}/v1/chat/completions",
                    json=body,
                    headers={"authorization": f"Bearer {lease.endpoint.api_key}"},
                ) as response,
            ):
                choice = (await response.json())["choices"][0]
            text, finish = choice["message"]["content"], choice["finish_reason"]
            params.pop("seed", None)
            completion = capture(
                self.log,
                messages,
                text,
                params=params,
                adapter_version=lease.endpoint.version,
                chunks=(answered(assistant(text), finish=finish),),
            )
        return text, completion

    async def rate(self, completion_id: str, reward: float) -> None:
        await self.log.add_feedback(
            FeedbackDraft(completion_id, "completion_id", reward=reward, scale="binary")
        )
        self.learner.wake()

    async def rated(self, reward: float, count: int) -> None:
        """Log answers that nobody gave, and rate them."""
        for _ in range(count):
            number = (await self.log.counts())["completions"]
            made = capture(self.log, [user(f"Question {number}?")], f"Answer {number}.", adapter_version=0)
            await self.rate(made, reward)

    async def ended(self, run_id: str, within_s: float) -> Run:
        async with asyncio.timeout(within_s):
            while (run := await self.log.run(run_id)).ended_at is None:
                await asyncio.sleep(0.2)
        return run

    async def trainer(self, within_s: float = 30.0) -> psutil.Process:
        """The child that trains for this world."""
        async with asyncio.timeout(within_s):
            while True:
                for child in psutil.Process().children(recursive=True):
                    line = child.cmdline()
                    if "burnish.training" in line and any(part.startswith(str(self.data)) for part in line):
                        return child
                await asyncio.sleep(0.05)

    def make_version(self, seed: int, run_id: str = "run_made") -> AdapterVersion:
        return self.registry.register(
            write_peft(self.data / f"made-{seed}", random_lora(seed)),
            base_model="smollm2",
            base_digest=self.host.base_digest,
            parent=0,
            run_id=run_id,
            feedback_ids=[],
            objective="none",
            hyperparameters={},
            metrics={},
        )


Open = Callable[..., Awaitable[World]]


@asynccontextmanager
async def world(data: Path, engine_state: Path, train: TrainConfig, **paths: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        model = paths.pop("model", None) or ensure_small_model()
        log = Log.open(data / "burnish.db")
        stack.callback(log.close)
        host = EmbeddedHost(model, base_model="smollm2", state_dir=engine_state)
        stack.push_async_callback(host.close)
        registry = Registry(data / "adapters")
        swap = Swap(registry, host, LiveRoute())
        stack.push_async_callback(swap.close)
        await Reconciler(swap).reconcile_once()
        learner = Learner(
            Cycle(
                log=log,
                registry=registry,
                swap=swap,
                train=train,
                **(
                    {"base_weights": model, "weights_cache": cache_dir() / "weights", "jobs": data / "jobs"}
                    | paths
                ),
            )
        )
        await learner.start()
        stack.push_async_callback(learner.stop)
        transfer = Transfer(registry, "smollm2", host.base_digest, model, cache_dir() / "weights")
        yield World(data, log, registry, host, swap, learner, transfer)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says nothing, quickly; ``open_world(model=…)`` takes it."""
    return random_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def engine_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that each adapter is converted once for all tests."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture
async def open_world(tmp_path: Path, engine_state: Path) -> AsyncIterator[Open]:
    """Open a world on the test's own data directory, with these settings and paths; a second one closes the first."""
    async with AsyncExitStack() as stack:

        async def open_(**train: Any) -> World:
            await stack.aclose()
            paths = {name: train.pop(name) for name in list(train) if isinstance(train[name], Path)}
            settings = TrainConfig(**({"schedule": "manual", "threads": 1} | train))
            return await stack.enter_async_context(world(tmp_path / "data", engine_state, settings, **paths))

        yield open_
