"""How large a model is, where training runs, and whether there is room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from burnish.training.device import (
    demand_room,
    framework,
    main_memory,
    model_size,
    needed_bytes,
    parameters,
    pick,
    tokens_at_once,
)
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, ModelSize, Quantize
from tests.support.jobs import Base
from tests.support.tiny_gguf import ARCHITECTURES, Shape, blank


@pytest.mark.parametrize(
    ("wanted", "free", "mps", "chosen"),
    [
        ("auto", [], False, "cpu"),
        ("cpu", [9, 9], False, "cpu"),
        ("auto", [5], False, "cuda:0"),
        ("auto", [5, 9, 9], False, "cuda:1"),
        ("shared", [5, 9], False, "cuda:1"),
        ("cuda", [5, 9], False, "cuda:0"),
        ("cuda:1", [9, 5], False, "cuda:1"),
        *((wanted, [], True, "mps") for wanted in ("auto", "shared", "mps")),
        ("cpu", [], True, "cpu"),
        ("auto", [5], True, "cuda:0"),
    ],
)
def test_picks_what_is_there(wanted: str, free: list[int], mps: bool, chosen: str) -> None:
    assert pick(wanted, free, mps=mps) == chosen


@pytest.mark.parametrize(
    ("wanted", "quantize", "apple", "torch", "mlx", "chosen"),
    [
        ("auto", "none", True, True, True, "mlx"),
        ("auto", "none", False, True, True, "torch"),
        ("auto", "none", True, True, False, "torch"),
        ("auto", "none", True, False, True, "mlx"),
        ("auto", "none", False, False, True, "mlx"),
        ("mps", "none", True, True, True, "torch"),
        ("cpu", "none", True, True, True, "torch"),
        ("auto", "4bit", True, True, True, "torch"),
        ("auto", "none", True, False, False, "torch"),  # whose import says what to install
    ],
)
def test_apples_own_framework_comes_first_on_its_processors(
    wanted: str, quantize: Quantize, *, apple: bool, torch: bool, mlx: bool, chosen: str
) -> None:
    assert framework(wanted, quantize, apple=apple, torch=torch, mlx=mlx) == chosen


@pytest.mark.parametrize(
    ("wanted", "free", "there"),
    [
        *((wanted, [], "none") for wanted in ("cuda", "shared", "cuda:0")),
        ("cuda:2", [1, 1], "2 (cuda:0, cuda:1)"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_is(wanted: str, free: list[int], there: str) -> None:
    with pytest.raises(JobError) as caught:
        pick(wanted, free)
    assert there in str(caught.value)
    assert wanted in str(caught.value)


@given(free=st.integers(0, 10**12), needed=st.integers(0, 10**12))
def test_training_never_starts_without_room(free: int, needed: int) -> None:
    if needed <= free:
        demand_room("cuda:0", free, needed)
    else:
        with pytest.raises(JobError, match="ratings are kept"):
            demand_room("cuda:0", free, needed)


SIZES = {"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 100}


def model(path: Path, config: Any = SIZES) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file({"a": np.zeros((100, 8), np.float32)}, path / "model-1.safetensors")
    save_file({"b": np.zeros((8, 8), np.float16), "c": np.zeros(8)}, path / "model-2.safetensors")
    return path


def test_counts_parameters_over_all_files_whatever_their_format(tmp_path: Path) -> None:
    assert parameters(model(tmp_path / "m")) == 800 + 64 + 8


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"])
def test_a_larger_model_needs_more(tmp_path: Path, key: str) -> None:
    small, large = model(tmp_path / "small"), model(tmp_path / "large", SIZES | {key: 10_000})
    assert needed_bytes(small, Hyperparameters()) < needed_bytes(large, Hyperparameters())


def test_longer_conversations_need_more_and_weights_are_the_least(tmp_path: Path) -> None:
    weights = model(tmp_path / "m")
    short = needed_bytes(weights, Hyperparameters(max_tokens=64, micro_batch_tokens=64))
    medium, long = (needed_bytes(weights, Hyperparameters(max_tokens=tokens)) for tokens in (2048, 16_384))
    assert 2 * parameters(weights) < short < medium < long
    assert (long - medium) / (16_384 - 2048) < (medium - short) / (2048 - 64), (
        "of a head there are keys and values only"
    )


def test_a_gpu_takes_as_many_tokens_at_once_as_fit(tmp_path: Path) -> None:
    weights, config = model(tmp_path / "m"), Hyperparameters(micro_batch_tokens=100, max_tokens=64)

    def needed(tokens: int) -> int:
        return needed_bytes(weights, config.model_copy(update={"micro_batch_tokens": tokens}))

    def taken(free_bytes: int) -> int:
        return tokens_at_once(weights, config, "none", free_bytes)

    assert taken(10**15) == 1600
    for tokens in (1600, 800, 400, 200):
        assert taken(needed(tokens)) == tokens
        assert taken(needed(tokens) - 1) == tokens // 2
    assert taken(0) == 100  # whether that has room is asked elsewhere


SMALL = ModelSize(hidden=576, layers=30, parameters=134_515_008)


def test_the_estimate_of_main_memory_is_a_little_above_what_the_small_model_took() -> None:
    assert 2.5e9 < main_memory(SMALL, Hyperparameters()) < 2.8e9


@pytest.mark.parametrize("change", [{"hidden": 2048}, {"layers": 60}, {"parameters": 10**9}])
def test_a_larger_model_needs_more_main_memory(change: dict[str, int]) -> None:
    larger = SMALL.model_copy(update=change)
    assert main_memory(larger, Hyperparameters()) > main_memory(SMALL, Hyperparameters())


@pytest.mark.parametrize("said", ["{}", "[]", "no json", '{"hidden_size": 8}'])
def test_a_model_that_does_not_say_its_size_is_refused(tmp_path: Path, said: str) -> None:
    weights = model(tmp_path / "m")
    (weights / "config.json").write_text(said)
    with pytest.raises(JobError, match=r"train\.device"):
        needed_bytes(weights, Hyperparameters())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    weights = model(tmp_path / "m")
    (weights / "model-1.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(JobError, match=r"model-1\.safetensors"):
        needed_bytes(weights, Hyperparameters())


def test_quantised_weights_need_less_but_embedding_and_head_stay_whole(tmp_path: Path) -> None:
    weights = model(tmp_path / "m", SIZES | {"vocab_size": 10})
    needs = [needed_bytes(weights, Hyperparameters(), how) for how in get_args(Quantize)]
    assert needs[0] > needs[1] > needs[2]
    all_embedding = model(tmp_path / "e", SIZES | {"vocab_size": 1000})
    whole, quantised = (needed_bytes(all_embedding, Hyperparameters(), how) for how in ("none", "4bit"))
    assert whole == quantised


FAMILIES: list[tuple[dict[str, Any], int]] = [
    ({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}, 0),
    ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2}, 0),
    ({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 8}, 8),
    ({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_experts": 128}, 128),
    ({"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "n_routed_experts": 64}, 64),
    ({"model_type": "gemma3", "text_config": {"hidden_size": 64, "num_hidden_layers": 2}}, 0),
    ({"model_type": "llama4", "text_config": {"hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 4}}, 4),
]  # fmt: skip


@pytest.mark.parametrize(("config", "experts"), FAMILIES)
def test_a_directory_says_its_size(tmp_path: Path, config: dict[str, Any], experts: int) -> None:
    expected = ModelSize(hidden=64, layers=2, parameters=800 + 64 + 8, experts=experts)
    assert model_size(model(tmp_path / "m", config)) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gguf_says_its_size(tmp_path: Path, architecture: str) -> None:
    shape = Shape(architecture, vocabulary=32, blocks=3)
    linear = sum(out * width for out, width in shape.modules.values())
    expected = ModelSize(hidden=64, layers=3, parameters=linear + 32 * 64)
    assert model_size(blank(tmp_path / "m.gguf", shape)) == expected


def test_the_small_model_is_the_one_that_was_measured(small: Base) -> None:
    found = model_size(small.gguf)
    assert (found.hidden, found.layers, found.experts) == (576, 30, 0)
    assert 130e6 < found.parameters < 140e6


@pytest.mark.parametrize(
    "config", [{}, [], {"hidden_size": "wide", "num_hidden_layers": 2}, {"hidden_size": 64}]
)
def test_what_does_not_say_its_size_is_of_none(tmp_path: Path, config: Any) -> None:
    assert model_size(model(tmp_path / "m", config)) is None
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00")
    assert model_size(tmp_path / "torn.gguf") is None
    assert model_size(tmp_path / "missing") is None
