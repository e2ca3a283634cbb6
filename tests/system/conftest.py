"""Tests run on uvloop, as the product does."""

from __future__ import annotations

from tests.support.fixtures import log, patient, pytest_asyncio_loop_factories, weights

__all__ = ["log", "patient", "pytest_asyncio_loop_factories", "weights"]
