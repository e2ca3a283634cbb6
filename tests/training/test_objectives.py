"""Each loss against float64 NumPy written from its formula, by hand, and what the formulas promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives import (
    diagnose,
    distil,
    dpo,
    gspo,
    kl_point,
    kto,
    loss_named,
    mis_po,
    ppo,
    sft,
    step_metrics,
)
from tests.support.batches import CONFIG, B, Case, T, batch, case, one, run

SEEDS = range(10)
CLIPPED = Hyperparameters(token_band=(0.8, 1.2))

Gain = Callable[[Case, int, np.ndarray], tuple[float, np.ndarray]]
"""Returns what a reply gains, and the slope of that with respect to log π of its tokens."""


def expected(c: Case, beta: float, gain_of: Gain) -> tuple[float, np.ndarray]:
    """Σ_i w_i · (β · mean k3 − gain), and its gradient."""
    total, gradient = 0.0, np.zeros_like(c["policy"])
    for i, mask in enumerate(c["mask"]):
        places = np.flatnonzero(mask)
        gain, slope = gain_of(c, i, places)
        r = np.exp(c["reference"][i, places] - c["policy"][i, places])
        total += c["weights"][i] * (beta * (r - 1 - np.log(r)).mean() - gain)
        gradient[i, places] = c["weights"][i] * (beta * (1 - r) / len(places) - slope)
    return total, gradient


def ratios(c: Case, i: int, places: np.ndarray) -> np.ndarray:
    return np.exp(c["policy"][i, places] - c["behaviour"][i, places])


def gain_of_mis_po(c: Case, i: int, places: np.ndarray) -> tuple[float, np.ndarray]:
    x = ratios(c, i, places)
    rho, (low, high) = float(np.prod(x) ** (1 / len(x))), CONFIG.trajectory_band
    kept = (x >= CONFIG.token_band[0]) & (x <= CONFIG.token_band[1])
    pull = c["advantages"][i, places] * min(1.0, rho / low, high / rho) * kept
    return (pull * c["policy"][i, places]).mean(), pull / len(x)


def clipped(ratio: float, advantage: float) -> tuple[float, float]:
    """min(x A, clip(x) A), and its slope with respect to log x."""
    inside = min(max(ratio, CLIPPED.token_band[0]), CLIPPED.token_band[1])
    moves = ratio * advantage <= inside * advantage
    return min(ratio * advantage, inside * advantage), ratio * advantage if moves else 0.0


def gain_of_ppo(c: Case, i: int, places: np.ndarray) -> tuple[float, np.ndarray]:
    pairs = [clipped(x, a) for x, a in zip(ratios(c, i, places), c["advantages"][i, places], strict=True)]
    gains, slopes = np.array(pairs).T
    return gains.mean(), slopes / len(places)


def gain_of_gspo(c: Case, i: int, places: np.ndarray) -> tuple[float, np.ndarray]:
    x = ratios(c, i, places)
    gain, slope = clipped(math.prod(x) ** (1 / len(x)), c["advantages"][i, 0])
    return gain, np.full(len(x), slope / len(x))


@pytest.mark.parametrize(
    ("loss", "gain_of", "config"),
    [(mis_po, gain_of_mis_po, CONFIG), (ppo, gain_of_ppo, CLIPPED), (gspo, gain_of_gspo, CLIPPED)],
)
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spread", [0.01, 0.3, 1.0])
def test_policy_gradients_agree_with_numpy(
    loss, gain_of: Gain, config: Hyperparameters, *, beta: float, seed: int, spread: float
) -> None:
    c = case(seed, spread)
    found, gradient = run(loss, c, config.model_copy(update={"kl_beta": beta}))
    total, slope = expected(c, beta, gain_of)
    assert found.item() == pytest.approx(total, rel=1e-9)
    assert gradient.numpy() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_sft_is_the_likelihood_of_the_good_ones(seed: int, beta: float) -> None:
    c = case(seed)
    only_good = c | {"weights": c["weights"] * c["good"]}
    total, slope = expected(
        only_good, beta, lambda c, i, at: (c["policy"][i, at].mean(), np.full(len(at), 1 / len(at)))
    )
    loss, gradient = run(sft, c, Hyperparameters(kl_beta=beta))
    assert loss.item() == pytest.approx(total)
    assert gradient.numpy() == pytest.approx(slope, abs=1e-12)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def whole_ratios(c: Case) -> np.ndarray:
    """log π / π_ref of whole replies."""
    return np.where(c["mask"], c["policy"] - c["reference"], 0).sum(axis=1)


@pytest.mark.parametrize("point", [0.0, 1.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_kto_is_the_papers_formula(seed: int, point: float) -> None:
    c = case(seed, spread=1.0)
    moved = (whole_ratios(c) - point) * np.where(c["good"], 1, -1)
    values = [1 - sigmoid(0.1 * float(each)) for each in moved]
    assert run(kto, c, point=point)[0].item() == pytest.approx(float(c["weights"] @ values))


@pytest.mark.parametrize("seed", SEEDS)
def test_dpo_compares_rows_in_pairs(seed: int) -> None:
    c = case(seed, spread=1.0)
    r, w = whole_ratios(c), c["weights"]
    total = sum(-(w[i] + w[i + 1]) * math.log(sigmoid(0.1 * (r[i] - r[i + 1]))) for i in range(0, B, 2))
    assert run(dpo, c)[0].item() == pytest.approx(total)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_distillation_is_the_divergence_from_the_teacher_and_its_entropy(seed: int, beta: float) -> None:
    c = case(seed)
    total = 0.0
    for i, kept in enumerate(c["mask"]):
        p = c["teacher"][i, kept]
        log_r = c["reference"][i, kept] - c["policy"][i, kept]
        entropy, divergence = -p * np.log(p), p * (np.log(p) - c["student"][i, kept])
        terms = (divergence + entropy).sum(axis=1) + beta * (np.exp(log_r) - 1 - log_r)
        total += c["weights"][i] * terms.mean()
    loss, gradient = run(distil, c, Hyperparameters(kl_beta=beta), of="student")
    assert loss.item() == pytest.approx(total, rel=1e-9)
    # The gradient is the teacher's probability a token.
    share = c["weights"][:, None] * c["mask"] / c["mask"].sum(axis=1, keepdims=True)  # (B, T)
    assert gradient.numpy() == pytest.approx(-c["teacher"] * share[:, :, None], abs=1e-12)


# Padding and parts.


@pytest.mark.parametrize("loss", [mis_po, ppo, gspo, kto, dpo, sft])
def test_padding_has_no_gradient_and_no_influence(loss) -> None:
    c = case(1)
    before, gradient = run(loss, c)
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    sums = diagnosed(c)
    for name in ("policy", "behaviour", "reference"):
        c[name] = np.where(c["mask"], c[name], -80.0)
    assert run(loss, c)[0] == before
    assert diagnosed(c) == sums


def test_a_student_learns_nothing_from_padding_and_from_what_its_teacher_does_not_use() -> None:
    c = case(1)
    before, gradient = run(distil, c, of="student")
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    c["student"] = np.where(c["mask"][:, :, None], c["student"], -80.0)
    for name in ("advantages", "behaviour", "policy"):
        c[name] = c[name] - 1.0
    assert run(distil, c, of="student")[0] == before


@pytest.mark.parametrize("seed", range(5))
def test_micro_batches_add_up_to_the_batch(seed: int) -> None:
    c = case(seed)
    parts = [{name: value[part] for name, value in c.items()} for part in (slice(0, 1), slice(1, None))]
    assert sum(run(mis_po, part)[0].item() for part in parts) == pytest.approx(run(mis_po, c)[0].item())
    for name, value in diagnosed(c).items():
        assert sum(diagnosed(part)[name] for part in parts) == pytest.approx(value)


# By hand.


def test_mis_po_by_hand() -> None:
    # Two tokens, ratios 1.2 and 1.25: rho = sqrt(1.5) = 1.2247, scale = 1.002 / 1.2247.
    c = one(0.0, advantage=2.0, tokens=2)
    c["policy"] = np.array([[-1 + math.log(1.2), -1 + math.log(1.25)]])
    loss, gradient = run(mis_po, c)
    scale = 1.002 / math.sqrt(1.5)
    assert loss.item() == pytest.approx(-2.0 * scale * (c["policy"].sum() / 2))
    assert gradient.numpy() == pytest.approx(np.full((1, 2), -2.0 * scale / 2))


@pytest.mark.parametrize("loss", [ppo, gspo])
@pytest.mark.parametrize(
    ("moved", "advantage", "slope"),
    [
        (0.0, 2.0, -2.0),
        (math.log(1.1), 2.0, -2.2),
        (math.log(1.3), 2.0, 0.0),  # likelier already: nothing more to gain
        (math.log(0.5), 2.0, -1.0),  # on its way back it still learns
        (math.log(0.5), -2.0, 0.0),
        (math.log(1.5), -2.0, 3.0),
    ],
)
def test_only_what_moved_the_right_way_is_clipped(loss, moved: float, advantage: float, slope: float) -> None:
    c = one(-1.0 + moved, advantage, behaviour=-1.0, tokens=1)
    assert run(loss, c, CLIPPED)[1].numpy() == pytest.approx(np.full((1, 1), slope))


def test_gspo_clips_a_reply_as_a_whole_and_ppo_each_token() -> None:
    # Ratios 2 and 1/2: their geometric mean is 1.
    c = one(0.0, 1.0, behaviour=-1.0, tokens=2)
    c["policy"] = c["behaviour"] + np.array([[math.log(2), -math.log(2)]])
    assert run(gspo, c, CLIPPED)[1].numpy() == pytest.approx(np.array([[-0.5, -0.5]]))
    assert run(ppo, c, CLIPPED)[1].numpy() == pytest.approx(np.array([[0.0, -0.25]]))
    assert loss_named("rloo") is loss_named("grpo") is ppo, "they differ in their advantages only"


@given(st.floats(-3, 3), st.sampled_from([1.0, -1.0]))
def test_kto_raises_good_replies_and_lowers_bad_ones(shift: float, advantage: float) -> None:
    _, gradient = run(kto, one(-4.0 + shift, advantage, behaviour=-4.0))
    assert (np.sign(-gradient.numpy()) == advantage).all()


def both(first: Case, second: Case) -> Case:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_dpo_raises_the_preferred_and_lowers_the_other_by_as_much(left: float, right: float) -> None:
    preferred, other = one(-3.0 + left, 1.0, behaviour=-3.0), one(-3.0 + right, -1.0, behaviour=-3.0)
    _, gradient = run(dpo, both(preferred, other))
    assert (gradient[0] < 0).all()
    assert gradient[1].numpy() == pytest.approx(-gradient[0].numpy())


@pytest.mark.parametrize("policy", [-500.0, 0.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_rewards_far_from_the_point_stay_finite(policy: float, advantage: float) -> None:
    value, gradient = run(kto, one(policy, advantage, behaviour=-250.0, tokens=6), CONFIG)
    assert np.isfinite([value.item(), *gradient.numpy().flat]).all()


# Metrics.


def diagnosed(c: Case) -> dict[str, float]:
    return {name: float(value) for name, value in diagnose(batch(c), CONFIG, TorchFunctions).items()}


def test_metrics_of_a_policy_that_has_not_moved() -> None:
    c = case(0)
    c["policy"] = c["reference"] = c["behaviour"]
    zero = ("kl_per_token", "kl_per_reply", "implicit_reward", "clip_share", "good_shift", "bad_shift")
    assert step_metrics(diagnosed(c)) == pytest.approx(
        dict.fromkeys(zero, 0) | {"tokens": float(c["mask"].sum()), "ratio_mean": 1, "in_band_share": 1}
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_out_of_the_band_are_counted(seed: int) -> None:
    c = case(seed, spread=1.0)
    x = np.exp(c["policy"] - c["behaviour"])[c["mask"]]
    low, high = CONFIG.token_band
    assert diagnosed(c)["clipped"] == ((x < low) | (x > high)).sum()


def test_kl_is_estimated_without_bias_from_the_behaviours_replies() -> None:
    # One token over a vocabulary of three: the exact KL is known, the behaviour is neither of the two.
    draw = np.random.default_rng(0)
    policy, reference, behaviour = np.log([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.4, 0.3, 0.3]])
    exact = float((np.exp(policy) * (policy - reference)).sum())
    picks = draw.choice(3, size=(200_000, 1), p=np.exp(behaviour))
    c = {name: np.repeat(value, len(picks), axis=0) for name, value in one(0.0, 0.0, tokens=1).items()}
    c |= {"policy": policy[picks], "behaviour": behaviour[picks], "reference": reference[picks]}
    assert step_metrics(diagnosed(c))["kl_per_token"] == pytest.approx(exact, rel=0.02)


def test_good_and_bad_shift_are_told_apart() -> None:
    metrics = step_metrics(diagnosed(both(one(-0.8, 1.0), one(-1.3, -1.0))))
    assert (metrics["good_shift"], metrics["bad_shift"]) == pytest.approx((0.2, -0.3))


def test_one_token_that_became_a_hundred_times_likelier_is_not_the_whole_estimate() -> None:
    rare, frequent = math.log(0.001), math.log(0.1)
    c = one(rare, 1.0, behaviour=rare, tokens=T)
    c["policy"][0, 0] = frequent
    k3 = 0.01 - 1 + math.log(100)
    found = step_metrics(diagnosed(c))["kl_per_token"]
    assert found == pytest.approx(CONFIG.token_band[1] * k3 / T)
    assert found < 100 * k3 / T / 10


@pytest.mark.parametrize(("kl", "point"), [((), 0.0), ((2.0, 4.0), 3.0), ((-0.5,), 0.0)])
def test_the_point_comes_from_the_latest_steps(kl: tuple[float, ...], point: float) -> None:
    assert kl_point([{"kl_per_reply": each} for each in kl]) == point
