"""PEFT ↔ MLX: bit by bit there and back, and a reason for whatever does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from burnish.adapters.convert.mlx import BASE_CONFIG, MlxBase, from_mlx, read_base, rope_misread, to_mlx
from burnish.adapters.convert.peft import Lora, PeftAdapter, read_peft, write_peft
from burnish.adapters.errors import CorruptAdapter, EngineError, IncompatibleAdapter
from tests.support.lora import write_peft as write_plain
from tests.support.tiny_gguf import TINY, tiny_lora

Q = "base_model.model.model.layers.1.self_attn.q_proj"
BASE = MlxBase(Path("base"), dict(TINY.modules), {})


@st.composite
def loras(draw: st.DrawFn) -> PeftAdapter:
    """Any numbers, on any of a few modules, of one rank."""
    rank = draw(st.integers(1, 5))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    names = st.sampled_from(["model.layers.0.q", "model.layers.11.mlp.up", "lm_head"])
    pairs = {}
    for module in sorted(draw(st.sets(names, min_size=1))):
        out, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        a = draw(arrays(np.float32, (rank, width), elements=numbers))
        pairs[module] = Lora(a, draw(arrays(np.float32, (out, rank), elements=numbers)))
    return PeftAdapter(float(draw(st.integers(1, 512))), pairs)


@given(adapter=loras())
def test_there_and_back_is_the_same(adapter: PeftAdapter, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("round")
    shapes: dict[str, tuple[int, ...]]
    shapes = {module: (len(lora.b), lora.a.shape[1]) for module, lora in adapter.pairs.items()}
    write_peft(adapter, folder / "peft", "base")
    to_mlx(folder / "peft", MlxBase(Path("base"), shapes, {}), folder / "mlx")
    back = from_mlx(folder / "mlx")
    write_peft(back, folder / "again", "base")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (folder / "again" / name).read_bytes() == (folder / "peft" / name).read_bytes()
    assert back.alpha == adapter.alpha
    assert read_peft(folder / "again").pairs.keys() == adapter.pairs.keys()
    to_mlx(folder / "again", MlxBase(Path("base"), shapes, {}), folder / "mlx again")
    for name in ("adapter_config.json", "adapters.safetensors"):
        assert (folder / "mlx again" / name).read_bytes() == (folder / "mlx" / name).read_bytes()


def test_every_tensor_arrives_as_mlx_multiplies_it(tmp_path: Path) -> None:
    tensors = tiny_lora(TINY, 0)
    to_mlx(write_plain(tmp_path / "peft", tensors, lora_alpha=6), BASE, tmp_path / "mlx")
    assert (tmp_path / "mlx").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "mlx").iterdir()} == {0o600}
    assert {path.name for path in tmp_path.iterdir()} == {"peft", "mlx"}
    found = load_file(tmp_path / "mlx" / "adapters.safetensors")
    assert len(found) == len(tensors)
    for module in BASE.shapes:
        a, b = (tensors[f"base_model.model.{module}.lora_{half}.weight"] for half in "AB")
        np.testing.assert_array_equal(found[f"{module}.lora_a"], a.T)
        np.testing.assert_array_equal(found[f"{module}.lora_b"], b.T)
    config = json.loads((tmp_path / "mlx" / "adapter_config.json").read_text())
    assert config["fine_tune_type"] == "lora"
    assert config["lora_parameters"]["rank"] == 4
    assert config["lora_parameters"]["scale"] == 1.5
    assert config["lora_parameters"]["dropout"] == 0.0
    assert sorted(config["lora_parameters"]["keys"]) == sorted(BASE.shapes)


def test_ranks_that_differ_become_the_highest(tmp_path: Path) -> None:
    tensors = tiny_lora(TINY, 0) | {
        f"{Q}.lora_A.weight": np.ones((8, 64), np.float32), f"{Q}.lora_B.weight": np.ones((64, 8), np.float32)
    }  # fmt: skip
    pattern = {r"model\.layers\.1\.self_attn\.q_proj": 8}
    to_mlx(
        write_plain(tmp_path / "peft", tensors, lora_alpha=6, rank_pattern=pattern), BASE, tmp_path / "mlx"
    )
    parameters = json.loads((tmp_path / "mlx" / "adapter_config.json").read_text())["lora_parameters"]
    assert (parameters["rank"], parameters["scale"]) == (8, 6 / 8)
    found = load_file(tmp_path / "mlx" / "adapters.safetensors")
    for module in BASE.shapes:
        a, b = (tensors[f"base_model.model.{module}.lora_{half}.weight"] for half in "AB")
        change = (found[f"{module}.lora_a"] @ found[f"{module}.lora_b"]).T * parameters["scale"]
        np.testing.assert_allclose(change, b @ a * 6 / len(a), atol=1e-6)


@pytest.mark.parametrize("stored", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("trained", ["model.", "model.language_model.", "language_model.model."])
def test_a_model_that_also_sees_gets_the_names_of_mlx(stored: str, trained: str, tmp_path: Path) -> None:
    base = replace(
        BASE, shapes={name.replace("model.", stored, 1): shape for name, shape in BASE.shapes.items()}
    )
    tensors = {
        name.replace(".model.model.", f".model.{trained}", 1): tensor
        for name, tensor in tiny_lora(TINY, 0).items()
    }
    to_mlx(write_plain(tmp_path / "peft", tensors), base, tmp_path / "mlx")
    found = load_file(tmp_path / "mlx" / "adapters.safetensors")
    expected = {f"language_model.{module}.lora_{half}" for module in BASE.shapes for half in "ab"}
    assert found.keys() == expected
    config = json.loads((tmp_path / "mlx" / "adapter_config.json").read_text())
    assert {f"{key}.lora_a" for key in config["lora_parameters"]["keys"]} <= expected
    eye = {
        name.replace(f".model.{trained}", ".model.model.visual.", 1): tensor
        for name, tensor in tensors.items()
    }
    with pytest.raises(IncompatibleAdapter, match=r"no weight for model\.visual"):
        to_mlx(write_plain(tmp_path / "eye", eye), base, tmp_path / "eyes")


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    wide = tiny_lora(TINY, 0) | {f"{Q}.lora_A.weight": np.ones((4, 65), np.float32)}
    with pytest.raises(IncompatibleAdapter, match=r"shape \(64, 65\), but the base has \(64, 64\)"):
        to_mlx(write_plain(tmp_path / "wide", wide), BASE, tmp_path / "mlx")
    other = {name.replace("self_attn", "attention"): tensor for name, tensor in tiny_lora(TINY, 0).items()}
    with pytest.raises(IncompatibleAdapter, match=r"no weight for model\.layers\.0\.attention"):
        to_mlx(write_plain(tmp_path / "other", other), BASE, tmp_path / "mlx")
    assert not (tmp_path / "mlx").exists()


def write_mlx(path: Path, tensors: dict[str, NDArray[np.float32]], **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    save_file(tensors, path / "adapters.safetensors")
    parameters = {"rank": 2, "scale": 20.0, "dropout": 0.1}
    plain = {"fine_tune_type": "lora", "num_layers": 16, "lora_parameters": parameters}
    (path / "adapter_config.json").write_text(json.dumps(plain | config))
    return path


def halves(module: str = "model.layers.0.q", rank: int = 2) -> dict[str, NDArray[np.float32]]:
    return {
        f"{module}.lora_a": np.ones((3, rank), np.float32),
        f"{module}.lora_b": np.ones((rank, 5), np.float32),
    }


def test_an_adapter_that_mlx_trained_is_read(tmp_path: Path) -> None:
    found = from_mlx(write_mlx(tmp_path / "mlx", halves()))
    assert (found.alpha, found.rank) == (40.0, 2)
    assert found.pairs["model.layers.0.q"].a.shape == (2, 3)
    assert found.pairs["model.layers.0.q"].b.shape == (5, 2)


EXPERTS = {"x.lora_a": np.ones((4, 2, 3), np.float32), "x.lora_b": np.ones((4, 5, 2), np.float32)}
UNFIT: dict[str, tuple[type[Exception], dict[str, NDArray[np.float32]], dict[str, Any]]] = {
    "dora": (IncompatibleAdapter, halves(), {"fine_tune_type": "dora"}),
    "full": (IncompatibleAdapter, halves(), {"fine_tune_type": "full"}),
    "magnitudes": (IncompatibleAdapter, halves() | {"model.layers.0.q.m": np.ones(5, np.float32)}, {}),
    "embedding": (IncompatibleAdapter, halves("model.embed_tokens"), {}),
    "experts": (IncompatibleAdapter, EXPERTS, {}),
    "empty": (CorruptAdapter, {}, {}),
    "half a pair": (CorruptAdapter, {"x.lora_a": np.ones((3, 2), np.float32)}, {}),
    "wrong rank": (CorruptAdapter, halves(rank=3), {}),
    "no scale": (CorruptAdapter, halves(), {"lora_parameters": {"rank": 2}}),
    "scale NaN": (CorruptAdapter, halves(), {"lora_parameters": {"rank": 2, "scale": float("nan")}}),
    "rank 0": (CorruptAdapter, halves(), {"lora_parameters": {"rank": 0, "scale": 1.0}}),
    "NaN": (CorruptAdapter, halves() | {"model.layers.0.q.lora_a": np.full((3, 2), np.nan, np.float32)}, {}),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_what_peft_cannot_express_and_what_is_damaged_is_refused(fault: str, tmp_path: Path) -> None:
    error, tensors, config = UNFIT[fault]
    with pytest.raises(error):
        from_mlx(write_mlx(tmp_path / "mlx", tensors, **config))


THETA = {"rope_theta": 1e5, "rope_type": "default"}
LLAMA3 = {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0}


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({"model_type": "llama", "rope_theta": 1e5}, {}),
        ({"model_type": "llama", "rope_parameters": THETA}, {"rope_theta": 1e5}),
        ({"model_type": "qwen2", "rope_parameters": THETA}, {"rope_theta": 1e5}),
        ({"model_type": "qwen3", "rope_parameters": THETA}, {}),
        ({"model_type": "llama", "rope_theta": 1e5, "rope_parameters": THETA}, {}),
        (
            {"model_type": "llama", "rope_parameters": LLAMA3},
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        ),
        ({"model_type": "gemma3_text", "rope_parameters": {"full_attention": THETA}}, {}),
        ({"model_type": "mamba"}, {}),
    ],
)
def test_what_mlx_would_misread_is_known(config: dict[str, Any], missing: dict[str, Any]) -> None:
    assert rope_misread(config) == missing
    assert rope_misread(config | missing) == {}


def test_a_base_is_known_by_its_shapes(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="has no"):
        read_base(tmp_path)
    save_file(
        {
            "model.q.weight": np.ones((4, 3), np.float32),
            "model.q.bias": np.ones(4, np.float32),
            "model.packed.weight": np.ones((4, 1), np.uint32),
            "model.packed.scales": np.ones((4, 1), np.float32),
        },
        tmp_path / "model-00001-of-00002.safetensors",
    )
    save_file({"lm_head.weight": np.ones((9, 3), np.float32)}, tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(EngineError, match="cannot read"):
        read_base(tmp_path)
    (tmp_path / BASE_CONFIG).write_text('{"model_type": "llama"}')
    assert read_base(tmp_path).shapes == {"model.q": (4, 3), "model.packed": (4,), "lm_head": (9, 3)}
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match="cannot read"):
        read_base(tmp_path)
