"""Log-probabilities against float64, and drawing replies on the tiny model."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.backends.torch_logits import LIKELY, LOGIT_ROWS, from_nucleus, group_logps, token_logps
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.rendering import Rendered
from tests.support.jobs import TOPICS

ROWS, WIDTH = 2 * LOGIT_ROWS + 3, 50


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_log_probabilities_and_gradients_agree_with_float64():
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 4, (ROWS, WIDTH))
    targets = draw.integers(0, WIDTH, ROWS)
    probability = softmax(logits)
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    found = token_logps(tensor, torch.tensor(targets))
    assert found.detach().numpy() == pytest.approx(np.log(probability[np.arange(ROWS), targets]), abs=1e-5)
    found.sum().backward()
    assert tensor.grad.numpy() == pytest.approx(np.eye(WIDTH)[targets] - probability, abs=1e-5)


def test_some_tokens_and_all_others_together_are_the_whole_distribution():
    draw = np.random.default_rng(1)
    logits = draw.normal(0, 4, (ROWS, WIDTH))
    probability = softmax(logits)
    chosen = np.argsort(-logits, axis=1)[:, :7]
    others = np.ones_like(logits, dtype=bool)
    np.put_along_axis(others, chosen, False, axis=1)
    rest = np.where(others, probability, 0)
    expected = np.hstack([np.take_along_axis(probability, chosen, axis=1), rest.sum(axis=1, keepdims=True)])
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    found = group_logps(tensor, torch.tensor(chosen))
    assert found.detach().numpy() == pytest.approx(np.log(expected), abs=1e-5)
    # d log(sum of the others) = each one's share of them - its probability.
    found[:, -1].sum().backward()
    share = rest / rest.sum(axis=1, keepdims=True)
    assert tensor.grad.numpy() == pytest.approx(share - probability, abs=1e-5)


def test_what_is_left_where_the_model_is_sure_does_not_drown_in_rounding():
    logits = torch.zeros(1, WIDTH)
    logits[0, 0] = 30.0
    left = np.log(WIDTH - 1) - 30.0
    assert group_logps(logits, torch.tensor([[0]]))[0, 1].item() == pytest.approx(left, abs=1e-5)
    assert left < np.log(torch.finfo(torch.float32).eps)


TOP_P = 0.9
# bf16 computes a little otherwise in another batch: of one token, and of a reply's mean. A reply to another prompt is
# nats away.
OF_A_TOKEN, OF_A_REPLY = 0.5, 0.05


@given(logits=st.lists(st.floats(-8, 8), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_only_the_likeliest_tokens_that_hold_the_share_are_drawn(logits: list[float], seed: int) -> None:
    torch.manual_seed(seed)
    drawn = int(from_nucleus(torch.tensor([logits]), TOP_P))
    probability = torch.tensor(logits).softmax(0)
    likelier = probability[probability > probability[drawn]].sum()
    assert likelier < TOP_P + 1e-6


def test_a_nucleus_wider_than_what_is_looked_at_first_is_drawn_from_as_well() -> None:
    torch.manual_seed(0)
    flat = torch.zeros(2000, 8 * LIKELY)
    drawn = from_nucleus(flat, TOP_P)
    assert len(set(drawn.tolist())) > LIKELY


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    torch.manual_seed(0)
    # The last one is out of the nucleus, and the others share what it had.
    wanted = torch.tensor([0.6, 0.3, 0.1])
    drawn = from_nucleus(wanted.log().repeat(20_000, 1), TOP_P)
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert shares.tolist() == pytest.approx([2 / 3, 1 / 3, 0], abs=0.015)


def test_replies_of_a_batch_score_as_they_do_alone(backend: TorchPeftBackend) -> None:
    """Rows leave the batch one by one: what is left must still follow its own prompt."""
    asked = [[{"role": "user", "content": f"What is {topic.lower()}? One word."}] for topic in TOPICS[:8]]
    prompts = [tuple(backend.renderer.prompt(messages)) for messages in asked]
    # Which seeds draw an early end depends on the processor: its kernels round differently.
    draws = ((seed, backend.sample(prompts, "bare", 24, seed=seed)) for seed in range(1, 50))
    seed, drawn = next((seed, drawn) for seed, drawn in draws if len({len(each.ids) for each in drawn}) > 1)
    assert backend.sample(prompts, "bare", 24, seed=seed) == drawn
    assert backend.sample(prompts, "bare", 24, seed=seed + 1) != drawn
    pairs = zip(prompts, drawn, strict=True)
    alone = [backend.logps([Rendered(prompt, reply.ids)], "bare")[0] for prompt, reply in pairs]
    for each, logps in zip(drawn, alone, strict=True):
        assert each.logps == pytest.approx(logps, abs=OF_A_TOKEN)
        assert fmean(each.logps) == pytest.approx(fmean(logps), abs=OF_A_REPLY)
        assert each.finished == (each.ids[-1] in backend.renderer.end_ids)
        assert not backend.renderer.end_ids & set(each.ids[:-1])
