"""A real engine on the real small model, and versions to serve on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.support.lora import random_lora, write_peft


@pytest.fixture(scope="session")
def engine_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that each adapter is converted once for all tests."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture
async def host(engine_state: Path) -> AsyncIterator[EmbeddedHost]:
    engine = EmbeddedHost(ensure_small_model(), base_model="smollm2", state_dir=engine_state)
    yield engine
    await engine.close()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "adapters")


@pytest.fixture
def make_version(registry: Registry, host: EmbeddedHost, tmp_path: Path) -> Callable[..., AdapterVersion]:
    """Register one more version of random weights; another seed makes it answer differently."""

    def make(seed: int, base_digest: str | None = None) -> AdapterVersion:
        return registry.register(
            write_peft(tmp_path / f"trained-{seed}", random_lora(seed, strength=0.1)),
            base_model="smollm2",
            base_digest=base_digest or host.base_digest,
            parent=0,
            run_id=f"run_{seed}",
            feedback_ids=[],
            objective="none",
            hyperparameters={},
            metrics={},
        )

    return make


@pytest.fixture
async def swap(registry: Registry, host: EmbeddedHost) -> AsyncIterator[Swap]:
    swap = Swap(registry, host, LiveRoute())
    yield swap
    await swap.close()
