"""Which event loops tests run on (asyncio's, or what their module says in ``LOOPS``), and weights for doubles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

FACTORIES: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Transports differ between loops, above all under TLS, and the product runs on uvloop."""
    module = item.getparent(pytest.Module)
    loops = getattr(module.obj, "LOOPS", ("asyncio",)) if module else ("asyncio",)
    return {name: FACTORIES[name] for name in loops}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Base weights of an engine that is a double: a Hugging Face directory by its look, with no model in it."""
    path = tmp_path / "weights"
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"the base")
    return path
