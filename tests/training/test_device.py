"""Where training runs, and whether there is room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from burnish.training.device import demand_room, needed_bytes, parameters, pick
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, JobSpec, Quantize


@pytest.mark.parametrize(
    ("wanted", "free", "chosen"),
    [
        ("auto", [], "cpu"),
        ("cpu", [9, 9], "cpu"),
        ("auto", [5], "cuda:0"),
        ("auto", [5, 9, 9], "cuda:1"),
        ("shared", [5, 9], "cuda:1"),
        ("cuda", [5, 9], "cuda:0"),
        ("cuda:1", [9, 5], "cuda:1"),
    ],
)
def test_picks_what_is_there(wanted: str, free: list[int], chosen: str) -> None:
    assert pick(wanted, free) == chosen


@pytest.mark.parametrize(
    ("wanted", "free", "there"),
    [
        ("cuda", [], "none"),
        ("shared", [], "none"),
        ("cuda:0", [], "none"),
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


def model(path: Path, **changes: int) -> Path:
    sizes = {"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 100}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(sizes | changes))
    save_file({"a": np.zeros((100, 8), np.float32)}, path / "model-1.safetensors")
    save_file({"b": np.zeros((8, 8), np.float16), "c": np.zeros(8)}, path / "model-2.safetensors")
    return path


def test_counts_parameters_over_all_files_whatever_their_format(tmp_path: Path) -> None:
    assert parameters(model(tmp_path / "m")) == 800 + 64 + 8


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"])
def test_a_larger_model_needs_more(tmp_path: Path, key: str) -> None:
    small, large = model(tmp_path / "small"), model(tmp_path / "large", **{key: 10_000})
    assert needed_bytes(small, Hyperparameters()) < needed_bytes(large, Hyperparameters())


def test_longer_conversations_need_more_and_weights_are_the_least(tmp_path: Path) -> None:
    weights = model(tmp_path / "m")
    short = needed_bytes(weights, Hyperparameters(max_tokens=64, micro_batch_tokens=64))
    assert 2 * parameters(weights) < short < needed_bytes(weights, Hyperparameters(max_tokens=4096))


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


def test_jobs_written_before_there_was_a_choice_still_read() -> None:
    old = JobSpec(run_id="r", base_model="m", base_weights="w", base_digest="d", weights_cache="c")
    assert JobSpec.model_validate(old.model_dump(exclude={"device"})).device == "auto"


def test_quantised_weights_need_less_but_embedding_and_head_stay_whole(tmp_path: Path) -> None:
    weights = model(tmp_path / "m", vocab_size=10)
    needs = [needed_bytes(weights, Hyperparameters(), how) for how in get_args(Quantize)]
    assert needs[0] > needs[1] > needs[2]
    all_embedding = model(tmp_path / "e", vocab_size=1000)
    assert needed_bytes(all_embedding, Hyperparameters(), "4bit") == needed_bytes(
        all_embedding, Hyperparameters()
    )
