"""Log-probabilities of tokens, and of groups of them, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burnish.training.backends.torch_logits import LOGIT_ROWS, group_logps, token_logps

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
    assert tensor.grad is not None
    assert tensor.grad.numpy() == pytest.approx(np.eye(WIDTH)[targets] - probability, abs=1e-5)


def test_some_tokens_and_all_others_together_are_the_whole_distribution():
    draw = np.random.default_rng(1)
    logits = draw.normal(0, 4, (ROWS, WIDTH))
    probability = softmax(logits)
    chosen = np.argsort(-logits, axis=1)[:, :7]
    others = np.ones_like(logits, dtype=bool)
    np.put_along_axis(others, chosen, False, axis=1)
    rest = np.where(others, probability, 0)
    expected = np.concatenate(
        [np.take_along_axis(probability, chosen, axis=1), rest.sum(axis=1, keepdims=True)], axis=1
    )
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    found = group_logps(tensor, torch.tensor(chosen))
    assert found.detach().numpy() == pytest.approx(np.log(expected), abs=1e-5)
    # d log(sum of the others) = each one's share of them - its probability.
    found[:, -1].sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.numpy() == pytest.approx(
        rest / rest.sum(axis=1, keepdims=True) - probability, abs=1e-5
    )


def test_what_is_left_where_the_model_is_sure_does_not_drown_in_rounding():
    logits = torch.zeros(1, WIDTH)
    logits[0, 0] = 30.0
    left = np.log(WIDTH - 1) - 30.0
    assert group_logps(logits, torch.tensor([[0]]))[0, 1].item() == pytest.approx(left, abs=1e-5)
    assert left < np.log(torch.finfo(torch.float32).eps)


def test_shapes_before_the_vocabulary_stay():
    logits = torch.randn(2, 3, WIDTH)
    ids = logits.topk(4).indices
    assert token_logps(logits, ids[..., 0]).equal(group_logps(logits, ids)[..., 0])
    assert group_logps(logits, ids).shape == (2, 3, 5)
