"""Distillation against float64 NumPy written from the formula, and what the formula promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Batch
from burnish.training.objectives.losses import distil
from tests.support.batches import CONFIG, B, Case, K, T, batch, case, run

SEEDS = range(10)


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p ‖ q), over the last axis."""
    return (p * np.log(p / q)).sum(axis=-1)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_the_divergence_from_the_teacher_and_the_teachers_entropy(seed: int, beta: float):
    c = case(seed)
    expected = 0.0
    for i, kept in enumerate(c["mask"]):
        p = c["teacher"][i, kept]
        log_r = c["reference"][i, kept] - c["policy"][i, kept]
        entropy = -(p * np.log(p)).sum(axis=1)
        terms = divergence(p, np.exp(c["student"][i, kept])) + entropy + beta * (np.exp(log_r) - 1 - log_r)
        expected += c["weights"][i] * terms.mean()
    loss, _ = run(distil, c, Hyperparameters(kl_beta=beta), of="student")
    assert loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_its_gradient_is_the_teachers_probability_a_token(seed: int):
    c = case(seed)
    _, gradient = run(distil, c, of="student")
    share = c["weights"][:, None] * c["mask"] / c["mask"].sum(axis=1, keepdims=True)  # (B, T)
    assert gradient.numpy() == pytest.approx(-c["teacher"] * share[:, :, None], abs=1e-12)


def of_logits(c: Case, logits: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the loss with respect to what a student over the whole vocabulary computes."""
    logits.requires_grad_()
    taught = {**c, "student": np.zeros_like(c["teacher"])}
    given = batch(taught)
    whole = Batch(
        given.policy, given.behaviour, given.reference, given.mask, given.advantages, given.good,
        given.weights, teacher=given.teacher, student=logits.log_softmax(dim=2),
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(distil(whole, CONFIG, TorchFunctions), logits)
    return gradient


@pytest.mark.parametrize("seed", SEEDS)
def test_over_the_whole_vocabulary_it_moves_what_differs_and_nothing_where_both_agree(seed: int):
    c = case(seed)
    agreeing = of_logits(c, torch.tensor(np.log(c["teacher"])))
    assert agreeing.abs().max() < 1e-15
    other = torch.tensor(np.random.default_rng(seed).normal(0, 1, (B, T, K)))
    share = c["weights"][:, None] * c["mask"] / c["mask"].sum(axis=1, keepdims=True)
    expected = (other.softmax(dim=2).numpy() - c["teacher"]) * share[:, :, None]
    assert of_logits(c, other).numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_grouping_the_others_never_makes_a_student_look_further_away(seed: int):
    draw = np.random.default_rng(seed)
    p, q = draw.dirichlet(np.full(20, 0.3), 2) + 1e-12
    for kept in range(1, 20):
        order = np.argsort(-p)
        groups = [np.append(each[order[:kept]], each[order[kept:]].sum()) for each in (p, q)]
        assert divergence(groups[0], groups[1]) <= divergence(p, q) + 1e-12
    assert divergence(groups[0], groups[1]) == pytest.approx(divergence(p, q)), "nothing is grouped any more"


def test_padding_and_what_the_teacher_does_not_use_have_no_influence():
    c = case(1)
    before, gradient = run(distil, c, of="student")
    assert (gradient.numpy()[~c["mask"]] == 0).all()
    c["student"] = np.where(c["mask"][:, :, None], c["student"], -80.0)
    for name in ("advantages", "behaviour", "policy"):
        c[name] = c[name] - 1.0
    assert run(distil, c, of="student")[0] == before
