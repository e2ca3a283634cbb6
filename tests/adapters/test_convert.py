from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import BaseLayout, read_base
from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter
from burnish.adapters.hosts.fetch import ensure_small_model
from tests.support import tiny_gguf
from tests.support.lora import random_lora, write_peft
from tests.support.tiny_gguf import Shape, interleaved

Q = "base_model.model.model.layers.3.self_attn.q_proj"
DOWN = "base_model.model.model.layers.3.mlp.down_proj"


@pytest.fixture(scope="module")
def base() -> BaseLayout:
    return read_base(ensure_small_model())


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def test_every_tensor_arrives_as_computed_by_hand(base: BaseLayout, tmp_path: Path) -> None:
    tensors = random_lora(0)
    to_gguf(write_peft(tmp_path / "peft", tensors), base, tmp_path / "out.gguf")
    fields, found = read(tmp_path / "out.gguf")
    assert fields["general.type"] == "adapter"
    assert fields["adapter.type"] == "lora"
    assert fields["general.architecture"] == "llama"
    assert fields["adapter.lora.alpha"] == 4.0
    names = {
        "self_attn.q_proj": ("attn_q", 9), "self_attn.k_proj": ("attn_k", 3), "self_attn.v_proj": ("attn_v", 0),
        "self_attn.o_proj": ("attn_output", 0), "mlp.gate_proj": ("ffn_gate", 0), "mlp.up_proj": ("ffn_up", 0),
        "mlp.down_proj": ("ffn_down", 0),
    }  # fmt: skip
    assert len(found) == len(tensors)
    for block in range(30):
        for module, (name, heads) in names.items():
            peft = f"base_model.model.model.layers.{block}.{module}"
            b = tensors[f"{peft}.lora_B.weight"]
            np.testing.assert_array_equal(
                found[f"blk.{block}.{name}.weight.lora_a"], tensors[f"{peft}.lora_A.weight"]
            )
            np.testing.assert_array_equal(
                found[f"blk.{block}.{name}.weight.lora_b"], interleaved(b, heads) if heads else b
            )


def test_rslora_scales_by_the_root_of_the_rank(base: BaseLayout, tmp_path: Path) -> None:
    to_gguf(write_peft(tmp_path / "peft", random_lora(0), use_rslora=True), base, tmp_path / "out.gguf")
    assert read(tmp_path / "out.gguf")[0]["adapter.lora.alpha"] == 4 * 4**0.5


def test_the_file_is_private_and_no_scrap_is_left(base: BaseLayout, tmp_path: Path) -> None:
    target = tmp_path / "state" / "out.gguf"
    target.parent.mkdir()
    to_gguf(write_peft(tmp_path / "peft", random_lora(0)), base, target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    "config",
    [
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"bias": "all"},
        {"alpha_pattern": {"q_proj": 8}},
        {"init_lora_weights": "pissa"},
        {"lora_bias": True},
        {"peft_type": "IA3"},
    ],
)
def test_what_llama_cpp_cannot_express_is_refused(
    config: dict[str, Any], base: BaseLayout, tmp_path: Path
) -> None:
    with pytest.raises(IncompatibleAdapter, match=next(iter(config)) if "peft_type" not in config else "IA3"):
        to_gguf(write_peft(tmp_path / "peft", random_lora(0), **config), base, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_no_tensor_is_dropped_silently(base: BaseLayout, tmp_path: Path) -> None:
    for name in (
        "base_model.model.lm_head.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        f"{Q}.lora_magnitude_vector",
        "base_model.model.model.layers.99.self_attn.q_proj.lora_A.weight",
    ):
        tensors = random_lora(0) | {name: np.ones((4, 576), np.float32)}
        if name.endswith("lora_A.weight"):
            tensors[name.replace("lora_A", "lora_B")] = np.ones((576, 4), np.float32)
        with pytest.raises(IncompatibleAdapter):
            to_gguf(write_peft(tmp_path / "peft", tensors), base, tmp_path / "out.gguf")


def test_an_adapter_of_another_model_is_refused(base: BaseLayout, tmp_path: Path) -> None:
    tensors = random_lora(0) | {f"{DOWN}.lora_A.weight": np.ones((4, 1537), np.float32)}
    with pytest.raises(IncompatibleAdapter, match=r"shape \(576, 1537\), but the base has \(576, 1536\)"):
        to_gguf(write_peft(tmp_path / "peft", tensors), base, tmp_path / "out.gguf")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_never_goes_live(value: float, base: BaseLayout, tmp_path: Path) -> None:
    tensors = random_lora(0)
    tensors[f"{Q}.lora_B.weight"][5, 2] = value
    with pytest.raises(CorruptAdapter, match="NaN or infinite"):
        to_gguf(write_peft(tmp_path / "peft", tensors), base, tmp_path / "out.gguf")


def test_torn_and_lopsided_adapters_are_corrupt(base: BaseLayout, tmp_path: Path) -> None:
    half = random_lora(0)
    del half[f"{Q}.lora_B.weight"]
    wrong_rank = random_lora(0) | {f"{Q}.lora_A.weight": np.ones((3, 576), np.float32)}
    for tensors in (half, wrong_rank, {}):
        with pytest.raises(CorruptAdapter):
            to_gguf(write_peft(tmp_path / "peft", tensors), base, tmp_path / "out.gguf")
    path = write_peft(tmp_path / "peft", random_lora(0)) / "adapter_model.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptAdapter, match="missing or damaged"):
            to_gguf(path.parent, base, tmp_path / "out.gguf")
    path.write_bytes(whole)
    for config in ("", "[]", "{}", '{"r": 0, "lora_alpha": 1}', '{"r": 4, "lora_alpha": NaN}'):
        (path.parent / "adapter_config.json").write_text(config)
        with pytest.raises(CorruptAdapter):
            to_gguf(path.parent, base, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_half_precision_is_widened_exactly(base: BaseLayout, tmp_path: Path) -> None:
    a = (np.arange(4 * 1536, dtype=np.uint32) % 97 + 0x3F80).astype("<u2").reshape(4, 1536)  # bfloat16 bits
    b = np.linspace(-1, 1, 576 * 4).astype("<f2").reshape(576, 4)
    header = {
        f"{DOWN}.lora_A.weight": {"dtype": "BF16", "shape": [4, 1536], "data_offsets": [0, a.nbytes]},
        f"{DOWN}.lora_B.weight": {
            "dtype": "F16",
            "shape": [576, 4],
            "data_offsets": [a.nbytes, a.nbytes + b.nbytes],
        },
    }
    head = json.dumps(header).encode()
    folder = write_peft(tmp_path / "peft", random_lora(0))
    content = len(head).to_bytes(8, "little") + head + a.tobytes() + b.tobytes()
    (folder / "adapter_model.safetensors").write_bytes(content)
    to_gguf(folder, base, tmp_path / "out.gguf")
    found = read(tmp_path / "out.gguf")[1]
    bits = found["blk.3.ffn_down.weight.lora_a"].view(np.uint32)
    np.testing.assert_array_equal(bits >> 16, a)
    assert not (bits & 0xFFFF).any()
    np.testing.assert_array_equal(found["blk.3.ffn_down.weight.lora_b"], b.astype(np.float32))


def test_a_base_of_another_architecture_or_without_its_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(IncompatibleAdapter, match="'mamba'"):
        read_base(path)
    for keys in ({}, {"llama.attention.head_count": [4, 2]}):
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in keys.items():
            writer.add_array(key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(EngineError, match=r"head_count is (None|\[4, 2\]), expected a number"):
            read_base(path)
    path.write_bytes(b"not a GGUF at all")
    with pytest.raises(EngineError, match="cannot read"):
        read_base(path)


def tiny_peft(path: Path, shape: Shape, *modules: str, **config: Any) -> Path:
    """A LoRA of rank 2 on some modules of a tiny model; "part.of.name=module" is called so in its file."""
    tensors = {}
    for each in modules:
        called, _, module = each.rpartition("=")
        out, width = shape.modules[module]
        name = f"base_model.model.{called or module}"
        tensors[f"{name}.lora_A.weight"] = np.full((2, width), 0.5, np.float32)
        tensors[f"{name}.lora_B.weight"] = np.arange(out * 2, dtype=np.float32).reshape(out, 2)
    return write_peft(path, tensors, rank=2, **config)


K = "model.layers.0.self_attn.k_proj"
GATE = "model.layers.1.mlp.gate_proj"
TINY = Shape("llama", head_dim=4, hidden=6, ffn=5, vocabulary=16, tied=False)


@pytest.mark.parametrize("alpha", [0, 1e-60, 1e300])
def test_an_alpha_that_gguf_would_take_for_none_is_refused(alpha: float, tmp_path: Path) -> None:
    base = read_base(tiny_gguf.blank(tmp_path / "base.gguf", TINY))
    with pytest.raises(IncompatibleAdapter, match="can't be stored in GGUF"):
        to_gguf(tiny_peft(tmp_path / "peft", TINY, K, lora_alpha=alpha), base, tmp_path / "out.gguf")


@pytest.mark.parametrize("part", ["model.language_model.layers", "language_model.model.layers"])
def test_the_text_part_of_a_model_that_sees_has_the_same_layers(part: str, tmp_path: Path) -> None:
    base = read_base(tiny_gguf.blank(tmp_path / "base.gguf", TINY))
    called = K.replace("model.layers", part)
    to_gguf(tiny_peft(tmp_path / "plain", TINY, K, GATE), base, tmp_path / "plain.gguf")
    to_gguf(tiny_peft(tmp_path / "seeing", TINY, f"{called}={K}", GATE), base, tmp_path / "seeing.gguf")
    assert (tmp_path / "seeing.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()
    twice = tiny_peft(tmp_path / "twice", TINY, K, f"{called}={K}")
    with pytest.raises(IncompatibleAdapter, match=r"two modules that are blk\.0\.attn_k\.weight"):
        to_gguf(twice, base, tmp_path / "twice.gguf")
    eye = tiny_peft(tmp_path / "eye", TINY, f"model.vision_tower.encoder.layers.0.self_attn.k_proj={K}")
    with pytest.raises(IncompatibleAdapter, match=r"no tensor for model\.vision_tower"):
        to_gguf(eye, base, tmp_path / "eye.gguf")


def test_an_output_that_is_the_embedding_cannot_be_adapted_alone(tmp_path: Path) -> None:
    tied = tiny_gguf.blank(tmp_path / "tied.gguf", replace(TINY, tied=True))
    adapter = tiny_peft(tmp_path / "peft", TINY, "lm_head")
    with pytest.raises(IncompatibleAdapter, match="no tensor for lm_head; its output layer is the embedding"):
        to_gguf(adapter, read_base(tied), tmp_path / "out.gguf")
    own = tiny_gguf.blank(tmp_path / "own.gguf", TINY)
    to_gguf(adapter, read_base(own), tmp_path / "out.gguf")
    assert set(read(tmp_path / "out.gguf")[1]) == {"output.weight.lora_a", "output.weight.lora_b"}
    other = tiny_gguf.blank(tmp_path / "other.gguf", replace(TINY, vocabulary=17))
    with pytest.raises(IncompatibleAdapter, match=r"shape \(16, 6\), but the base has \(17, 6\)"):
        to_gguf(adapter, read_base(other), tmp_path / "none.gguf")


def test_a_base_with_fused_weights_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tiny_gguf.write(
        tmp_path / "fused.gguf", TINY, {"blk.0.attn_qkv.weight": np.zeros((32, 6), np.float32)}
    )
    with pytest.raises(IncompatibleAdapter, match="q, k and v fused"):
        to_gguf(tiny_peft(tmp_path / "peft", TINY, K), read_base(path), tmp_path / "out.gguf")
    with pytest.raises(IncompatibleAdapter, match="'phi3'"):
        read_base(tiny_gguf.blank(tmp_path / "phi.gguf", replace(TINY, architecture="phi3")))


def test_rows_that_are_no_whole_heads_are_a_damaged_base(tmp_path: Path) -> None:
    path = tiny_gguf.write(
        tmp_path / "base.gguf", TINY, {"blk.0.attn_q.weight": np.zeros((12, 6), np.float32)}
    )
    with pytest.raises(EngineError, match="12 rows, which are no 4 heads"):
        read_base(path)


def test_a_full_disk_leaves_nothing(base: BaseLayout, tmp_path: Path) -> None:
    adapter, state = write_peft(tmp_path / "peft", random_lora(0)), tmp_path / "state"
    state.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="written"):
            to_gguf(adapter, base, state / "out.gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(state.iterdir()) == []
