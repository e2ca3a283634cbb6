"""Which objective and which hyper-parameters fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.numpy import save_file

from burnish.config.hyperparameters import OBJECTIVES
from burnish.gate.check import GateLimits
from burnish.training.device import model_size
from burnish.training.job import Hyperparameters, ModelSize, Objective, Sample
from burnish.training.presets import (
    MIN_COMMENTS,
    Preset,
    caution,
    choose,
    hyperparameters,
    one_sided,
    rate_scale,
    reasons,
)
from tests.support.jobs import sample
from tests.support.tiny_gguf import Shape, write


def test_the_users_own_value_wins_and_the_rest_is_the_presets():
    assert hyperparameters() == Hyperparameters()
    for size_of_model in (None, size(2048)):
        found = hyperparameters("careful", "dpo", size_of_model, learning_rate=1e-5)
        assert (found.learning_rate, found.epochs) == (1e-5, 5)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("feedback", [{}, {"instructed": True}, {"played": True}])
@pytest.mark.parametrize("figure", ["learning_rate", "epochs", "kl_stop"])
def test_presets_go_from_careful_to_aggressive(objective: Objective, feedback: dict[str, Any], figure: str):
    presets = [hyperparameters(preset, objective, **feedback) for preset in get_args(Preset)]
    careful, balanced, aggressive = (getattr(preset, figure) for preset in presets)
    assert careful < balanced < aggressive
    same = [preset.model_dump(exclude={"learning_rate", "epochs", "kl_stop"}) for preset in presets]
    assert same[0] == same[1] == same[2]


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_preset_learns_further_than_the_gate_lets_through(preset: Preset, objective: Objective):
    assert hyperparameters(preset, objective).kl_stop < GateLimits().max_kl_per_token


def test_a_step_has_anchors_if_comments_teach_or_all_prompts_have_a_system_message():
    assert hyperparameters().rehearsed == 0
    found = hyperparameters(instructed=True)
    assert found.rehearsed == 2
    assert found.kl_stop > hyperparameters().kl_stop
    assert hyperparameters("careful", instructed=True).kl_stop == pytest.approx(found.kl_stop / 3)
    assert hyperparameters(objective="critique", instructed=True) == hyperparameters(objective="critique")
    assert hyperparameters(objective="critique").rehearsed == 2
    assert hyperparameters(instructed=True, rehearsed=0) == hyperparameters()
    assert hyperparameters(rehearsed=1).rehearsed == 1


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="'wild', expected one of careful, balanced, aggressive"):
        hyperparameters("wild")  # type: ignore[arg-type]


def test_an_unknown_value_is_named():
    with pytest.raises(ValidationError, match="learning_rat"):
        hyperparameters("careful", learning_rat=1)


def size(hidden: int, experts: int = 0) -> ModelSize:
    return ModelSize(hidden=hidden, layers=2, parameters=1, experts=experts)


@given(st.integers(1, 30_000), st.integers(1, 30_000))
def test_the_wider_a_model_the_lower_its_rate_within_bounds(one: int, other: int):
    narrow, wide = sorted((one, other))
    assert 0.1 <= rate_scale(size(wide)) <= rate_scale(size(narrow)) <= 1


@pytest.mark.parametrize(
    ("hidden", "scale"), [(64, 1), (576, 1), (1024, 0.638), (2048, 0.372), (4096, 0.217), (16_384, 0.1)]
)
def test_the_rate_falls_by_the_power_that_was_published(hidden: int, scale: float):
    # By hand: exp(0.78 * ln(576 / hidden)).
    assert rate_scale(size(hidden)) == pytest.approx(scale, abs=1e-3)


@pytest.mark.parametrize(("preset", "objective"), [("careful", "mis_po"), ("balanced", "dpo")])
def test_the_size_scales_what_preset_and_objective_came_to(preset: Preset, objective: Objective):
    plain, scaled = (hyperparameters(preset, objective, of) for of in (None, size(2048)))
    assert scaled.learning_rate == pytest.approx(plain.learning_rate * rate_scale(size(2048)))
    assert scaled.model_copy(update={"learning_rate": plain.learning_rate}) == plain


def test_what_the_size_changed_is_said_and_only_that():
    assert reasons(None, Hyperparameters(), ()) == []
    assert reasons(size(576), Hyperparameters(), ()) == []
    (why,) = reasons(size(2048), hyperparameters(size=size(2048)), ())
    assert why == "learning rate 1.5e-04: 0.37 of that for a model 576 wide, this one is 2048"
    assert reasons(size(2048), Hyperparameters(), ("learning_rate",)) == []
    (mixed,) = reasons(size(576, experts=8), Hyperparameters(), ())
    assert "mixture of 8 experts" in mixed


def rated(good: int, bad: int, comments: int = 0, **more: Any) -> list[Sample]:
    said = [None] * good + ["too long"] * comments + [None] * (bad - comments)
    return [sample(n, good=n < good, **{"comment": comment} | more) for n, comment in enumerate(said)]


@pytest.mark.parametrize(
    ("samples", "objective"),
    [
        (rated(16, 16), "mis_po"),
        (rated(16, 16, comments=16), "mis_po"),
        (rated(1, 31), "mis_po"),
        (rated(1, 15, comments=15), "critique"),
        (rated(0, MIN_COMMENTS, comments=MIN_COMMENTS), "critique"),
        (rated(0, MIN_COMMENTS, comments=MIN_COMMENTS - 1), "mis_po"),
        (rated(0, 16, comments=16, reward=0.0), "critique"),
        (rated(1, 0) + rated(0, 16, comments=16, reward=0.0), "critique"),
        (rated(9, 0) + rated(0, 16, comments=16, reward=0.0), "critique"),
        (rated(9, 9) + rated(0, 16, comments=16, reward=0.0), "mis_po"),
        (rated(0, 16, comments=16, held_out=True), "mis_po"),
        (rated(0, 8, reward=0.0, correction="shorter"), "dpo"),
        (rated(1, 0) + rated(0, 8, reward=0.0, correction="shorter"), "dpo"),
        (rated(8, 8, correction="shorter"), "mis_po"),
        ([], "mis_po"),
    ],
)
def test_the_objective_follows_from_what_the_data_holds(samples: list[Sample], objective: Objective) -> None:
    assert choose(samples) == objective


@pytest.mark.parametrize(
    ("samples", "objective", "so"),
    [
        (rated(0, 8), "mis_po", True),
        (rated(8, 0), "hybrid", True),
        (rated(1, 8), "mis_po", False),
        (rated(0, 8, comments=8), "critique", False),
        (rated(0, 8, correction="shorter"), "dpo", False),
        ([*rated(0, 8), *rated(3, 0, held_out=True)], "mis_po", True),
        ([], "mis_po", False),
    ],
)
def test_only_ratings_of_a_kind_are_one_sided(samples: list[Sample], objective: Objective, so: bool) -> None:
    assert one_sided(samples, objective) is so


# As published: the members of config.json that a size is read from.
PHI_4 = {"model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40}
EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8}
QWEN3_30B_A3B = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, **EXPERTS}
SMOLLM2 = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30}


def in_directory(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file({"a": np.zeros((2, 2), np.float32)}, path / "model.safetensors")
    return path


def in_gguf(path: Path, config: dict[str, Any]) -> Path:
    keys = {"embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"]}
    if "num_experts" in config:
        keys |= {"expert_count": config["num_experts"], "expert_used_count": config["num_experts_per_tok"]}
    architecture = {"qwen3_moe": "qwen3moe"}.get(config["model_type"], config["model_type"])
    tensors = {"a": np.zeros((2, 2), np.float32)}
    return write(path.with_suffix(".gguf"), Shape(architecture), tensors, keys=keys)


@pytest.mark.parametrize("kind", [in_directory, in_gguf])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # 4e-4 * (576 / 5120) ** 0.78
        (PHI_4, (7.28e-5, 0.15, 16)),
        # 128 / 8 = 16 times as many experts as a token passes: 16 ** -0.25 = 0.5. 4e-4 * (576 / 2048) ** 0.78 * 0.5
        (QWEN3_30B_A3B, (7.43e-5, 0.075, 32)),
        (SMOLLM2, (4e-4, 0.15, 16)),
    ],
    ids=["phi-4", "qwen3-30b-a3b", "smollm2"],
)
def test_published_models_get_the_preset_of_their_size(
    tmp_path: Path, kind: Callable[..., Path], config: dict[str, Any], expected: tuple[float, float, int]
) -> None:
    found = hyperparameters(size=model_size(kind(tmp_path / "m", config)))
    assert (found.learning_rate, found.kl_stop, found.rank) == pytest.approx(expected, rel=2e-3)


@given(st.integers(1, 512), st.integers(0, 64), st.integers(0, 64))
def test_the_sparser_a_mixture_the_more_careful_it_is_trained(experts: int, one: int, other: int) -> None:
    known: dict[str, int] = {"hidden": 576, "layers": 2, "parameters": 1, "experts": experts}
    used = sorted((min(one, experts), min(other, experts)))
    sparse, dense = (ModelSize(experts_used=count, **known) for count in used)
    assert 0.5 <= caution(sparse) <= caution(dense) <= 1
    careful, bold = hyperparameters(size=sparse), hyperparameters(size=dense)
    assert (careful.learning_rate, careful.kl_stop) <= (bold.learning_rate, bold.kl_stop)


def test_what_a_mixture_changed_is_said_and_the_users_own_values_win() -> None:
    mixed = ModelSize(hidden=576, layers=2, parameters=1, experts=64, experts_used=8)
    (why,) = reasons(mixed, hyperparameters(size=mixed), ())
    assert why == (
        "a mixture of 64 experts, 8 for each token: neither they nor their routers are trained; "
        "so rank 32, learning_rate and kl_stop at 0.59 of a dense model's"
    )
    own: dict[str, Any] = {"rank": 4, "learning_rate": 1e-3, "kl_stop": 0.3}
    found = hyperparameters(size=mixed, **own)
    assert found.model_dump() | own == found.model_dump()
    (why,) = reasons(mixed, found, own)
    assert why.endswith("neither they nor their routers are trained")
