"""How large a model is, by its own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from burnish.training.device import model_size
from burnish.training.job import ModelSize
from tests.support.jobs import Base
from tests.support.tiny_gguf import ARCHITECTURES, Shape, blank

FAMILIES: list[tuple[dict[str, Any], int]] = [
    ({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}, 0),
    ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2}, 0),
    ({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 8}, 8),
    ({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_experts": 128}, 128),
    ({"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "n_routed_experts": 64}, 64),
    ({"model_type": "gemma3", "text_config": {"hidden_size": 64, "num_hidden_layers": 2}}, 0),
    ({"model_type": "llama4", "text_config": {"hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 4}}, 4),
]  # fmt: skip


def directory(path: Path, config: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file({"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.float32)}, path / "model.safetensors")
    return path


@pytest.mark.parametrize(("config", "experts"), FAMILIES)
def test_a_directory_says_its_size(tmp_path: Path, config: dict[str, Any], experts: int) -> None:
    expected = ModelSize(hidden=64, layers=2, parameters=22, experts=experts)
    assert model_size(directory(tmp_path, config)) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gguf_says_its_size(tmp_path: Path, architecture: str) -> None:
    shape = Shape(architecture, vocabulary=32, blocks=3)
    linear = sum(out * width for out, width in shape.modules.values())
    assert model_size(blank(tmp_path / "m.gguf", shape)) == ModelSize(
        hidden=64, layers=3, parameters=linear + 32 * 64
    )


def test_the_small_model_is_the_one_that_was_measured(small: Base) -> None:
    found = model_size(small.gguf)
    assert found
    assert (found.hidden, found.layers, found.experts) == (576, 30, 0)
    assert 130e6 < found.parameters < 140e6


@pytest.mark.parametrize(
    "config", [{}, [], {"hidden_size": "wide", "num_hidden_layers": 2}, {"hidden_size": 64}]
)
def test_what_does_not_say_its_size_is_of_none(tmp_path: Path, config: Any) -> None:
    assert model_size(directory(tmp_path, config)) is None
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00")
    assert model_size(tmp_path / "torn.gguf") is None
    assert model_size(tmp_path / "missing") is None
