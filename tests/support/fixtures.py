"""For tests of burnish in-process: uvloop, as in the product; a log; weights for doubles. A conftest imports them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from burnish.proxy.log import Log
from tests.proxy.log.exchanges import opened
from tests.support.limits import patient

__all__ = ["log", "patient", "pytest_asyncio_loop_factories", "weights"]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    async with opened(tmp_path) as log:
        yield log


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Base weights of an engine that is a double: a Hugging Face directory by its look, with no model in it."""
    path = tmp_path / "weights"
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"the base")
    return path
