"""What a GGUF of each architecture becomes for training: the very weights that the engine serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from burnish.adapters.hosts.fetch import file_digest
from burnish.training.errors import JobError
from burnish.training.weights import prepared_weights

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

PROMPT = list(range(1000, 1012))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_a_dequantised_model_computes_what_the_engine_does(architecture: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from tests.support.tiny_models import steps, tiny_base, tiny_model, tiny_shape

    shape = tiny_shape(architecture)
    model = tiny_model(shape)
    base = tiny_base(tmp_path / "base.gguf", shape, model)
    weights = prepared_weights(base, file_digest(base), tmp_path / "weights")
    found = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()  # that is how prepared weights are kept
    [expected], [logprobs] = steps(model, PROMPT, 1), steps(found, PROMPT, 1)
    np.testing.assert_allclose(logprobs, expected, atol=1e-3)


@pytest.mark.parametrize("architecture", ["gemma", "mistral3"])
def test_what_cannot_be_dequantised_is_named(architecture: str, tmp_path: Path) -> None:
    from tests.support.tiny_models import tiny_base, tiny_model, tiny_shape

    shape = tiny_shape(architecture)
    base = tiny_base(tmp_path / "base.gguf", shape, tiny_model(shape))
    with pytest.raises(JobError, match=f"architecture {architecture} is not supported"):
        prepared_weights(base, file_digest(base), tmp_path / "weights")
