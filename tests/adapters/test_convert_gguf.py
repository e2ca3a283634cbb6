"""PEFT ↔ GGUF: bit by bit there and back, and a reason for whatever doesn't fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from burnish.adapters.convert.gguf import read_lora, to_gguf
from burnish.adapters.convert.gguf_layout import BaseLayout, read_base
from burnish.adapters.convert.peft import Lora, PeftAdapter, read_peft, write_peft
from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter
from tests.support import tiny_gguf
from tests.support.lora import write_peft as write_plain
from tests.support.tiny_gguf import Shape, finish

Array = NDArray[np.float32]

SMALL = Shape("llama", heads=2, kv_heads=1, head_dim=4, hidden=6, ffn=5, blocks=1, vocabulary=16)
# Of what `write` makes of `lora()`: metadata and list of tensors. Damage behind them only gives other values.
HEAD_BYTES = 320
Q, NORM = "blk.0.attn_q.weight", "blk.0.attn_norm.weight"

# One with an output layer of its own, for adapters to be converted to GGUF.
OWN = Shape("llama", head_dim=4, hidden=6, ffn=5, vocabulary=16, tied=False)
K = "model.layers.0.self_attn.k_proj"
GATE = "model.layers.1.mlp.gate_proj"


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    architecture, kv_heads = draw(st.sampled_from(tiny_gguf.ARCHITECTURES)), draw(st.integers(1, 3))
    return Shape(
        architecture,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 4)),
        hidden=draw(st.integers(1, 9)),
        ffn=draw(st.integers(1, 9)),
        blocks=draw(st.integers(1, 3)),
        vocabulary=draw(st.integers(1, 9)),
        tied=architecture in ("gemma", "gemma2") or draw(st.booleans()),
    )


@st.composite
def adapters(draw: st.DrawFn) -> tuple[Shape, PeftAdapter]:
    """A base's shape, and an adapter on some of its modules, each with a rank of its own."""
    shape = draw(shapes())
    some = draw(st.lists(st.sampled_from(sorted(shape.modules)), min_size=1, unique=True))
    dice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = {}
    for module in some:
        rank, (out, width) = draw(st.integers(1, 4)), shape.modules[module]
        a, b = dice.normal(size=(rank, width)), dice.normal(size=(out, rank)) * 10.0 ** dice.integers(-42, 30)
        pairs[module] = Lora(a.astype(np.float32), b.astype(np.float32))
    alpha = draw(st.floats(-1e6, 1e6, width=32).filter(bool))
    return shape, PeftAdapter(alpha, pairs)


def assert_same(found: PeftAdapter, expected: PeftAdapter) -> None:
    """The same to the bit."""
    assert found.alpha == expected.alpha
    assert found.pairs.keys() == expected.pairs.keys()
    for module, pair in expected.pairs.items():
        for half in ("a", "b"):
            bits = getattr(found.pairs[module], half).view(np.uint32)
            np.testing.assert_array_equal(bits, getattr(pair, half).view(np.uint32), module)


@settings(max_examples=40)
@given(case=adapters())
def test_there_and_back_again_is_the_same_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[Shape, PeftAdapter]
) -> None:
    shape, adapter = case
    path = tmp_path_factory.mktemp("trip")
    base = read_base(tiny_gguf.blank(path / "base.gguf", shape))
    write_peft(adapter, path / "peft", "tiny")
    to_gguf(path / "peft", base, path / "lora.gguf")
    write_peft(read_lora(path / "lora.gguf", base), path / "back", "tiny")
    assert_same(read_peft(path / "back"), adapter)
    between = {tensor.name: tensor for tensor in gguf.GGUFReader(path / "lora.gguf").tensors}
    assert len(between) == 2 * len(adapter.pairs)
    for module, pair in adapter.pairs.items():
        b = pair.b
        if shape.architecture in tiny_gguf.INTERLEAVED and module.endswith(("q_proj", "k_proj")):
            b = tiny_gguf.interleaved(b, shape.heads if module.endswith("q_proj") else shape.kv_heads)
        name = tiny_gguf.gguf_name(module)
        np.testing.assert_array_equal(between[f"{name}.lora_a"].data, pair.a)
        np.testing.assert_array_equal(between[f"{name}.lora_b"].data, b)


@pytest.fixture
def base(tmp_path: Path) -> BaseLayout:
    return read_base(tiny_gguf.blank(tmp_path / "base.gguf", SMALL))


def lora(rank: int = 2, name: str = Q, fill: float = 1.0) -> dict[str, Array]:
    return {
        f"{name}.lora_a": np.full((rank, 6), fill, np.float32),
        f"{name}.lora_b": np.arange(8 * rank, dtype=np.float32).reshape(8, rank),
    }


def write(path: Path, tensors: dict[str, Array], *, alpha: float | None = 4.0, **keys: Any) -> Path:
    """A GGUF adapter as somebody else might have written it; ``keys`` replace metadata, "." written as "__"."""
    found = {"general__type": "adapter", "adapter__type": "lora"} | keys
    writer = gguf.GGUFWriter(path, str(found.pop("general__architecture", "llama")))
    for key, value in found.items():
        if isinstance(value, list):
            writer.add_key_value(
                key.replace("__", "."), value, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
            )
        else:
            writer.add_string(key.replace("__", "."), value)
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    finish(writer)
    return path


def back(path: Path, base: BaseLayout) -> PeftAdapter:
    target = path.with_suffix(".peft")
    write_peft(read_lora(path, base), target, "tiny")
    return read_peft(target)


@pytest.mark.parametrize("alpha", [None, 0.0])
def test_without_an_alpha_the_scale_is_one(alpha: float | None, base: BaseLayout, tmp_path: Path) -> None:
    assert back(write(tmp_path / "a.gguf", lora(rank=3), alpha=alpha), base).alpha == 3
    mixed = lora(rank=3) | lora(rank=2, name="blk.0.attn_output.weight")
    mixed["blk.0.attn_output.weight.lora_a"] = np.ones((2, 8), np.float32)
    mixed["blk.0.attn_output.weight.lora_b"] = np.ones((6, 2), np.float32)
    with pytest.raises(IncompatibleAdapter, match=r"no alpha, and modules of the ranks \[2, 3\]"):
        back(write(tmp_path / "b.gguf", mixed, alpha=alpha), base)


def test_halves_and_quantised_values_become_what_they_stand_for(base: BaseLayout, tmp_path: Path) -> None:
    exact = lora(fill=0.375)
    path = tmp_path / "half.gguf"
    adapter = back(write(path, {name: array.astype(np.float16) for name, array in exact.items()}), base)
    np.testing.assert_array_equal(adapter.pairs["model.layers.0.self_attn.q_proj"].a, exact[f"{Q}.lora_a"])
    wide = read_base(tiny_gguf.blank(tmp_path / "wide.gguf", Shape("qwen3", heads=1, kv_heads=1, hidden=32)))
    dice = np.random.default_rng(0)
    raw = gguf.quants.quantize(dice.normal(size=(2, 32)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "q8.gguf", "qwen3")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_tensor(f"{Q}.lora_a", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor(f"{Q}.lora_b", np.ones((32, 2), np.float32))
    finish(writer)
    [pair] = back(tmp_path / "q8.gguf", wide).pairs.values()
    np.testing.assert_array_equal(pair.a, gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q8_0))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"general__type": "model"}, "general.type='model'"),
        ({"general__architecture": "controlvector", "general__type": "controlvector"}, "controlvector"),
        ({"adapter__type": "dora"}, "adapter.type='dora'"),
        ({"general__architecture": "qwen3"}, "general.architecture='qwen3'; expected 'llama'"),
        ({"adapter__alora__invocation_tokens": [1, 2]}, "alora.invocation_tokens"),
        ({"adapter__lora__prompt_prefix": "Answer:"}, "prompt_prefix"),
    ],
)
def test_what_peft_lacks_is_refused(
    keys: dict[str, Any], reason: str, base: BaseLayout, tmp_path: Path
) -> None:
    with pytest.raises(IncompatibleAdapter, match=reason):
        back(write(tmp_path / "a.gguf", lora(), **keys), base)
    assert {path.name for path in tmp_path.iterdir()} == {"a.gguf", "base.gguf"}


@pytest.mark.parametrize(
    ("tensors", "error", "reason"),
    [
        ({NORM: np.ones(6, np.float32)}, IncompatibleAdapter, "isn't part of a plain LoRA"),
        ({f"{NORM}.lora_a": np.ones((1, 6), np.float32)}, IncompatibleAdapter, "isn't a linear layer of"),
        (lora(name="blk.7.attn_q.weight"), IncompatibleAdapter, "isn't a linear layer of the base"),
        (lora(name="output.weight"), IncompatibleAdapter, "isn't a linear layer of the base"),
        (lora(name="token_embd.weight"), IncompatibleAdapter, "a trained embedding"),
        ({f"{Q}.lora_a": np.ones((2, 7), np.float32)}, IncompatibleAdapter, r"shape \(8, 7\)"),
        ({f"{Q}.lora_a": np.ones((3, 6), np.float32)}, CorruptAdapter, "expected one rank in both"),
        ({"blk.0.attn_k.weight.lora_b": np.ones((4, 2), np.float32)}, CorruptAdapter, "has only lora_b"),
        (lora(fill=np.nan), CorruptAdapter, "NaN or infinite"),
        (lora(fill=np.inf), CorruptAdapter, "NaN or infinite"),
    ],
)
def test_no_tensor_is_dropped_silently(
    tensors: dict[str, Array], error: type[Exception], reason: str, base: BaseLayout, tmp_path: Path
) -> None:
    with pytest.raises(error, match=reason):
        back(write(tmp_path / "a.gguf", lora() | tensors), base)


def test_an_adapter_of_nothing_and_an_alpha_of_nan_are_corrupt(base: BaseLayout, tmp_path: Path) -> None:
    with pytest.raises(CorruptAdapter, match="has no tensors"):
        back(write(tmp_path / "a.gguf", {}), base)
    with pytest.raises(CorruptAdapter, match="alpha=nan"):
        back(write(tmp_path / "a.gguf", lora(), alpha=float("nan")), base)


def test_a_torn_file_is_corrupt_wherever_it_was_torn(base: BaseLayout, tmp_path: Path) -> None:
    path = write(tmp_path / "whole.gguf", lora(rank=4))
    whole, expected = path.read_bytes(), back(path, base)
    torn = tmp_path / "torn.gguf"
    for size in range(len(whole)):
        torn.write_bytes(whole[:size])
        with pytest.raises(CorruptAdapter):
            back(torn, base)
    torn.write_bytes(whole)
    assert_same(back(torn, base), expected)


@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_but_never_worse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged")
    base = read_base(tiny_gguf.blank(path / "base.gguf", SMALL))
    damaged = write(path / "a.gguf", lora())
    content = bytearray(damaged.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, HEAD_BYTES))] ^= 1 << data.draw(st.integers(0, 7))
    damaged.write_bytes(content)
    try:
        back(damaged, base)
    except (CorruptAdapter, IncompatibleAdapter):
        assert {each.name for each in path.iterdir()} == {"a.gguf", "base.gguf"}


def test_a_torn_base_is_unreadable_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = tiny_gguf.blank(tmp_path / "base.gguf", SMALL).read_bytes()
    torn = tmp_path / "torn.gguf"
    for size in range(0, len(whole), 17):
        torn.write_bytes(whole[:size])
        with pytest.raises(EngineError, match="cannot read the model"):
            read_base(torn)


# To GGUF.


@pytest.fixture
def own(tmp_path: Path) -> BaseLayout:
    return read_base(tiny_gguf.blank(tmp_path / "own.gguf", OWN))


def tiny_peft(path: Path, *modules: str, **config: Any) -> Path:
    """A LoRA of rank 2 on some modules of a tiny model; "part.of.name=module" is called so in its file."""
    tensors = {}
    for each in modules:
        called, _, module = each.rpartition("=")
        out, width = OWN.modules[module]
        name = f"base_model.model.{called or module}"
        tensors[f"{name}.lora_A.weight"] = np.full((2, width), 0.5, np.float32)
        tensors[f"{name}.lora_B.weight"] = np.arange(out * 2, dtype=np.float32).reshape(out, 2)
    return write_plain(path, tensors, rank=2, **config)


def test_a_base_of_another_architecture_or_without_its_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    finish(writer)
    with pytest.raises(IncompatibleAdapter, match="'mamba'"):
        read_base(path)
    for keys in ({}, {"llama.attention.head_count": [4, 2]}):
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in keys.items():
            writer.add_array(key, value)
        finish(writer)
        with pytest.raises(EngineError, match=r"head_count is (None|\[4, 2\]), expected a number"):
            read_base(path)
    path.write_bytes(b"not a GGUF at all")
    with pytest.raises(EngineError, match="cannot read"):
        read_base(path)


@pytest.mark.parametrize("alpha", [0, 1e-60, 1e300])
def test_an_alpha_that_gguf_takes_for_none_is_refused(alpha: float, own: BaseLayout, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleAdapter, match="can't be stored in GGUF"):
        to_gguf(tiny_peft(tmp_path / "peft", K, lora_alpha=alpha), own, tmp_path / "out.gguf")


@pytest.mark.parametrize(
    "part",
    [
        "model.language_model.layers",
        "language_model.model.layers",
        "language_model.layers",
        "model.language_model.model.layers",
    ],
)
def test_the_text_part_of_a_model_has_the_same_layers(part: str, own: BaseLayout, tmp_path: Path) -> None:
    called = K.replace("model.layers", part)
    to_gguf(tiny_peft(tmp_path / "plain", K, GATE), own, tmp_path / "plain.gguf")
    to_gguf(tiny_peft(tmp_path / "seeing", f"{called}={K}", GATE), own, tmp_path / "seeing.gguf")
    assert (tmp_path / "seeing.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()
    twice = tiny_peft(tmp_path / "twice", K, f"{called}={K}")
    with pytest.raises(IncompatibleAdapter, match=r"two modules that are both blk\.0\.attn_k\.weight"):
        to_gguf(twice, own, tmp_path / "twice.gguf")
    eye = tiny_peft(tmp_path / "eye", f"model.vision_tower.encoder.layers.0.self_attn.k_proj={K}")
    with pytest.raises(IncompatibleAdapter, match=r"no tensor for model\.vision_tower"):
        to_gguf(eye, own, tmp_path / "eye.gguf")


def test_an_output_that_is_the_embedding_cannot_be_adapted_alone(own: BaseLayout, tmp_path: Path) -> None:
    tied = tiny_gguf.blank(tmp_path / "tied.gguf", replace(OWN, tied=True))
    adapter = tiny_peft(tmp_path / "peft", "lm_head")
    with pytest.raises(IncompatibleAdapter, match="no tensor for lm_head; its output layer is the embedding"):
        to_gguf(adapter, read_base(tied), tmp_path / "out.gguf")
    to_gguf(adapter, own, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").stat().st_mode & 0o777 == 0o600
    found = {tensor.name for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    assert found == {"output.weight.lora_a", "output.weight.lora_b"}
    other = tiny_gguf.blank(tmp_path / "other.gguf", replace(OWN, vocabulary=17))
    with pytest.raises(IncompatibleAdapter, match=r"shape \(16, 6\), but the base has \(17, 6\)"):
        to_gguf(adapter, read_base(other), tmp_path / "none.gguf")


def test_a_base_with_fused_weights_is_refused_with_the_reason(tmp_path: Path) -> None:
    fused = {"blk.0.attn_qkv.weight": np.zeros((32, 6), np.float32)}
    path = tiny_gguf.write(tmp_path / "fused.gguf", OWN, fused)
    with pytest.raises(IncompatibleAdapter, match="q, k and v fused"):
        to_gguf(tiny_peft(tmp_path / "peft", K), read_base(path), tmp_path / "out.gguf")


def test_rows_that_are_no_whole_heads_are_a_damaged_base(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "base.gguf", OWN, {Q: np.zeros((12, 6), np.float32)})
    with pytest.raises(EngineError, match="12 rows, which don't make 4 heads"):
        read_base(path)
