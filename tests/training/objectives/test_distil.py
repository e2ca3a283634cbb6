"""Distillation against float64 NumPy written from the formula, and what the formula promises."""

from __future__ import annotations

import numpy as np
import pytest

from burnish.training.job import Hyperparameters
from burnish.training.objectives import distil
from tests.support.batches import case, run

SEEDS = range(10)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_the_divergence_from_the_teacher_and_the_teachers_entropy(seed: int, beta: float):
    c = case(seed)
    expected = 0.0
    for i, kept in enumerate(c["mask"]):
        p = c["teacher"][i, kept]
        log_r = c["reference"][i, kept] - c["policy"][i, kept]
        entropy, divergence = -p * np.log(p), p * (np.log(p) - c["student"][i, kept])
        terms = (divergence + entropy).sum(axis=1) + beta * (np.exp(log_r) - 1 - log_r)
        expected += c["weights"][i] * terms.mean()
    loss, _ = run(distil, c, Hyperparameters(kl_beta=beta), of="student")
    assert loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_its_gradient_is_the_teachers_probability_a_token(seed: int):
    c = case(seed)
    _, gradient = run(distil, c, of="student")
    share = c["weights"][:, None] * c["mask"] / c["mask"].sum(axis=1, keepdims=True)  # (B, T)
    assert gradient.numpy() == pytest.approx(-c["teacher"] * share[:, :, None], abs=1e-12)


def test_padding_and_what_the_teacher_does_not_use_have_no_influence():
    c = case(1)
    before, gradient = run(distil, c, of="student")
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    c["student"] = np.where(c["mask"][:, :, None], c["student"], -80.0)
    for name in ("advantages", "behaviour", "policy"):
        c[name] = c[name] - 1.0
    assert run(distil, c, of="student")[0] == before
