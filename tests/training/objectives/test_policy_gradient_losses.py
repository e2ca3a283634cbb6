"""PPO and GSPO against float64 NumPy written from the formula, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from burnish.training.job import Hyperparameters
from burnish.training.objectives import gspo, loss_named, ppo
from tests.support.batches import Case, case, one, run

CONFIG = Hyperparameters(token_band=(0.8, 1.2))
LOW, HIGH = CONFIG.token_band


def k3(c: Case, i: int, t: int) -> tuple[float, float]:
    """Its value and its slope."""
    r = math.exp(c["reference"][i, t] - c["policy"][i, t])
    return r - 1 - math.log(r), 1 - r


def clipped(ratio: float, advantage: float) -> tuple[float, float]:
    """min(x A, clip(x) A), and its slope with respect to log x."""
    inside = min(max(ratio, LOW), HIGH)
    moves = ratio * advantage <= inside * advantage
    return min(ratio * advantage, inside * advantage), ratio * advantage if moves else 0.0


def expected_ppo(c: Case, beta: float) -> tuple[float, np.ndarray]:
    total, gradient = 0.0, np.zeros_like(c["policy"])
    for i in range(len(c["advantages"])):
        places = np.flatnonzero(c["mask"][i])
        for t in places:
            gain, slope = clipped(math.exp(c["policy"][i, t] - c["behaviour"][i, t]), c["advantages"][i, t])
            penalty, rise = k3(c, i, t)
            total += c["weights"][i] * (beta * penalty - gain) / len(places)
            gradient[i, t] = c["weights"][i] * (beta * rise - slope) / len(places)
    return total, gradient


def expected_gspo(c: Case, beta: float) -> tuple[float, np.ndarray]:
    total, gradient = 0.0, np.zeros_like(c["policy"])
    for i in range(len(c["advantages"])):
        places = np.flatnonzero(c["mask"][i])
        ratio = math.prod(np.exp(c["policy"][i, places] - c["behaviour"][i, places])) ** (1 / len(places))
        gain, slope = clipped(ratio, c["advantages"][i, 0])
        total -= c["weights"][i] * gain
        for t in places:
            penalty, rise = k3(c, i, t)
            total += c["weights"][i] * beta * penalty / len(places)
            gradient[i, t] = c["weights"][i] * (beta * rise - slope) / len(places)
    return total, gradient


@pytest.mark.parametrize(("loss", "expected"), [(ppo, expected_ppo), (gspo, expected_gspo)])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.01, 0.3, 1.0])
def test_agrees_with_numpy_in_float64(loss, expected, beta: float, seed: int, spread: float) -> None:
    c = case(seed, spread)
    found, gradient = run(loss, c, Hyperparameters(token_band=(LOW, HIGH), kl_beta=beta))
    total, slope = expected(c, beta)
    assert found.item() == pytest.approx(total, rel=1e-9)
    assert gradient.numpy() == pytest.approx(slope, abs=1e-12)


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
def test_only_what_has_moved_the_right_way_is_clipped(
    loss, moved: float, advantage: float, slope: float
) -> None:
    c = one(0.0, advantage, behaviour=-1.0, tokens=1)
    c["policy"] = c["behaviour"] + moved
    _, gradient = run(loss, c, CONFIG)
    assert gradient.numpy() == pytest.approx(np.full((1, 1), slope))


def test_gspo_clips_a_reply_as_a_whole_and_ppo_each_token() -> None:
    # Ratios 2 and 1/2: their geometric mean is 1.
    c = one(0.0, 1.0, behaviour=-1.0, tokens=2)
    c["policy"] = c["behaviour"] + np.array([[math.log(2), -math.log(2)]])
    assert run(gspo, c, CONFIG)[1].numpy() == pytest.approx(np.array([[-0.5, -0.5]]))
    assert run(ppo, c, CONFIG)[1].numpy() == pytest.approx(np.array([[0.0, -0.25]]))


def test_rloo_and_grpo_are_ppo_with_other_advantages() -> None:
    assert loss_named("rloo") is loss_named("grpo") is ppo
