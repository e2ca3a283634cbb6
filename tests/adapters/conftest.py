"""A real engine on a tiny model, and versions to serve on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest

from burnish.adapters import swap as swapping
from burnish.adapters.hosts import detect, embedded, llamacpp, ollama_api
from burnish.adapters.hosts.api import ASK_TIMEOUT_S
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import Registry
from burnish.adapters.route import LiveRoute
from burnish.adapters.swap import Swap
from tests.adapters.engines import Engine, ask_within
from tests.support.lora import Make, register, write_peft
from tests.support.patience import within
from tests.support.tiny_gguf import TINY, random_llama, tiny_lora

LIMITS: dict[ModuleType, str] = {
    detect: "LOOK_TIMEOUT_S",
    embedded: "START_TIMEOUT_S",
    llamacpp: "UNLOAD_TIMEOUT_S",
    ollama_api: "UNLOAD_TIMEOUT_S",
    swapping: "ROOM_TIMEOUT_S",
}
"""Limits of the product, by module, that a slow machine would pass though nothing is wrong."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give engines as long as this machine needs."""
    for module, name in LIMITS.items():
        monkeypatch.setattr(module, name, within(getattr(module, name)))
    ask_within(monkeypatch, ASK_TIMEOUT_S)


@pytest.fixture(scope="session")
def engine_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that each adapter is converted once for all tests."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF of a tiny model that answers at random, but always the same."""
    return random_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
async def host(tiny: Path, engine_state: Path) -> AsyncIterator[EmbeddedHost]:
    engine = EmbeddedHost(tiny, base_model="smollm2", state_dir=engine_state)
    yield engine
    await engine.close()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "adapters")


@pytest.fixture
def make(registry: Registry, host: EmbeddedHost, tmp_path: Path) -> Make:
    """Register one more version of random weights; another seed makes it answer differently."""

    def version(seed: int, base_digest: str | None = None) -> AdapterVersion:
        trained = write_peft(tmp_path / f"trained-{seed}", tiny_lora(TINY, seed))
        return register(registry, trained, base_digest=base_digest or host.base_digest)

    return version


@pytest.fixture
async def swap(registry: Registry, host: EmbeddedHost) -> AsyncIterator[Swap]:
    swap = Swap(registry, host, LiveRoute())
    yield swap
    await swap.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each kind of engine that its module names, unless the test names kinds itself."""
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "engine" in metafunc.fixturenames and "kind" not in own:
        metafunc.parametrize("kind", metafunc.module.KINDS)


@pytest.fixture
async def engine(kind: type[Engine], tmp_path: Path, tiny: Path) -> AsyncIterator[Engine]:
    engine = kind(tmp_path, tiny)
    async with engine.closing:
        await engine.start()
        yield engine
