"""The real small model, dequantised once for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest
from burnish.training.weights import prepared_weights


@pytest.fixture(scope="session")
def gguf() -> Path:
    return ensure_small_model()


@pytest.fixture(scope="session")
def digest(gguf: Path) -> str:
    return file_digest(gguf)


@pytest.fixture(scope="session")
def weights_cache() -> Path:
    """Kept between test runs: filling it takes 20 s."""
    return cache_dir() / "weights"


@pytest.fixture(scope="session")
def weights(gguf: Path, digest: str, weights_cache: Path) -> Path:
    return prepared_weights(gguf, digest, weights_cache)
