"""What tests of real engines share: nobody overlooks that they did not run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import Registry
from burnish.training.weights import prepared_weights
from tests.support.lora import Make, random_lora, register, version_of, write_peft
from tests.support.real_engines import mlx_base, mlx_server, vllm_server

HERE = Path(__file__).parent
VLLM_MAX_RANK = 16
SAME_VLLM = ("test_vllm_real", "test_token_ids_real")
"""Modules whose tests share one vLLM, which takes minutes to boot."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share an engine in one process (-n 2 --dist loadgroup)."""
    for item in items:
        if HERE in item.path.parents:
            module = item.path.stem
            item.add_marker(pytest.mark.xdist_group("vllm" if module in SAME_VLLM else module))


@pytest.fixture(scope="session")
def base(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small model as MLX reads it right, in float32."""
    path = mlx_base(weights, tmp_path_factory.mktemp("mlx") / "base")
    yield path
    shutil.rmtree(path)  # half a gigabyte


@pytest.fixture(scope="session")
def weights() -> Path:
    """The small model as vLLM reads it."""
    return prepared_weights(ensure_small_model(), file_digest(ensure_small_model()), cache_dir() / "weights")


@pytest.fixture(scope="session")
def vllm(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a vLLM with the small model, for all tests: it takes minutes to boot."""
    with vllm_server(weights, "smollm2", VLLM_MAX_RANK, tmp_path_factory.mktemp("vllm") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def mlx(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an mlx_lm.server with the small model."""
    folder = tmp_path_factory.mktemp("mlx-server")
    (folder / "hub").mkdir()
    with mlx_server(base, folder / "hub", folder / "log") as url:
        yield url


@pytest.fixture
def versions() -> list[AdapterVersion]:
    return []


@pytest.fixture
def make(tmp_path: Path, digest: str, versions: list[AdapterVersion]) -> Make:
    """One more version of random weights; ``digest``: of the model that the engine serves."""

    def made(seed: int, rank: int = 4, only: str = "", **config: object) -> AdapterVersion:
        tensors = {name: each for name, each in random_lora(seed, rank, strength=0.1).items() if only in name}
        path = write_peft(tmp_path / f"v{seed}", tensors, rank, **config)
        versions.append(version_of(path, seed, digest))
        return versions[-1]

    return made


def make_live(data_dir: Path, digest: str, base: str) -> AdapterVersion:
    """Put a version into burnish's data directory that is live."""
    registry = Registry(data_dir / "adapters")
    trained = write_peft(data_dir.parent / "trained", random_lora(4, strength=0.1))
    version = register(registry, trained, digest, base)
    registry.record(version.number, "live", "for the test", replaced=0)
    return version


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly which engine was not there; a bare "s" among the dots is overlooked."""
    reasons = {
        str(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", [])
        if "tests/engines/" in report.nodeid and isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reasons):
        terminalreporter.write_sep("!", reason.removeprefix("Skipped: "), red=True, bold=True)
