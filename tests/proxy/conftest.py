"""Tests run on uvloop, as the product does; a log; and weights for doubles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest
import uvloop

from burnish.proxy.log import Log
from tests.proxy.log.exchanges import opened
from tests.support.patience import within

LIMITS = {
    "burnish.adapters.hosts.detect": "LOOK_TIMEOUT_S",
    "burnish.proxy.app": "READ_LIMIT_S",
    "burnish.proxy.instructions.instructions": "READ_LIMIT_S",
    "burnish.proxy.log.log": "WRITE_LIMIT_S",
    "burnish.proxy.log.writer": "READ_LIMIT_S",
    "burnish.proxy.observe.gauges": "READ_LIMIT_S",
    "burnish.proxy.relay.routing": "ENGINE_WAIT_S",
    "burnish.proxy.relay.upstreams": "LOOK_LIMIT_S",
    "burnish.proxy.status": "CHECK_LIMIT_S",
}
"""Limits of the product, by module, that a slow machine would pass though nothing is wrong."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Give burnish as long as this machine needs, and more, where it runs in the process of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in LIMITS.items():
            found = import_module(module)
            patch.setattr(found, name, within(3 * getattr(found, name)))
        yield


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
