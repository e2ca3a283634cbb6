"""One running burnish for all tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.burnish import Burnish, running
from tests.support.fixtures import log, patient, pytest_asyncio_loop_factories, weights

__all__ = ["log", "patient", "pytest_asyncio_loop_factories", "weights"]


@pytest.fixture(scope="package")
def burnish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(
        tmp_path_factory.mktemp("burnish") / "data", env={"BURNISH_TRAIN__SCHEDULE": "manual"}
    ) as up:
        yield up
