"""Feedback over HTTP, with nothing before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from burnish.proxy.log import Log
from tests.proxy.feedback.test_routes import Service, served


@pytest.fixture
async def burnish(log: Log) -> AsyncIterator[Service]:
    async with served(log) as service:
        yield service
