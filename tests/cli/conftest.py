"""One running burnish for all tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.burnish import Burnish, running


@pytest.fixture(scope="package")
def burnish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burnish]:
    with running(
        tmp_path_factory.mktemp("burnish") / "data", env={"BURNISH_TRAIN__SCHEDULE": "manual"}
    ) as up:
        yield up
