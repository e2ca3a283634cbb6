"""Merged weights: the base plus the adapter's change, nothing else; an error if rounding eats the change."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.convert.merge import merge, merge_rounded, write_merged
from burnish.adapters.convert.room import CHUNK_NUMBERS
from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter, LostInRounding
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.merging import Merged, ensure_merged
from tests.adapters.engines import full_disk
from tests.support import tiny_gguf
from tests.support.lora import DIGEST, random_lora, version_of, write_peft
from tests.support.tiny_gguf import TINY, Array, Shape, finish, tiny_lora

LIMIT_S = 60
ALPHA, RANK = 6.0, 3
TOKEN_EMBEDDING = "token_embd.weight"


def numbers(path: Path) -> dict[str, Array]:
    """The values of all tensors, dequantised."""
    return {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }


def types(path: Path) -> dict[str, Type]:
    return {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def half_written(folder: Path) -> Path | None:
    """The file that a merge is writing."""
    return next((path for path in folder.glob(".merged.gguf.*.tmp") if path.stat().st_size), None)


def model(path: Path, kind: Type, shape: Shape = TINY) -> Path:
    """A random base whose matrices are of one type; its norms are float32, as always."""
    dice = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_block_count(shape.blocks)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_array("tokenizer.ggml.tokens", [f"token {place}" for place in range(2000)])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    sizes = {tiny_gguf.gguf_name(module): size for module, size in shape.modules.items()}
    for name, size in {TOKEN_EMBEDDING: (shape.vocabulary, shape.hidden), **sizes}.items():
        packed = gguf.quants.quantize(dice.normal(0, 0.1, size).astype(np.float32), kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    finish(writer)
    return path


def adapter(path: Path, shape: Shape = TINY, strength: float = 0.002) -> Path:
    return write_peft(path, tiny_lora(shape, 3, RANK, strength), RANK, lora_alpha=ALPHA)


def changes(shape: Shape, strength: float) -> dict[str, Array]:
    """What the adapter adds to each tensor, computed by other means than the product."""
    found = {}
    pairs = tiny_lora(shape, 3, RANK, strength)
    for module in shape.modules:
        a, b = (pairs[f"base_model.model.{module}.lora_{half}.weight"] for half in "AB")
        delta = ALPHA / RANK * np.einsum("or,ri->oi", b.astype(np.float64), a.astype(np.float64))
        if shape.architecture in tiny_gguf.INTERLEAVED and module.endswith(("q_proj", "k_proj")):
            heads = shape.heads if module.endswith("q_proj") else shape.kv_heads
            delta = tiny_gguf.interleaved(delta, heads)
        found[tiny_gguf.gguf_name(module)] = delta
    return found


def test_without_changes_the_file_is_the_base_byte_for_byte(tmp_path: Path) -> None:
    for base in (ensure_small_model(), model(tmp_path / "base.gguf", Type.Q5_0)):
        merged = write_merged({}, read_base(base), tmp_path / "same.gguf", "q8_0")
        assert (tmp_path / "same.gguf").read_bytes() == base.read_bytes()
        assert merged == Merged(kept=1, noise=0, size_bytes=base.stat().st_size, precision="")


SHAPES = {architecture: Shape(architecture) for architecture in tiny_gguf.ARCHITECTURES}
SHAPES["more rows than are held at once"] = Shape("llama", ffn=CHUNK_NUMBERS // 64 + 32, blocks=1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_change_is_added_to_its_own_rows(shape: Shape, tmp_path: Path) -> None:
    base, target = model(tmp_path / "base.gguf", Type.F32, shape), tmp_path / "merged.gguf"
    merged = merge(adapter(tmp_path / "lora", shape), base, target, "q8_0")
    before, after = numbers(base), numbers(target)
    expected = changes(shape, 0.002)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values + expected.get(name, 0), atol=1e-7, err_msg=name)
    assert merged.precision == ""
    assert (round(merged.kept, 3), round(merged.noise, 3)) == (1, 0)
    assert merged.size_bytes == target.stat().st_size == base.stat().st_size


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1], ids=lambda kind: kind.name)
def test_changed_tensors_become_q8_0_and_the_others_stay(kind: Type, tmp_path: Path) -> None:
    base, target = model(tmp_path / "base.gguf", kind), tmp_path / "merged.gguf"
    merged = merge(adapter(tmp_path / "lora"), base, target, "q8_0")
    old, new = gguf.GGUFReader(base), gguf.GGUFReader(target)
    assert new.get_field("general.file_type").contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    assert list(new.fields) == list(old.fields)
    for name in ("tokenizer.ggml.tokens", "llama.block_count"):
        assert new.get_field(name).contents() == old.get_field(name).contents()
    wanted, kept = changes(TINY, 0.002), 0.0
    values, values_before = numbers(target), numbers(base)
    for before, after in zip(old.tensors, new.tensors, strict=True):
        assert before.name == after.name
        if before.name in wanted:
            assert after.tensor_type == Type.Q8_0
            change = values[before.name] - values_before[before.name]
            kept += float((change * wanted[before.name]).sum())
        else:
            assert (after.tensor_type, after.data.tobytes()) == (before.tensor_type, before.data.tobytes())
    kept /= sum(float((delta**2).sum()) for delta in wanted.values())
    assert merged.precision == "q8_0"
    assert merged.kept == pytest.approx(kept, abs=0.001)
    assert merged.kept > 0.97


@pytest.mark.parametrize("kind", [Type.F16, Type.Q8_0, Type.BF16], ids=lambda kind: kind.name.lower())
def test_fine_bases_are_stored_in_a_type_that_their_own_grid_cannot_spoil(kind: Type, tmp_path: Path) -> None:
    base, target = model(tmp_path / "base.gguf", kind), tmp_path / "merged.gguf"
    merged = merge(adapter(tmp_path / "lora", strength=0.0005), base, target, "q8_0")
    assert merged.precision == ("" if kind == Type.F16 else "f16")
    assert merged.kept > 0.97
    found = types(target)
    assert (found[TOKEN_EMBEDDING], found["blk.1.ffn_up.weight"]) == (kind, Type.F16)


def test_a_change_that_q8_0_would_lose_is_stored_in_f16(tmp_path: Path) -> None:
    faint = adapter(tmp_path / "faint", strength=0.0001)
    base, target = model(tmp_path / "base.gguf", Type.Q4_1), tmp_path / "merged.gguf"
    with pytest.raises(LostInRounding, match=r"rounded to q8_0, the merged weights keep .* rounding errors"):
        merge(faint, base, target, "q8_0")
    assert not target.exists()
    merged = merge_rounded(faint, base, target)
    assert (merged.precision, types(target)["blk.0.attn_q.weight"]) == ("f16", Type.F16)
    assert gguf.GGUFReader(target).get_field("general.file_type").contents() == gguf.LlamaFileType.MOSTLY_F16
    assert merged.kept > 0.95


def test_an_adapter_in_gguf_is_merged_like_the_one_that_it_was_made_of(tiny: Path, tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora")
    merge(lora, tiny, tmp_path / "merged.gguf", "q8_0")
    to_gguf(lora, read_base(tiny), tmp_path / "lora.gguf")
    merge(tmp_path / "lora.gguf", tiny, tmp_path / "from_gguf.gguf", "q8_0")
    assert (tmp_path / "from_gguf.gguf").read_bytes() == (tmp_path / "merged.gguf").read_bytes()


def unreadable(folder: Path) -> tuple[Path, Path]:
    """A base in a type that gguf can name but not read, Q8_K."""
    base = model(folder / "base.gguf", Type.F32, Shape("llama", hidden=256, head_dim=64, ffn=256))
    content = base.read_bytes()
    for tensor in gguf.GGUFReader(base).tensors:
        if tensor.name == "blk.0.attn_q.weight":
            place = tensor.field.offset + sum(int(part.nbytes) for part in tensor.field.parts[:-2])
    base.write_bytes(content[:place] + int(Type.Q8_K).to_bytes(4, "little") + content[place + 4 :])
    return adapter(folder / "lora", Shape("llama", hidden=256, head_dim=64, ffn=256)), base


def sized(folder: Path) -> tuple[Path, Path]:
    """An adapter of 4 TB, nearly all of it a hole."""
    lora = adapter(folder / "lora")
    os.truncate(lora / "adapter_model.safetensors", 4 * 10**12)
    return lora, model(folder / "base.gguf", Type.Q4_1)


def narrow(folder: Path) -> tuple[Path, Path]:
    return adapter(folder / "lora", Shape("llama", hidden=32)), model(folder / "base.gguf", Type.Q4_1)


def idle(folder: Path) -> tuple[Path, Path]:
    return adapter(folder / "lora", strength=0), model(folder / "base.gguf", Type.Q4_1)


def missing(folder: Path) -> tuple[Path, Path]:
    return folder / "none", model(folder / "base.gguf", Type.Q4_1)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (narrow, IncompatibleAdapter, "the adapter is for another model"),
        (missing, CorruptAdapter, "none is missing or damaged"),
        (idle, IncompatibleAdapter, "changes no weight; serve the base model instead"),
        (unreadable, IncompatibleAdapter, "as Q8_K, which the installed gguf can't read"),
        (sized, EngineError, "merging takes 12,000,268 MB of memory, and "),
    ],
)
def test_a_merge_that_cannot_be_done_says_why_and_leaves_nothing(
    make: Callable[[Path], tuple[Path, Path]], error: type[Exception], words: str, tmp_path: Path
) -> None:
    lora, base = make(tmp_path)
    (target := tmp_path / "target").mkdir()
    with pytest.raises(error, match=words):
        merge_rounded(lora, base, target / "merged.gguf")
    assert not list(target.iterdir())


def test_a_small_disk_is_noticed_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, lora = model(tmp_path / "base.gguf", Type.Q4_1), adapter(tmp_path / "lora")
    full = shutil.disk_usage(tmp_path)._replace(free=50 * 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(EngineError, match=rf"takes 0 MB, and 50 MB are free in {tmp_path}; make room there"):
        merge(lora, base, tmp_path / "merged.gguf", "q8_0")
    monkeypatch.undo()
    with pytest.raises(EngineError, match=r"cannot write into .*/none: No such file"):
        merge(lora, base, tmp_path / "none" / "merged.gguf", "q8_0")


async def test_a_version_is_merged_once_in_a_child(tmp_path: Path) -> None:
    base, target = model(tmp_path / "base.gguf", Type.Q4_1), tmp_path / "merged.gguf"
    version = version_of(adapter(tmp_path / "lora"), 7, DIGEST)
    merged = await ensure_merged(version, base, target)
    here = merge_rounded(version.path, base, tmp_path / "here.gguf")
    assert merged
    assert (merged.precision, merged.size_bytes) == (here.precision, here.size_bytes)
    assert (merged.kept, merged.noise) == pytest.approx((here.kept, here.noise), rel=1e-5)
    assert target.read_bytes() == (tmp_path / "here.gguf").read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    assert await ensure_merged(version, base, target) is None


async def test_errors_of_the_child_keep_their_class_and_name_the_version(tmp_path: Path) -> None:
    version = version_of(adapter(tmp_path / "lora"), 7, DIGEST)
    with pytest.raises(EngineError, match=r"smollm2@v7 can't be merged: cannot read the model"):
        await ensure_merged(version, tmp_path / "none.gguf", tmp_path / "merged.gguf")
    base = model(tmp_path / "base.gguf", Type.Q4_1)
    too_large = r"cannot write .*merged.gguf: File too large; make room there"
    with full_disk(100_000), pytest.raises(EngineError, match=too_large):
        await ensure_merged(version, base, tmp_path / "merged.gguf")
    assert names(tmp_path) == {"lora", "base.gguf"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A merge that takes a second or two: of the small model."""
    lora = write_peft(tmp_path_factory.mktemp("slow") / "lora", random_lora(1), lora_alpha=4)
    return {"adapter": lora, "base": ensure_small_model()}


async def merging_child(folder: Path) -> int:
    """Wait for a merge to write its file, and return the process ID of its child."""
    async with asyncio.timeout(LIMIT_S):
        while not (path := half_written(folder)):
            await asyncio.sleep(0.005)
    return int(path.name.split(".")[-2])


async def test_a_cancelled_merge_leaves_nothing(slow: dict[str, Path], tmp_path: Path) -> None:
    version = version_of(slow["adapter"], 7, DIGEST)
    async with asyncio.TaskGroup() as tasks:
        merging = tasks.create_task(ensure_merged(version, slow["base"], tmp_path / "merged.gguf"))
        child = await merging_child(tmp_path)
        merging.cancel()
    assert not names(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


async def test_a_killed_child_is_an_error_and_leaves_no_file(slow: dict[str, Path], tmp_path: Path) -> None:
    version = version_of(slow["adapter"], 7, DIGEST)

    async def kill() -> None:
        os.kill(await merging_child(tmp_path), signal.SIGKILL)

    with pytest.raises(EngineError, match=r"into .* ended \(killed, most likely because memory ran out"):
        await asyncio.gather(ensure_merged(version, slow["base"], tmp_path / "merged.gguf"), kill())
    assert not names(tmp_path)


async def test_the_child_stops_when_burnish_ends(slow: dict[str, Path], tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "burnish.adapters.merge_child"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin
    paths = [str(slow["adapter"]), str(slow["base"]), str(tmp_path / "merged.gguf")]
    child.stdin.write(json.dumps(paths).encode() + b"\n")
    await merging_child(tmp_path)
    child.stdin.close()
    printed, _ = await child.communicate()
    assert (child.returncode, printed) == (1, b"")
    assert not names(tmp_path)
