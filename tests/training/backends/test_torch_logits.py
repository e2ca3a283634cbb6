"""Log-probabilities against float64, and drawing replies on the tiny model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.training.backends.base import Sampled
from burnish.training.backends.torch_logits import LIKELY, LOGIT_ROWS, from_nucleus, group_logps, token_logps
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.checkpoint import Checkpoint
from burnish.training.rendering import Rendered
from tests.support.jobs import NO_BASE, TOPICS, brief_samples, write_job

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


PROMPTS = 8
LIMITS = [24] * PROMPTS


def prompts_of(backend: TorchPeftBackend) -> list[tuple[int, ...]]:
    asked = [[{"role": "user", "content": f"What is {each.lower()}? One word."}] for each in TOPICS[:PROMPTS]]
    return [tuple(backend.renderer.prompt(messages)) for messages in asked]


def test_replies_of_a_batch_score_as_they_do_alone(backend: TorchPeftBackend) -> None:
    """Rows leave the batch one by one: what is left must still follow its own prompt."""
    prompts = prompts_of(backend)
    # Which seeds draw an early end depends on the processor: its kernels round differently.
    draws = ((seed, backend.sample(prompts, "bare", LIMITS, seed=seed)) for seed in range(1, 50))
    seed, drawn = next((seed, drawn) for seed, drawn in draws if len({len(each.ids) for each in drawn}) > 1)
    assert backend.sample(prompts, "bare", LIMITS, seed=seed) == drawn
    assert backend.sample(prompts, "bare", LIMITS, seed=seed + 1) != drawn
    pairs = zip(prompts, drawn, strict=True)
    alone = [backend.logps([Rendered(prompt, reply.ids)], "bare")[0] for prompt, reply in pairs]
    for each, logps in zip(drawn, alone, strict=True):
        assert each.logps == pytest.approx(logps, abs=OF_A_TOKEN)
        assert fmean(each.logps) == pytest.approx(fmean(logps), abs=OF_A_REPLY)
        assert each.finished == (each.ids[-1] in backend.renderer.end_ids)
        assert not backend.renderer.end_ids & set(each.ids[:-1])


def test_no_reply_is_longer_than_its_own_limit(backend: TorchPeftBackend) -> None:
    limits = [3 + number % 4 for number in range(PROMPTS)]
    drawn = backend.sample(prompts_of(backend), "bare", limits, seed=1)
    lengths = [len(reply.ids) for reply in drawn]
    assert all(length <= limit for length, limit in zip(lengths, limits, strict=True))
    assert all(reply.finished or len(reply.ids) == limit for reply, limit in zip(drawn, limits, strict=True))


@pytest.mark.parametrize("stop", [1, 3])
def test_tries_that_a_stopped_run_has_drawn_are_not_drawn_again(
    backend: TorchPeftBackend, tmp_path: Path, stop: int
) -> None:
    """It ends within a try and between two; what it comes to is what a run without a stop comes to."""
    prompts = [prompt + (9,) * 2000 for prompt in prompts_of(backend)]  # so long that few share a group
    job = write_job(tmp_path / "job", NO_BASE, brief_samples(4, 0))
    whole = backend.sample(prompts, "bare", LIMITS, 7, Checkpoint(job).tries(1))
    tries = Checkpoint(job).tries(2)

    class Stopping:
        def drawn(self) -> dict[int, Sampled]:
            return tries.drawn()

        def keep(self, drawn: dict[int, Sampled]) -> None:
            tries.keep(drawn)
            if len(drawn) > stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backend.sample(prompts, "bare", LIMITS, 7, Stopping())
    kept = tries.drawn()
    assert stop < len(kept) < PROMPTS
    marked = {place: replace(reply, logps=(-1.0,)) for place, reply in kept.items()}
    tries.keep(marked)
    again = backend.sample(prompts, "bare", LIMITS, 7, Checkpoint(job).tries(2))
    assert again == [marked.get(place, reply) for place, reply in enumerate(whole)]
    other = write_job(tmp_path / "job", NO_BASE, brief_samples(3, 0))
    assert Checkpoint(other).tries(2).drawn() == {}, "other ratings, other prompts"
