"""Against float64 NumPy written from the formula, and the properties that the formula promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives.losses import diagnose, mis_po, step_metrics
from tests.support import batches
from tests.support.batches import CONFIG, B, Case, T, batch, case, one


def expected(c: Case, config: Hyperparameters) -> float:
    """The loss, reply by reply and token by token."""
    total = 0.0
    for i in range(len(c["advantages"])):
        places = np.flatnonzero(c["mask"][i])
        ratios = np.exp(c["policy"][i, places] - c["behaviour"][i, places])
        rho = float(np.prod(ratios) ** (1 / len(places)))
        low, high = config.trajectory_band
        scale = min(1.0, rho / low, high / rho)
        terms = []
        for t, x in zip(places, ratios, strict=True):
            kept = config.token_band[0] <= x <= config.token_band[1]
            r = math.exp(c["reference"][i, t] - c["policy"][i, t])
            k3 = r - 1 - math.log(r)
            terms.append(-c["advantages"][i, t] * scale * kept * c["policy"][i, t] + config.kl_beta * k3)
        total += c["weights"][i] * np.mean(terms)
    return total


def run(c: Case, config: Hyperparameters = CONFIG) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Return loss, gradient with respect to the policy's log-probabilities, and sums."""
    found, gradient = batches.run(mis_po, c, config)
    sums = diagnose(batch(c), config, TorchFunctions)
    return found, gradient, {name: float(value) for name, value in sums.items()}


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_numpy_in_float64(seed: int, beta: float):
    config = Hyperparameters(kl_beta=beta)
    loss, _, _ = run(case(seed), config)
    assert loss.item() == pytest.approx(expected(case(seed), config), rel=1e-9)


def test_by_hand():
    # Two tokens, ratios 1.2 and 1.25: rho = sqrt(1.5) = 1.2247, scale = 1.002 / 1.2247.
    c = one(0.0, advantage=2.0, tokens=2)
    c["policy"] = np.array([[-1 + math.log(1.2), -1 + math.log(1.25)]])
    loss, gradient, _ = run(c)
    scale = 1.002 / math.sqrt(1.5)
    assert loss.item() == pytest.approx(-2.0 * scale * (c["policy"].sum() / 2))
    assert gradient.numpy() == pytest.approx(np.full((1, 2), -2.0 * scale / 2))


@given(st.floats(-0.6, 0.6), st.sampled_from([1.0, -1.0]))
def test_good_replies_are_raised_and_bad_ones_lowered_in_and_out_of_the_band(shift: float, advantage: float):
    _, gradient, _ = run(one(-1.0 + shift, advantage))
    assert (torch.sign(-gradient) == advantage).all()


def test_a_good_reply_far_above_the_band_still_teaches():
    _, near, _ = run(one(-1.0, 1.0))
    _, far, _ = run(one(-0.5, 1.0))
    assert far.abs().sum() == pytest.approx(float(near.abs().sum()) * 1.002 / math.exp(0.5))


def test_a_bad_reply_below_the_band_does_not_count_double():
    _, near, _ = run(one(-1.0, -1.0))
    _, far, _ = run(one(-1.4, -1.0))
    assert far.abs().sum() < near.abs().sum()


def test_the_scale_is_detached():
    # The gradient is that of a constant scale times log pi: exactly equal for all tokens of a reply.
    c = case(3, spread=0.1)
    _, gradient, _ = run(c)
    for row, mask in zip(gradient.numpy(), c["mask"], strict=True):
        assert np.ptp(row[mask]) == pytest.approx(0)


@pytest.mark.parametrize("ratio", [0.49, 2.01])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_tokens_outside_the_token_band_have_no_gradient(ratio: float, advantage: float):
    c = one(-1.0, advantage)
    c["policy"][0, 1] += math.log(ratio)
    _, gradient, sums = run(c)
    assert gradient[0, 1] == 0
    assert gradient[0, 0] != 0
    assert sums["clipped"] == 1


def test_masked_tokens_have_no_gradient_and_no_influence():
    c = case(1)
    loss, gradient, sums = run(c)
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    for name in ("policy", "behaviour", "reference"):
        c[name] = np.where(c["mask"], c[name], -80.0)
    again, _, again_sums = run(c, Hyperparameters())
    assert again == loss
    assert again_sums == sums


@settings(max_examples=25)
@given(st.permutations(range(B)), st.integers(0, 50))
def test_the_order_of_replies_does_not_matter(order: list[int], seed: int):
    c = case(seed)
    loss, gradient, sums = run(c)
    shuffled_loss, shuffled, shuffled_sums = run({name: value[order] for name, value in c.items()})
    assert shuffled_loss.item() == pytest.approx(loss.item())
    assert shuffled.numpy() == pytest.approx(gradient.numpy()[order])
    assert shuffled_sums == pytest.approx(sums)


@pytest.mark.parametrize("seed", range(5))
def test_micro_batches_add_up_to_the_batch(seed: int):
    c = case(seed)
    loss, _, sums = run(c)
    parts = [run({name: value[part] for name, value in c.items()}) for part in (slice(0, 1), slice(1, None))]
    assert sum(part[0].item() for part in parts) == pytest.approx(loss.item())
    for name, value in sums.items():
        assert sum(part[2][name] for part in parts) == pytest.approx(value)


def test_a_weight_of_two_counts_twice():
    single, double = one(-0.9, 1.0), one(-0.9, 1.0)
    double["weights"] = np.array([2.0])
    assert run(double)[1].numpy() == pytest.approx(2 * run(single)[1].numpy())


def test_the_penalty_pulls_back_to_the_reference_from_both_sides():
    config = Hyperparameters(kl_beta=1.0)
    for shift in (-0.5, 0.5):
        _, gradient, _ = run(one(-1.0 + shift, 0.0), config)
        assert (torch.sign(gradient) == math.copysign(1, shift)).all()


def test_metrics_of_a_policy_that_has_not_moved():
    c = case(0)
    c["policy"] = c["reference"] = c["behaviour"]
    metrics = step_metrics(run(c)[2])
    assert metrics == pytest.approx(
        {
            "tokens": float(c["mask"].sum()),
            "kl_per_token": 0,
            "kl_per_reply": 0,
            "implicit_reward": 0,
            "ratio_mean": 1,
            "clip_share": 0,
            "in_band_share": 1,
            "good_shift": 0,
            "bad_shift": 0,
        }
    )


def test_kl_is_estimated_without_bias_from_the_behaviours_replies():
    # One token over a vocabulary of three: the exact KL is known, the behaviour is neither of the two.
    draw = np.random.default_rng(0)
    policy, reference, behaviour = np.log([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.4, 0.3, 0.3]])
    exact = float((np.exp(policy) * (policy - reference)).sum())
    picks = draw.choice(3, size=(200_000, 1), p=np.exp(behaviour))
    shape = (len(picks),)
    c = {
        "policy": policy[picks],
        "behaviour": behaviour[picks],
        "reference": reference[picks],
        "mask": np.ones_like(picks, dtype=bool),
        "advantages": np.zeros(picks.shape),
        "good": np.zeros(shape, dtype=bool),
        "weights": np.ones(shape),
    }
    assert step_metrics(run(c)[2])["kl_per_token"] == pytest.approx(exact, rel=0.02)


def test_good_and_bad_shift_are_told_apart():
    good, bad = one(-0.8, 1.0), one(-1.3, -1.0)
    both = {name: np.concatenate([good[name], bad[name]]) for name in good}
    metrics = step_metrics(run(both)[2])
    assert metrics["good_shift"] == pytest.approx(0.2)
    assert metrics["bad_shift"] == pytest.approx(-0.3)


def test_one_token_that_became_a_hundred_times_likelier_is_not_the_whole_estimate():
    rare, frequent = math.log(0.001), math.log(0.1)
    c = {
        "policy": np.array([[frequent] + [rare] * (T - 1)]),
        "behaviour": np.full((1, T), rare),
        "reference": np.full((1, T), rare),
        "mask": np.ones((1, T), dtype=bool),
        "advantages": np.ones((1, T)),
        "good": np.ones(1, dtype=bool),
        "weights": np.ones(1),
    }
    k3 = 0.01 - 1 + math.log(100)
    found = step_metrics(run(c)[2])["kl_per_token"]
    assert found == pytest.approx(CONFIG.token_band[1] * k3 / T)
    assert found < 100 * k3 / T / 10
