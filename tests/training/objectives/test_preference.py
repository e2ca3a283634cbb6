"""KTO, DPO and SFT against float64 NumPy written from the papers, and what their formulas promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.job import Hyperparameters
from burnish.training.objectives import dpo, kl_point, kto, sft
from tests.support.batches import CONFIG, B, Case, case, one, run

SEEDS = range(10)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def ratios(c: Case) -> np.ndarray:
    """log π / π_ref of whole replies."""
    return np.where(c["mask"], c["policy"] - c["reference"], 0).sum(axis=1)


@pytest.mark.parametrize("point", [0.0, 1.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_kto_is_the_papers_formula(seed: int, point: float):
    c = case(seed, spread=1.0)
    values = [
        1 - sigmoid(0.1 * (r - point)) if good else 1 - sigmoid(0.1 * (point - r))
        for r, good in zip(ratios(c), c["good"], strict=True)
    ]
    assert run(kto, c, point=point)[0].item() == pytest.approx(float(c["weights"] @ values))


@pytest.mark.parametrize("seed", SEEDS)
def test_dpo_compares_rows_in_pairs(seed: int):
    c = case(seed, spread=1.0)
    r, w = ratios(c), c["weights"]
    expected = sum(-(w[i] + w[i + 1]) * math.log(sigmoid(0.1 * (r[i] - r[i + 1]))) for i in range(0, B, 2))
    assert run(dpo, c)[0].item() == pytest.approx(expected)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_sft_is_the_likelihood_of_the_good_ones(seed: int, beta: float):
    c = case(seed)
    expected = 0.0
    for i in np.flatnonzero(c["good"]):
        kept = c["mask"][i]
        log_r = c["reference"][i, kept] - c["policy"][i, kept]
        terms = -c["policy"][i, kept] + beta * (np.exp(log_r) - 1 - log_r)
        expected += c["weights"][i] * terms.mean()
    loss, gradient = run(sft, c, Hyperparameters(kl_beta=beta))
    assert loss.item() == pytest.approx(expected)
    assert (gradient.numpy()[~c["good"]] == 0).all()


@given(st.floats(-3, 3), st.sampled_from([1.0, -1.0]))
def test_kto_raises_good_replies_and_lowers_bad_ones(shift: float, advantage: float):
    _, gradient = run(kto, one(-4.0 + shift, advantage, behaviour=-4.0))
    assert (np.sign(-gradient.numpy()) == advantage).all()


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_dpo_raises_the_preferred_and_lowers_the_other_by_as_much(left: float, right: float):
    c = {
        name: np.concatenate([value, one(-3.0 + right, -1.0, behaviour=-3.0)[name]])
        for name, value in one(-3.0 + left, 1.0, behaviour=-3.0).items()
    }
    _, gradient = run(dpo, c)
    assert (gradient[0] < 0).all()
    assert gradient[1].numpy() == pytest.approx(-gradient[0].numpy())


@pytest.mark.parametrize("loss", [kto, dpo, sft])
def test_padding_has_no_gradient_and_no_influence(loss):
    c = case(1)
    before, gradient = run(loss, c)
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    for name in ("policy", "behaviour", "reference"):
        c[name] = np.where(c["mask"], c[name], -80.0)
    assert run(loss, c)[0] == before


def test_rewards_far_from_the_point_stay_finite():
    for policy in (-500.0, 0.0):
        for advantage in (1.0, -1.0):
            value, gradient = run(kto, one(policy, advantage, behaviour=-250.0, tokens=6), CONFIG)
            assert np.isfinite(value.item())
            assert np.isfinite(gradient.numpy()).all()


@pytest.mark.parametrize(("kl", "point"), [((), 0.0), ((2.0, 4.0), 3.0), ((-0.5,), 0.0)])
def test_the_point_comes_from_the_latest_steps(kl: tuple[float, ...], point: float):
    assert kl_point([{"kl_per_reply": each} for each in kl]) == point
