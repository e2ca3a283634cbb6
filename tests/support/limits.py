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


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Give burnish as long as this machine needs, and more. A conftest imports this for the tests beside it."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in LIMITS.items():
            found = import_module(module)
            patch.setattr(found, name, within(3 * getattr(found, name)))
        yield
