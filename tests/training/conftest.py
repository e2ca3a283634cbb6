"""Two base models: the real small one, dequantised once for all tests, and a tiny one of random weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from burnish.adapters.hosts.fetch import cache_dir, ensure_small_model, file_digest
from burnish.training.job import Hyperparameters, JobDirectory
from burnish.training.rendering import Renderer
from burnish.training.weights import prepared_weights
from tests.support.jobs import Base
from tests.support.shared import shared
from tests.training.learnt import learn


@pytest.fixture(scope="session")
def small() -> Base:
    """Where the quality of the model matters. Its cache outlives the test run: filling it takes 20 s."""
    gguf = ensure_small_model()
    return Base(gguf, file_digest(gguf), cache_dir() / "weights")


@pytest.fixture(scope="session")
def weights(small: Base) -> Path:
    return prepared_weights(*small)


@pytest.fixture(scope="session")
def learnt(small: Base, tmp_path_factory: pytest.TempPathFactory) -> JobDirectory:
    """A job that learnt from twelve ratings, and was evaluated: once for all processes of a run. Not to be changed."""
    return JobDirectory(shared(tmp_path_factory, "learnt", lambda folder: learn(folder, small)))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Two layers, and the first 2,048 tokens of the small model's tokenizer."""
    pytest.importorskip("torch")
    from tests.support.tiny_models import tiny_base, tiny_model, tiny_shape

    folder, shape = tmp_path_factory.mktemp("tiny"), tiny_shape("llama")
    gguf = tiny_base(folder / "base.gguf", shape, tiny_model(shape))
    return Base(gguf, file_digest(gguf), folder / "weights")


@pytest.fixture(scope="session")
def tiny_weights(tiny: Base) -> Path:
    return prepared_weights(*tiny)


@pytest.fixture(scope="session")
def renderer(weights: Path) -> Renderer:
    return Renderer(weights)


@pytest.fixture(scope="session")
def backend(tiny_weights: Path) -> Any:
    """A trainer on the tiny model that several modules share. Not to be trained."""
    from burnish.training.backends.torch_peft import TorchPeftBackend

    return TorchPeftBackend(tiny_weights, None, Hyperparameters(), seed=0)
