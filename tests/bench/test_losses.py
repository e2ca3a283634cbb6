"""The bench's losses against other people's code and the papers, in float64, and by import path."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.learning.losses import forms
from bench.learning.losses.bco import DECAY, Bco
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, JobSpec
from burnish.training.objectives import loss_named
from tests.support.batches import CONFIG, Case, case, run

SEEDS = range(5)


@pytest.mark.parametrize("name", ["no_such_room:loss", "bench.learning.losses.forms:none", "math:pi"])
def test_a_loss_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(JobError, match=f"the objective '{name}'"):
        loss_named(name)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_published_form_drops_replies_out_of_band(seed: int) -> None:
    config, c = Hyperparameters(trajectory_band=(0.8, 1.3)), case(seed)
    total = 0.0
    for i, kept in enumerate(c["mask"]):
        ratios = np.exp(c["policy"][i, kept] - c["behaviour"][i, kept])
        rho = float(np.prod(ratios) ** (1 / len(ratios)))
        inside = (ratios >= config.token_band[0]) & (ratios <= config.token_band[1])
        terms = -c["advantages"][i, kept] * inside * c["policy"][i, kept]
        total += c["weights"][i] * (0.8 <= rho <= 1.3) * terms.mean()
    assert run(forms.published, c, config)[0].item() == pytest.approx(total, rel=1e-9)


def rivals(policy: torch.Tensor, c: Case, config: Hyperparameters) -> torch.Tensor:
    """reinforceclaw 0.1.0, ``_make_loss_fn_torch`` and ``_trajectory_scale_torch``, reply by reply."""
    total = torch.zeros((), dtype=torch.float64)
    (low, high), one_ = config.trajectory_band, torch.ones((), dtype=torch.float64)
    for i in range(len(c["good"])):
        kept = torch.tensor(c["mask"][i])
        new = policy[i][kept]
        old, ref = (torch.tensor(c[name][i])[kept] for name in ("behaviour", "reference"))
        advantage = float(c["advantages"][i, 0])
        ratio = torch.exp(new - old)
        actor = -torch.minimum(ratio * advantage, ratio.clamp(*config.token_band) * advantage).mean()
        kl = (torch.exp(ref - new) - (ref - new) - 1).mean()
        trajectory = torch.exp((new - ref).mean())
        scale = torch.minimum(one_, torch.minimum(trajectory / low, high / trajectory))
        total = total + float(c["weights"][i]) * (actor * scale + config.kl_beta * kl)
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rivals_form_is_theirs_gradient_included(seed: int) -> None:
    config, c = Hyperparameters(kl_beta=0.001), case(seed)
    loss, gradient = run(forms.rival, c, config)
    policy = torch.tensor(c["policy"], requires_grad=True)
    theirs = rivals(policy, c, config)
    theirs.backward()
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-9)
    assert policy.grad is not None
    # Where ratio and clipped ratio are equal, torch.minimum halves the gradient between two equal paths: the same sum.
    assert gradient.numpy() == pytest.approx(policy.grad.numpy(), abs=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_pays_for_distance_inside_the_advantage(seed: int, beta: float) -> None:
    c = case(seed)
    expected_loss, expected_gradient = 0.0, np.zeros_like(c["policy"])
    for i, kept in enumerate(c["mask"]):
        paid = c["advantages"][i, kept] - beta * (c["policy"][i, kept] - c["reference"][i, kept])
        expected_loss -= c["weights"][i] * (paid * c["policy"][i, kept]).mean()
        expected_gradient[i, kept] = -c["weights"][i] * paid / kept.sum()
    loss, gradient = run(forms.reinforce, c, Hyperparameters(kl_beta=beta))
    assert loss.item() == pytest.approx(expected_loss)
    assert gradient.numpy() == pytest.approx(expected_gradient)


@pytest.mark.parametrize("seed", SEEDS)
def test_bco_is_binary_cross_entropy_on_the_shifted_reward(seed: int) -> None:
    c, loss = case(seed, spread=1.0), Bco()
    ratios = np.where(c["mask"], c["policy"] - c["reference"], 0).sum(axis=1)
    for shift in (0.0, (1 - DECAY) * ratios.mean()):
        chance = 1 / (1 + np.exp(-CONFIG.beta * (ratios - shift)))
        values = -np.log(np.where(c["good"], chance, 1 - chance)) * abs(c["advantages"][:, 0])
        assert run(loss, c)[0].item() == pytest.approx(float(c["weights"] @ values))
    assert loss.shift == pytest.approx((1 - DECAY**2) * ratios.mean())


def test_an_objective_is_a_known_name_or_an_import_path() -> None:
    spec = {"run_id": "r", "base_model": "m", "base_weights": "w", "base_digest": "d", "weights_cache": "c"}
    assert JobSpec(**spec, objective="my.losses:margin").objective == "my.losses:margin"
    with pytest.raises(ValueError, match="expected mis_po, kto, dpo, sft, critique, hybrid"):
        JobSpec(**spec, objective="mispo")
