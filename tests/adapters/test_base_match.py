"""Is what training would run on the model that the engine serves?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from burnish.adapters.base_match import BaseShape, demand_same_model, shape
from burnish.adapters.errors import EngineError, IncompatibleAdapter
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.hosts.model_file import is_gguf
from tests.support.tiny_gguf import finish


def directory(path: Path, **changes: Any) -> Path:
    said = {"model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(said | changes))
    return path


def file(path: Path, architecture: str = "qwen3", *, vocabulary: int = 64, embedding: bool = True) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    name = "token_embd.weight" if embedding else "output.weight"
    writer.add_tensor(name, np.zeros((vocabulary, 32), np.float16))
    finish(writer)
    return path


def test_the_small_model_and_its_description_in_the_other_layout_match(tmp_path: Path) -> None:
    served = ensure_small_model()
    assert shape(served) == BaseShape("llama", 576, 30, 49152)
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
    base = directory(tmp_path / "hf", model_type="llama", **sizes)
    demand_same_model(served, base)
    demand_same_model(base, served)


@pytest.mark.parametrize(
    "names", ["qwen3 qwen3", "qwen3moe qwen3_moe", "gemma3 gemma3_text", "llama mistral", "command-r cohere"]
)
def test_names_that_mean_the_same_architecture_match(tmp_path: Path, names: str) -> None:
    architecture, model_type = names.split()
    base = directory(tmp_path / "hf", model_type=model_type)
    demand_same_model(file(tmp_path / "m.gguf", architecture), base)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model_type", "qwen2", "architecture qwen2 instead of qwen3"),
        ("hidden_size", 64, "hidden size 64 instead of 32"),
        ("num_hidden_layers", 3, "layers 3 instead of 2"),
        ("vocab_size", 65, "vocabulary 65 instead of 64"),
    ],
)
def test_each_difference_is_refused_by_name(tmp_path: Path, key: str, value: Any, said: str) -> None:
    served, base = file(tmp_path / "m.gguf"), directory(tmp_path / "hf", **{key: value})
    with pytest.raises(IncompatibleAdapter, match=said):
        demand_same_model(served, base)


def test_sizes_of_the_text_part_count(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
    base = tmp_path / "hf"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    demand_same_model(file(tmp_path / "m.gguf", "gemma3"), base)


def test_the_same_file_is_not_even_read(tmp_path: Path) -> None:
    served = tmp_path / "torn.gguf"
    served.write_bytes(b"GGUF")
    link = tmp_path / "sha256-1234"
    link.symlink_to(served)
    demand_same_model(served, link)


@pytest.mark.parametrize("said", ["{}", "[]", "no json"])
def test_a_directory_that_describes_no_model_is_an_error(tmp_path: Path, said: str) -> None:
    (tmp_path / "config.json").write_text(said)
    with pytest.raises(EngineError, match=r"config\.json"):
        shape(tmp_path)


def test_torn_files_are_an_error(tmp_path: Path) -> None:
    whole = file(tmp_path / "m.gguf")
    assert is_gguf(whole)
    for length in (0, 3, 8, 40, 100, 200):
        torn = tmp_path / f"torn-{length}.gguf"
        torn.write_bytes(whole.read_bytes()[:length])
        with pytest.raises(EngineError, match="as GGUF"):
            shape(torn)
    with pytest.raises(EngineError, match="token_embd"):
        shape(file(tmp_path / "none.gguf", embedding=False))
    assert not is_gguf(tmp_path / "absent")
