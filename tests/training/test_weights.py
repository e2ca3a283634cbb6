from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import dequantize
from safetensors.torch import load_file

from burnish.adapters.convert.gguf_layout import open_gguf
from burnish.training.errors import JobError
from burnish.training.weights import prepared_weights
from tests.support.jobs import Base


def test_the_cache_holds_what_the_engine_serves(weights: Path, small: Base):
    cached = load_file(weights / "model.safetensors")
    served = {tensor.name: tensor for tensor in open_gguf(small.gguf).tensors}
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
        "model.norm.weight": "output_norm.weight",
    }.items():
        exact = torch.tensor(np.array(dequantize(served[theirs].data, served[theirs].tensor_type)))
        assert torch.equal(cached[ours], exact.to(torch.bfloat16))


def test_the_cache_is_private_and_safetensors_only(weights: Path):
    assert weights.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in weights.iterdir()} == {0o600}
    assert {path.suffix for path in weights.iterdir()} <= {".safetensors", ".json", ".jinja"}


def test_a_full_cache_needs_no_gguf(weights: Path, small: Base):
    assert prepared_weights(Path("gone.gguf"), small.digest, small.weights_cache) == weights


@pytest.mark.slow
def test_two_at_once_after_one_that_was_killed(tiny: Base, tmp_path: Path):
    torn = tmp_path / ".0123.partial"
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half")
    context = multiprocessing.get_context("spawn")
    arguments = (tiny.gguf, tiny.digest, tmp_path)
    both = [context.Process(target=prepared_weights, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(200)
    assert [process.exitcode for process in both] == [0, 0]
    assert {path.name for path in tmp_path.iterdir()} == {".lock", tiny.digest.removeprefix("sha256:")}


def test_a_file_that_is_not_the_one_named_is_refused(tiny: Base, tmp_path: Path):
    found = tiny.digest.removeprefix("sha256:")
    with pytest.raises(JobError, match=f"has changed: its sha256 is {found}"):
        prepared_weights(tiny.gguf, "sha256:" + "0" * 64, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("digest", ["", "sha256:../../etc", "sha256:" + "0" * 63, "md5:" + "0" * 64])
def test_a_digest_that_is_none_is_refused(tmp_path: Path, digest: str):
    with pytest.raises(JobError, match="expected sha256: and 64 hexadecimal digits"):
        prepared_weights(tmp_path / "base.gguf", digest, tmp_path)


def test_a_missing_file_and_another_kind_of_file_are_refused(tmp_path: Path):
    other = tmp_path / "model.bin"
    other.write_bytes(b"PK\x03\x04 a pickle in a zip")
    with pytest.raises(JobError, match="is not a GGUF file"):
        prepared_weights(other, "sha256:" + "0" * 64, tmp_path / "cache")
    with pytest.raises(JobError, match="cannot read the base weights"):
        prepared_weights(tmp_path / "gone.gguf", "sha256:" + "0" * 64, tmp_path / "cache")


def test_a_directory_is_used_where_it_lies_if_it_is_safe(tiny_weights: Path, tmp_path: Path):
    assert prepared_weights(tiny_weights, "", tmp_path / "cache") == tiny_weights
    unsafe = tmp_path / "unsafe"
    unsafe.mkdir()
    with pytest.raises(JobError, match=r"no config\.json"):
        prepared_weights(unsafe, "", tmp_path / "cache")
    shutil.copy(tiny_weights / "config.json", unsafe)
    (unsafe / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(JobError, match="can run code and are refused"):
        prepared_weights(unsafe, "", tmp_path / "cache")
