"""What tests of real engines share: nobody overlooks that they did not run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest
from burnish.training.weights import prepared_weights
from tests.support.real_engines import mlx_base


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small model as MLX reads it right, in float32."""
    model = ensure_small_model()
    weights = prepared_weights(model, file_digest(model), cache_dir() / "weights")
    path = mlx_base(weights, tmp_path_factory.mktemp("mlx") / "base")
    yield path
    shutil.rmtree(path)  # half a gigabyte


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly which engine was not there; a bare "s" among the dots is overlooked."""
    reasons = {
        str(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", [])
        if "tests/engines/" in report.nodeid and isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reasons):
        terminalreporter.write_sep("!", reason.removeprefix("Skipped: "), red=True, bold=True)
