from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.proxy.log import Log
from tests.proxy.log.exchanges import opened


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    async with opened(tmp_path) as log:
        yield log
