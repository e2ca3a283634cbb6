"""On the tiny model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from burnish.adapters.weights_file import check_adapter
from burnish.training.backends import base
from burnish.training.backends.base import LIKELIEST, Lesson, LessonReply, Logps
from burnish.training.backends.torch_base import targets
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.errors import Diverged, JobError
from burnish.training.job import Hyperparameters, LossName
from burnish.training.rendering import Rendered
from tests.support.jobs import LONG, SHORT, TOPICS, context

# Ten times the default, so that one step moves further than bf16 rounds.
CONFIG = Hyperparameters(learning_rate=3e-3)
# Log-probabilities of the same tokens in bf16, computed in batches of other shapes.
BF16_MEAN = 0.03


def replies(backend: TorchPeftBackend, count: int = 4) -> list[Rendered]:
    """Short and long ones in turn."""
    said = [(LONG if n % 2 else SHORT).format(topic) for n, topic in enumerate(TOPICS[:count])]
    messages = [{"role": "assistant", "content": text} for text in said]
    pairs = zip(TOPICS, messages, strict=False)
    return [backend.renderer.conversation(context(topic), (), reply, True, 2048) for topic, reply in pairs]


@pytest.fixture
def trainee(tiny_weights: Path) -> TorchPeftBackend:
    return TorchPeftBackend(tiny_weights, None, CONFIG, seed=0)


def lesson(tokens: Rendered, logps: Logps, advantage: float, loss: LossName = "mis_po") -> Lesson:
    return Lesson(loss, (LessonReply(tokens, advantage, 1.0, logps, logps),))


def rated(backend: TorchPeftBackend, count: int = 4) -> list[Lesson]:
    tokens = replies(backend, count)
    logps = backend.logps(tokens, "bare")
    rows = enumerate(zip(tokens, logps, strict=True))
    return [lesson(reply, row, -1.0 if n % 2 else 1.0) for n, (reply, row) in rows]


def difference(left: Sequence[Logps], right: Sequence[Logps]) -> float:
    """Mean over all tokens."""
    return float(np.abs(np.concatenate(left) - np.concatenate(right)).mean())


def mean(logps: Logps) -> float:
    return sum(logps) / len(logps)


def test_scores_are_those_of_the_bare_model_reply_by_reply(backend: TorchPeftBackend, tiny_weights: Path):
    model = AutoModelForCausalLM.from_pretrained(tiny_weights, dtype=torch.float32)
    tokens = replies(backend)
    expected = []
    for reply in tokens:
        with torch.no_grad():
            logps = model(torch.tensor([reply.ids])).logits[0, :-1].log_softmax(dim=-1)
        places = range(len(reply.prompt) - 1, len(reply.ids) - 1)
        expected.append(tuple(float(logps[place, reply.ids[place + 1]]) for place in places))
    found = backend.logps(tokens, "bare")
    assert [len(row) for row in found] == [len(reply.reply) for reply in tokens]
    assert difference(found, expected) < 0.05  # bf16 against fp32
    assert difference(found, backend.logps(tokens, "trained")) < BF16_MEAN  # lora_B is still zero


def test_order_and_grouping_do_not_matter(backend: TorchPeftBackend):
    tokens = replies(backend, 6)
    backwards = backend.logps(tokens[::-1], "bare")[::-1]
    alone = [backend.logps([reply], "bare")[0] for reply in tokens]
    assert difference(backwards, alone) < BF16_MEAN


def test_a_step_raises_good_replies_and_lowers_bad_ones_and_leaves_the_bare_model(trainee: TorchPeftBackend):
    batch = rated(trainee)
    tokens = [item.replies[0].tokens for item in batch]
    for _ in range(3):
        metrics = trainee.step(batch, CONFIG, 0.0)
    after = trainee.logps(tokens, "trained")
    for item, row in zip(batch, after, strict=True):
        assert (mean(row) - mean(item.replies[0].reference_logps)) * item.replies[0].pull > 0.02
    assert metrics["good_shift"] > 0 > metrics["bad_shift"]
    assert metrics["kl_per_token"] > 0
    bare = [item.replies[0].reference_logps for item in batch]
    assert difference(trainee.logps(tokens, "bare"), bare) < BF16_MEAN


def test_what_was_saved_is_what_was_trained_and_a_run_can_go_on_from_it(
    trainee: TorchPeftBackend, tiny_weights: Path, tmp_path: Path
):
    batch = rated(trainee)
    tokens = [item.replies[0].tokens for item in batch]
    trainee.step(batch, CONFIG, 0.0)
    trained = trainee.logps(tokens, "trained")
    trainee.save(tmp_path, "smollm2")
    assert difference(trained, [item.replies[0].reference_logps for item in batch]) > 0.05
    assert difference(trainee.logps(tokens, tmp_path), trained) == 0
    assert difference(trainee.logps(tokens, "trained"), trained) == 0
    child = TorchPeftBackend(tiny_weights, tmp_path, CONFIG, seed=1)
    assert difference(child.logps(tokens, "trained"), trained) == 0
    child.step(batch, CONFIG, 0.0)
    assert difference(child.logps(tokens, "trained"), trained) > 0.05
    assert difference(child.logps(tokens, tmp_path), trained) == 0


def test_replies_of_a_kind_are_alike(backend: TorchPeftBackend, monkeypatch: pytest.MonkeyPatch):
    tokens = replies(backend, 6)  # short and long ones in turn
    alike = backend.similarity([*tokens, tokens[0]])
    assert alike.shape == (7, 7)
    assert alike == pytest.approx(alike.T, abs=1e-6)
    assert alike.diagonal() == pytest.approx(np.ones(7))
    assert alike[0, 6] == pytest.approx(1, abs=1e-2)
    same = np.array([[(i - j) % 2 == 0 for i in range(6)] for j in range(6)])
    others = ~np.eye(6, dtype=bool)
    assert alike[:6, :6][same & others].mean() > alike[:6, :6][~same].mean() + 0.05
    # A gradient's projection keeps the angles: here to one of 16 directions.
    monkeypatch.setattr(base, "GRADIENT_BYTES", 1)
    assert np.abs(backend.similarity(tokens) - alike[:6, :6]).max() < 0.1


def test_learning_one_reply_teaches_those_that_are_alike(trainee: TorchPeftBackend):
    """What similarity means: the first-order change of one reply by a step along another's gradient."""
    first, *others = replies(trainee, 6)
    alike = trainee.similarity([first, *others])[0, 1:]
    before = trainee.logps(others, "bare")
    reference = trainee.logps([first], "bare")[0]
    trainee.step([lesson(first, reference, 1.0)], CONFIG, 0.0)
    gained = [mean(a) - mean(b) for a, b in zip(trainee.logps(others, "trained"), before, strict=True)]
    short, long = [1, 3], [0, 2, 4]
    assert min(gained[n] for n in short) > max(gained[n] for n in long)
    assert min(alike[n] for n in short) > max(alike[n] for n in long)


def test_the_weights_change_by_the_matrices(trainee: TorchPeftBackend, tiny_weights: Path, tmp_path: Path):
    trainee.step(rated(trainee), CONFIG, 0.0)
    trainee.save(tmp_path, "smollm2")
    saved = load_file(tmp_path / "adapter_model.safetensors")
    stored = load_file(tiny_weights / "model.safetensors")
    changed = total = 0.0
    for name, a in saved.items():
        if ".lora_A." in name:
            matrix = saved[name.replace("lora_A", "lora_B")] @ a  # alpha is the rank
            changed += float((matrix**2).sum())
            base_name = name.removeprefix("base_model.model.").replace(".lora_A", "")
            total += float((stored[base_name].float() ** 2).sum())
    assert trainee.weight_change(tmp_path) == pytest.approx((changed / total) ** 0.5, rel=1e-3)
    assert trainee.weight_change(tmp_path) > 1e-5


def test_a_saved_adapter_is_safe_and_private(trainee: TorchPeftBackend, tiny_weights: Path, tmp_path: Path):
    trainee.step(rated(trainee, 2), CONFIG, 0.0)
    trainee.save(tmp_path, "smollm2")
    check_adapter(tmp_path)
    text = (tmp_path / "adapter_config.json").read_text()
    config = json.loads(text)
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("smollm2", 16, 16)
    assert {name.rpartition(".")[2] for name in config["target_modules"]} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    assert str(tiny_weights) not in text
    assert str(Path.home()) not in text


def test_the_seed_draws_the_adapter(tiny_weights: Path, tmp_path: Path):
    contents = []
    for seed in (0, 0, 1):
        TorchPeftBackend(tiny_weights, None, CONFIG, seed=seed).save(tmp_path, "smollm2")
        contents.append((tmp_path / "adapter_model.safetensors").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_micro_batches_and_recomputed_layers_make_the_same_step(tiny_weights: Path):
    together = TorchPeftBackend(tiny_weights, None, CONFIG, seed=0)
    batch = rated(together, 2)
    apart = TorchPeftBackend(tiny_weights, None, Hyperparameters(micro_batch_tokens=8), seed=0)
    left, right = together.step(batch, CONFIG, 0.0), apart.step(batch, CONFIG, 0.0)
    assert right["tokens"] == left["tokens"]
    # Attention is computed in two ways, in bf16.
    assert right["loss"] == pytest.approx(left["loss"], abs=BF16_MEAN)
    assert right["grad_norm"] == pytest.approx(left["grad_norm"], rel=0.05)


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_changes_nothing(trainee: TorchPeftBackend, advantage: float):
    sound = rated(trainee, 2)
    tokens = [item.replies[0].tokens for item in sound]
    broken = [lesson(item.replies[0].tokens, item.replies[0].reference_logps, advantage) for item in sound]
    before = trainee.logps(tokens, "trained")
    with pytest.raises(Diverged, match="lower learning_rate"):
        trainee.step(broken, CONFIG, 0.0)
    assert trainee.logps(tokens, "trained") == before


def test_a_bad_adapter_is_refused_and_the_backend_stays_usable(backend: TorchPeftBackend, tmp_path: Path):
    backend.save(tmp_path, "smollm2")
    path, tokens = tmp_path / "adapter_model.safetensors", replies(backend, 1)
    before = backend.logps(tokens, "trained")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(JobError, match="cannot load the adapter"):
        backend.logps(tokens, tmp_path)
    path.rename(tmp_path / "adapter_model.bin")
    with pytest.raises(JobError, match=r"adapter_model\.safetensors is missing"):
        backend.logps(tokens, tmp_path)
    assert backend.logps(tokens, "trained") == before


def test_a_damaged_base_model_is_refused(tiny_weights: Path, tmp_path: Path):
    for path in tiny_weights.iterdir():
        kept = 10_000 if path.suffix == ".safetensors" else None
        (tmp_path / path.name).write_bytes(path.read_bytes()[:kept])
    with pytest.raises(JobError, match="cannot load the base model"):
        TorchPeftBackend(tmp_path, None, CONFIG, seed=0)


SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
MIXTURES = [
    (transformers.MixtralConfig, {"num_local_experts": 4}),
    (transformers.Qwen2MoeConfig, {"num_experts": 4, "shared_expert_intermediate_size": 16}),
    (transformers.Qwen3MoeConfig, {"num_experts": 4, "moe_intermediate_size": 16}),
    (transformers.DeepseekV3Config, {"n_routed_experts": 4, "num_experts_per_tok": 2, **LATENT}),
    (transformers.GptOssConfig, {"num_local_experts": 4, "head_dim": 16}),
]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft and transformers deprecate each other's names
@pytest.mark.parametrize(("kind", "sizes"), MIXTURES)
def test_in_a_mixture_of_experts_only_the_attention_is_changed(kind: type, sizes: dict[str, object]):
    base = AutoModelForCausalLM.from_config(kind(**SMALL, **sizes))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=targets(base)))
    changed = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert changed
    assert all(".self_attn." in name for name in changed)
    assert {name.split(".layers.")[1][0] for name in changed} == {"0", "1"}


def test_a_distribution_is_what_each_of_its_tokens_scores(backend: TorchPeftBackend):
    tokens = replies(backend, 2)
    found = backend.distributions(tokens, "bare")
    for reply, each in zip(tokens, found, strict=True):
        assert len(each.ids) == len(each.probabilities) == len(reply.reply)
        assert {len(set(row)) for row in each.ids} == {LIKELIEST}
        assert np.sum(each.probabilities, axis=1) == pytest.approx(1, abs=1e-4)
        share = 1 - np.mean([row[-1] for row in each.probabilities])
        assert share > 4 * LIKELIEST / 2048, "they are the likeliest"
    place = 3
    before = tokens[0].prompt + tokens[0].reply[:place]
    following = [Rendered(before, (each,)) for each in found[0].ids[place]]
    scored = [math.exp(row[0]) for row in backend.logps(following, "trained")]
    assert scored == pytest.approx(found[0].probabilities[place][:-1], abs=BF16_MEAN)


def saved(backend: TorchPeftBackend, directory: Path) -> dict[str, torch.Tensor]:
    directory.mkdir()
    backend.save(directory, "tiny")
    return load_file(directory / "adapter_model.safetensors")


def test_an_adapter_goes_on_the_layers_that_the_user_names(tiny_weights: Path, tmp_path: Path):
    backend = TorchPeftBackend(tiny_weights, None, Hyperparameters(targets=("up_proj", "attention")), seed=0)
    changed = {name.split(".lora_")[0].rpartition(".")[2] for name in saved(backend, tmp_path / "adapter")}
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj"}
    with pytest.raises(JobError, match=r"no linear layer called qkv; it has: .*q_proj"):
        TorchPeftBackend(tiny_weights, None, Hyperparameters(targets=("qkv",)), seed=0)


def test_with_lora_plus_b_learns_faster_and_a_as_before(tiny_weights: Path, tmp_path: Path):
    found = []
    for ratio in (1.0, 4.0):
        config = CONFIG.model_copy(update={"lora_plus_ratio": ratio})
        backend = TorchPeftBackend(tiny_weights, None, config, seed=0)
        backend.step(rated(backend), config, 0.0)
        found.append(saved(backend, tmp_path / str(ratio)))
    plain, plus = found
    for name, weights in plain.items():
        # B begins at zero, so its weights are what it learnt.
        assert torch.allclose(plus[name], weights * (4.0 if ".lora_B." in name else 1.0), rtol=1e-2), name
    assert any(weights.any() for name, weights in plain.items() if ".lora_B." in name)
