"""Time limits of burnish that a slow machine would pass though nothing is wrong, for tests that run it in-process."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.support.patience import within

LIMITS = {
    "burnish.adapters.hosts.detect": "LOOK_TIMEOUT_S",
    "burnish.app.app": "READ_LIMIT_S",
    "burnish.proxy.instructions.instructions": "READ_LIMIT_S",
    "burnish.proxy.log.log": "WRITE_LIMIT_S",
    "burnish.proxy.log.writer": "READ_LIMIT_S",
    "burnish.app.observe.gauges": "READ_LIMIT_S",
    "burnish.proxy.relay.routing": "ENGINE_WAIT_S",
    "burnish.proxy.relay.upstreams": "LOOK_LIMIT_S",
    "burnish.learner.learning": "CHECK_LIMIT_S",
}
"""By module."""
USUAL = {module: getattr(import_module(module), name) for module, name in LIMITS.items()}
"""Seconds. Each conftest makes a fixture of its own, so they may not multiply what another has set."""


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Give burnish as long as this machine needs, and more. A conftest imports this for the tests beside it."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in LIMITS.items():
            patch.setattr(import_module(module), name, within(3 * USUAL[module]))
        yield
