"""Long prompts on the tiny model: two agents' begin with rules of their own, and some prompts are short."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM

from burnish.training.backends.base import Lesson, LessonReply, micro_batches
from burnish.training.backends.heads import Heads, head_of
from burnish.training.backends.torch_heads import behind, continued, has_heads, weaves
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.rendering import Rendered
from tests.support.jobs import TOPICS
from tests.support.tiny_models import tiny_model, tiny_shape
from tests.training.backends.test_torch_peft import BF16_MEAN, CONFIG, SMALL, difference

SMALL_SIZES = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4},
}
RULES = "Always answer in three words. ", "Never speak of it, and call the tool instead. "


@pytest.fixture
def trainee(tiny_weights: Path) -> TorchPeftBackend:
    return TorchPeftBackend(tiny_weights, None, CONFIG, seed=0)


def conversations(backend: TorchPeftBackend) -> list[Rendered]:
    plain = backend.renderer.plain
    rules = [plain(rule * 80)[:600] for rule in RULES]
    beginnings = [rules[0], rules[1], [], rules[0][:450] + rules[1], rules[0]]
    return [
        Rendered((*beginning, *plain(f"What is {topic}?")), tuple(plain(f"It is a kind of {topic}.")))
        for beginning, topic in zip(beginnings, TOPICS, strict=False)
    ]


def of_whole_pass(model: Any, reply: Rendered) -> Tensor:
    """Log-probabilities of the reply's tokens, (R,)."""
    logps = model(torch.tensor([reply.ids])).logits[0, :-1].log_softmax(dim=-1)
    places = torch.arange(len(reply.prompt) - 1, len(reply.ids) - 1)
    return logps[places, torch.tensor(reply.reply)]


def test_prompts_with_the_same_head_are_batched_together(backend: TorchPeftBackend):
    replies = conversations(backend)
    heads = [head_of([reply.prompt]) for reply in replies]
    assert heads[0] == heads[4]
    assert heads[2] == ()
    assert all(reply.prompt[: len(head)] == head for reply, head in zip(replies, heads, strict=True))
    assert head_of([replies[0].prompt, replies[3].prompt]) == replies[0].prompt[:416], "they share 450 tokens"
    assert sorted(map(sorted, micro_batches(replies, 10_000, head_of))) == [[0, 4], [1], [2], [3]]


def test_what_replies_begin_with_is_computed_once(backend: TorchPeftBackend, tiny_weights: Path):
    plain = backend.renderer.plain
    prompts = [tuple(plain(text)) for text in ("What is a lamp?", "What is a lamp post?")]
    replies = [
        Rendered(prompt, tuple(plain(text)))
        for prompt in prompts
        for text in ("It is a light.", "It is a thing that glows.", "A light.")
    ]
    size = len({reply.ids[:end] for reply in replies for end in range(1, len(reply.ids) + 1)})
    assert size < sum(len(reply.ids) for reply in replies) * 2 / 3
    assert micro_batches(replies, size, woven=True) == [
        sorted(range(6), key=lambda place: replies[place].ids)
    ]
    assert len(micro_batches(replies, size - 1, woven=True)) == 2
    model = AutoModelForCausalLM.from_pretrained(tiny_weights, dtype=backend.dtype)
    with torch.no_grad():
        scores = [tuple(of_whole_pass(model, reply).float().tolist()) for reply in replies]
    assert difference(backend.logps(replies, "bare"), scores) < BF16_MEAN


@pytest.mark.parametrize(
    ("config", "can"),
    [
        (transformers.LlamaConfig(**SMALL_SIZES), True),
        (transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), False),
    ],
    ids=("llama", "bloom"),
)
def test_a_model_that_counts_positions_by_itself_reads_each_sequence_alone(config: Any, can: bool):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert has_heads(model)
    assert weaves(model) is can


def test_long_prompts_score_and_answer_as_in_a_whole_pass(backend: TorchPeftBackend, tiny_weights: Path):
    model = AutoModelForCausalLM.from_pretrained(tiny_weights, dtype=backend.dtype)
    replies = conversations(backend)
    with torch.no_grad():
        scores = [tuple(of_whole_pass(model, reply).float().tolist()) for reply in replies]
    assert difference(backend.logps(replies, "bare"), scores) < BF16_MEAN
    assert difference(backend.logps(replies[::-1], "trained")[::-1], scores) < BF16_MEAN
    answers = backend.sample([reply.prompt for reply in replies], "bare", [6] * 5, 0, greedy=True)
    drawn = [Rendered(reply.prompt, answer.ids) for reply, answer in zip(replies, answers, strict=True)]
    with torch.no_grad():
        scores = [tuple(of_whole_pass(model, reply).float().tolist()) for reply in drawn]
    assert difference([answer.logps for answer in answers], scores) < BF16_MEAN


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft and transformers deprecate each other's names
def test_gradients_are_those_of_a_whole_pass_in_which_the_head_has_none(
    trainee: TorchPeftBackend, tiny_weights: Path, tmp_path: Path
):
    replies = conversations(trainee)
    logps = trainee.logps(replies, "bare")
    batch = [
        Lesson("sft", (LessonReply(reply, 1.0, 1.0, row, row),))
        for reply, row in zip(replies, logps, strict=True)
    ]
    trainee.step(batch, CONFIG, 0.0)
    trainee.save(tmp_path, "tiny")
    assert difference(trainee.logps(replies, "trained"), trainee.logps(replies, tmp_path)) == 0
    base = AutoModelForCausalLM.from_pretrained(tiny_weights, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, tmp_path, is_trainable=True)
    heads = [len(head_of([reply.prompt])) for reply in replies]
    alike = trainee.similarity(replies)
    assert np.abs(alike - _similarity(model, replies, heads)).max() < 0.02
    assert np.abs(alike - _similarity(model, replies, [0] * len(replies))).max() > 0.05


def _similarity(model: Any, replies: list[Rendered], heads: list[int]) -> NDArray[np.float64]:
    """Cosines between gradients of whole passes; none goes through the keys and values of the heads."""
    rows = []
    for reply, head in zip(replies, heads, strict=True):
        hooks = [
            module.register_forward_hook(
                lambda _, __, out, head=head: torch.cat([out[:, :head].detach(), out[:, head:]], dim=1)
            )
            for name, module in model.named_modules()
            if name.endswith((".k_proj", ".v_proj"))
        ]
        matrices = [p for name, p in model.named_parameters() if ".lora_B." in name]
        gradients = torch.autograd.grad(of_whole_pass(model, reply).mean(), matrices)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        for hook in hooks:
            hook.remove()
    flat = torch.nn.functional.normalize(torch.stack(rows))
    return (flat @ flat.T).double().numpy()


@pytest.mark.parametrize(("architecture", "attention"), [("llama", "sdpa"), ("qwen3", "eager")])
def test_rows_of_different_lengths_go_on_from_a_head(architecture: str, attention: str):
    model = tiny_model(tiny_shape(architecture))
    model.set_attn_implementation(attention)
    ids = torch.randint(300, 900, (2, 700), generator=torch.Generator().manual_seed(0))
    ids[1, :660] = ids[0, :660]
    with torch.no_grad():
        whole = model(ids).logits
    assert has_heads(model)
    heads = Heads(partial(continued, model))
    for length in (640, 600, 660):  # the next one begins with the one before, or the other way round
        head = heads.pairs(tuple(ids[0, :length].tolist()))
        first, second = ids[0, length:], ids[1, length:-5]
        rows = torch.stack([first, torch.cat([second.new_zeros(5), second])])
        mask = torch.ones(2, 700)
        mask[1, length : length + 5] = 0
        places = length + (mask[:, length:].cumsum(dim=1) - 1).clamp(min=0).long()
        with torch.no_grad():
            end = model(rows, attention_mask=mask, position_ids=places, **behind(model, head)).logits
        assert torch.allclose(end[0], whole[0, length:], atol=1e-3)
        assert torch.allclose(end[1, 5:], whole[1, length:-5], atol=1e-3)


@pytest.mark.parametrize("kind", ["linear_attention", "sliding_attention"])
def test_a_model_that_does_not_look_at_everything_has_no_heads(kind: str):
    config = transformers.LlamaConfig(**SMALL, layer_types=[kind, "full_attention"], sliding_window=16)
    assert not has_heads(AutoModelForCausalLM.from_config(config))
