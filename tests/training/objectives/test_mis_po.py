"""Against float64 NumPy written from the formula, and the properties that the formula promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives import diagnose, mis_po, step_metrics
from tests.support import batches
from tests.support.batches import CONFIG, Case, T, batch, case, one


def expected(c: Case, config: Hyperparameters) -> tuple[float, np.ndarray, int]:
    """The loss, its gradient with a constant scale, and how many tokens are filtered, token by token."""
    total, gradient, clipped = 0.0, np.zeros_like(c["policy"]), 0
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
            pull = c["advantages"][i, t] * scale * kept
            terms.append(-pull * c["policy"][i, t] + config.kl_beta * k3)
            gradient[i, t] = c["weights"][i] * (-pull + config.kl_beta * (1 - r)) / len(places)
            clipped += not kept
        total += c["weights"][i] * np.mean(terms)
    return total, gradient, clipped


def run(c: Case, config: Hyperparameters = CONFIG) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Return loss, gradient with respect to the policy's log-probabilities, and sums."""
    found, gradient = batches.run(mis_po, c, config)
    sums = diagnose(batch(c), config, TorchFunctions)
    return found, gradient, {name: float(value) for name, value in sums.items()}


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("spread", [0.01, 0.3, 1.0])
def test_agrees_with_numpy_in_float64(seed: int, beta: float, spread: float):
    config, c = Hyperparameters(kl_beta=beta), case(seed, spread)
    loss, gradient, sums = run(c, config)
    total, slope, clipped = expected(c, config)
    assert loss.item() == pytest.approx(total, rel=1e-9)
    assert gradient.numpy() == pytest.approx(slope, abs=1e-12)
    assert sums["clipped"] == clipped


def test_by_hand():
    # Two tokens, ratios 1.2 and 1.25: rho = sqrt(1.5) = 1.2247, scale = 1.002 / 1.2247.
    c = one(0.0, advantage=2.0, tokens=2)
    c["policy"] = np.array([[-1 + math.log(1.2), -1 + math.log(1.25)]])
    loss, gradient, _ = run(c)
    scale = 1.002 / math.sqrt(1.5)
    assert loss.item() == pytest.approx(-2.0 * scale * (c["policy"].sum() / 2))
    assert gradient.numpy() == pytest.approx(np.full((1, 2), -2.0 * scale / 2))


def test_masked_tokens_have_no_influence():
    c = case(1)
    loss, _, sums = run(c)
    for name in ("policy", "behaviour", "reference"):
        c[name] = np.where(c["mask"], c[name], -80.0)
    again, _, again_sums = run(c, Hyperparameters())
    assert again == loss
    assert again_sums == sums


@pytest.mark.parametrize("seed", range(5))
def test_micro_batches_add_up_to_the_batch(seed: int):
    c = case(seed)
    loss, _, sums = run(c)
    parts = [run({name: value[part] for name, value in c.items()}) for part in (slice(0, 1), slice(1, None))]
    assert sum(part[0].item() for part in parts) == pytest.approx(loss.item())
    for name, value in sums.items():
        assert sum(part[2][name] for part in parts) == pytest.approx(value)


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
    c = {name: np.repeat(value, len(picks), axis=0) for name, value in one(0.0, 0.0, tokens=1).items()}
    c |= {"policy": policy[picks], "behaviour": behaviour[picks], "reference": reference[picks]}
    assert step_metrics(run(c)[2])["kl_per_token"] == pytest.approx(exact, rel=0.02)


def test_good_and_bad_shift_are_told_apart():
    good, bad = one(-0.8, 1.0), one(-1.3, -1.0)
    both = {name: np.concatenate([good[name], bad[name]]) for name in good}
    metrics = step_metrics(run(both)[2])
    assert metrics["good_shift"] == pytest.approx(0.2)
    assert metrics["bad_shift"] == pytest.approx(-0.3)


def test_one_token_that_became_a_hundred_times_likelier_is_not_the_whole_estimate():
    rare, frequent = math.log(0.001), math.log(0.1)
    c = one(rare, 1.0, behaviour=rare, tokens=T)
    c["policy"][0, 0] = frequent
    k3 = 0.01 - 1 + math.log(100)
    found = step_metrics(run(c)[2])["kl_per_token"]
    assert found == pytest.approx(CONFIG.token_band[1] * k3 / T)
    assert found < 100 * k3 / T / 10
