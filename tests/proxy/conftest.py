"""Which event loops tests run on: asyncio's, or what their module says in ``LOOPS``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

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
