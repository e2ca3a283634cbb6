"""Merged Hugging Face directories: transformers computes from them what peft computes at run time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from burnish.adapters.convert.merge_hf import merge_hf
from burnish.adapters.convert.room import CHUNK_NUMBERS
from burnish.adapters.errors import AdapterError, EngineError, IncompatibleAdapter
from tests.support.lora import write_peft
from tests.support.tiny_gguf import tiny_lora
from tests.support.tiny_models import tiny_model, tiny_shape

SHAPE = tiny_shape("qwen3", vocabulary=128)
Q = "model.layers.0.self_attn.q_proj.weight"
OURS = ("burnish.json", ".model.safetensors.digest.json")
"""Files that burnish adds to a base of its own."""
TOKENS = torch.arange(1, 25)[None]


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    return write_peft(tmp_path / "lora", tiny_lora(SHAPE, 1, strength=0.02), lora_alpha=8)


def base(path: Path, kind: torch.dtype = torch.bfloat16, shard_size: str = "5GB") -> Path:
    tiny_model(SHAPE).to(kind).save_pretrained(path, max_shard_size=shard_size)
    (path / "chat_template.jinja").write_text("{{ messages }}")
    for name in OURS:
        (path / name).write_text("{}")
    (path / "pytorch_model.bin").write_bytes(b"code that runs")
    return path


@torch.no_grad()
def logits(model: transformers.PreTrainedModel) -> torch.Tensor:
    return model.eval()(TOKENS).logits


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft and transformers deprecate each other's names
@pytest.mark.parametrize("shard_size", ["5GB", "100KB"])
def test_the_logits_are_those_of_the_adapter_at_run_time(shard_size: str, lora: Path, tmp_path: Path) -> None:
    where = base(tmp_path / "base", shard_size=shard_size)
    merged = merge_hf(lora, where, tmp_path / "merged")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    plain = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32)
    before = logits(plain)
    expected = logits(peft.PeftModel.from_pretrained(plain, lora))
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(logits(loaded), expected, atol=1e-4, rtol=1e-4)
    assert (before - expected).abs().max() > 0.05
    assert (merged.precision, round(merged.kept, 3)) == ("f32", 1)


def test_only_changed_tensors_change_and_only_safe_files_come_along(lora: Path, tmp_path: Path) -> None:
    where = base(tmp_path / "base", torch.float16, "100KB")
    merge_hf(lora, where, tmp_path / "merged")
    before, after = ({f.name: f for f in path.iterdir()} for path in (where, tmp_path / "merged"))
    assert after.keys() == before.keys() - {*OURS, "pytorch_model.bin"}
    assert {path.stat().st_mode & 0o777 for path in after.values()} == {0o600}
    weights, index = 0, json.loads(after["model.safetensors.index.json"].read_text())
    for name, path in before.items():
        if path.suffix == ".safetensors":
            for tensor, values in load_file(path).items():
                new = load_file(after[name])[tensor]
                assert index["weight_map"][tensor] == name
                weights += new.nbytes
                if tensor.endswith("_proj.weight"):
                    assert new.dtype == np.float32
                else:
                    assert (new.dtype, new.tobytes()) == (values.dtype, values.tobytes())
    assert index["metadata"]["total_size"] == weights


def test_an_older_name_of_the_type_does_not_undo_it(lora: Path, tmp_path: Path) -> None:
    where = base(tmp_path / "base")
    config = json.loads((where / "config.json").read_text())
    (where / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
    merge_hf(lora, where, tmp_path / "merged")
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").dtype == torch.float32


def test_more_rows_than_are_held_at_once(tmp_path: Path) -> None:
    dice, (out, width) = np.random.default_rng(0), (3 * CHUNK_NUMBERS // 128, 64)
    sizes = (out, width), (2, width), (out, 2)
    weight, a, b = (dice.normal(size=size).astype(np.float32) for size in sizes)
    (where := tmp_path / "base").mkdir()
    (where / "config.json").write_text("{}")
    save_file({"up_proj.weight": weight}, where / "model.safetensors")
    tensors = {f"base_model.model.up_proj.lora_{half}.weight": array for half, array in (("A", a), ("B", b))}
    merge_hf(write_peft(tmp_path / "lora", tensors, 2), where, tmp_path / "merged")
    [merged] = load_file(tmp_path / "merged" / "model.safetensors").values()
    np.testing.assert_allclose(merged, weight + b @ a, atol=1e-5)


def other(path: Path, tensor: str, values: np.ndarray | None) -> None:
    """Replace a tensor of the base, or take it away."""
    weights = load_file(path / "model.safetensors")
    del weights[tensor]
    save_file(weights | ({} if values is None else {tensor: values}), path / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda path: (path / "model.safetensors").unlink(), EngineError, r"has no \*.safetensors"),
        # Within the header, and within a tensor.
        (lambda path: os.truncate(path / "model.safetensors", 9), EngineError, "cannot read"),
        (lambda path: os.truncate(path / "model.safetensors", 50_000), EngineError, "cannot read"),
        (lambda path: other(path, Q, None), IncompatibleAdapter, "stores this layer fused"),
        (lambda path: other(path, Q, np.zeros((128, 8), np.uint32)), IncompatibleAdapter, "is of type U32"),
        (
            lambda path: other(path, Q, np.zeros((128, 8), np.float32)),
            IncompatibleAdapter,
            "for another model",
        ),
        (lambda path: (path / "config.json").unlink(), EngineError, "config.json"),
    ],
)
def test_a_base_that_cannot_be_merged_says_why_and_leaves_nothing(
    spoil: Callable[[Path], object], error: type[AdapterError], words: str, lora: Path, tmp_path: Path
) -> None:
    spoil(where := base(tmp_path / "base", torch.float16))
    (target := tmp_path / "target").mkdir()
    with pytest.raises(error, match=words):
        merge_hf(lora, where, target / "merged")
    assert not list(target.iterdir())
