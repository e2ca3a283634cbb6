"""The same batch, the same loss as TRL's trainers compute; our log-probabilities come from plain transformers, fp32."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives.arrays import Batch
from burnish.training.objectives.imitation import sft
from burnish.training.objectives.preference import dpo, kto

# What TRL and its libraries warn of is theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

CLOSE = 1e-4
CONFIG = Hyperparameters(beta=0.1)
QUESTIONS = ("What is rain?", "Why is the sky blue?", "Who was Mozart?", "Where do bees live?")
LONG, SHORT = " It is a long story, and there are many sides to it.", " Water."


@pytest.fixture(scope="module")
def tokenizer(tiny_weights: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_weights)


@pytest.fixture(scope="module")
def models(tokenizer: Any) -> tuple[Any, Any]:
    """A policy and the reference that it came from."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    reference = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()
    policy = copy.deepcopy(reference)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return policy, reference


def logps(model: Any, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """Log-probability of every token but the first, (B, T - 1)."""
    with torch.no_grad():
        found = model(input_ids=ids, attention_mask=attended).logits[:, :-1].log_softmax(dim=-1)
    return found.gather(2, ids[:, 1:, None]).squeeze(2)


def batch_of(
    models: tuple[Any, Any],
    ids: torch.Tensor,
    attended: torch.Tensor,
    replied: torch.Tensor,
    good: torch.Tensor,
) -> Batch:
    policy, reference = (logps(model, ids, attended) for model in models)
    mask = replied[:, 1:].bool()
    return Batch(policy, reference, reference, mask, torch.ones_like(policy), good, torch.ones(len(ids)))


def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": len(QUESTIONS),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "max_steps": 1,
    }


def loss_and_inputs(trainer: Any) -> tuple[float, dict[str, torch.Tensor]]:
    inputs = next(iter(trainer.get_train_dataloader()))
    trainer.model.eval()
    with torch.no_grad():
        return float(trainer.compute_loss(trainer.model, dict(inputs))), inputs


def test_kto(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import KTOConfig, KTOTrainer

    rows = [
        {"prompt": question, "completion": LONG if n % 2 else SHORT, "label": n % 2 == 0}
        for n, question in enumerate(QUESTIONS)
    ]
    trainer = KTOTrainer(
        model=copy.deepcopy(models[0]),
        ref_model=models[1],
        args=KTOConfig(**settings(tmp_path), beta=CONFIG.beta),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
    )
    theirs, inputs = loss_and_inputs(trainer)
    good = torch.as_tensor(inputs["label"]).bool()
    ours = batch_of(models, inputs["input_ids"], inputs["attention_mask"], inputs["completion_mask"], good)
    apart = batch_of(
        models, inputs["KL_input_ids"], inputs["KL_attention_mask"], inputs["KL_completion_mask"], good
    )
    point = float(apart.log_ratio(apart.reference, TorchFunctions).sum(dim=1).mean().clamp(min=0))
    measured = Batch(
        ours.policy, ours.behaviour, ours.reference, ours.mask, ours.advantages, good, ours.weights, point
    )
    found = kto(measured, CONFIG, TorchFunctions) / len(QUESTIONS)
    assert float(found) == pytest.approx(theirs, abs=CLOSE)
    assert abs(theirs - 0.5) > 10 * CLOSE, "at the start any formula gives a half"


def test_dpo(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    rows = [{"prompt": question, "chosen": SHORT, "rejected": LONG} for question in QUESTIONS]
    trainer = DPOTrainer(
        model=copy.deepcopy(models[0]),
        ref_model=models[1],
        args=DPOConfig(**settings(tmp_path), beta=CONFIG.beta),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
    )
    theirs, inputs = loss_and_inputs(trainer)
    # Theirs come as all chosen, then all rejected; ours in pairs.
    count = len(QUESTIONS)
    order = [place for n in range(count) for place in (n, count + n)]
    ids, attended, replied = (
        inputs[name][order] for name in ("input_ids", "attention_mask", "completion_mask")
    )
    good = torch.tensor([True, False] * count)
    ours = dpo(batch_of(models, ids, attended, replied, good), CONFIG, TorchFunctions) / (2 * count)
    assert float(ours) == pytest.approx(theirs, abs=CLOSE)
    assert abs(theirs - 0.6931) > 10 * CLOSE


def test_sft_of_one_reply(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    # TRL takes the mean over all tokens of a batch, we over each reply's first: for one reply these are the same.
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    one = settings(tmp_path) | {"per_device_train_batch_size": 1}
    trainer = SFTTrainer(
        model=copy.deepcopy(models[0]),
        args=SFTConfig(**one, completion_only_loss=True),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": QUESTIONS[0], "completion": LONG}]),
    )
    theirs, inputs = loss_and_inputs(trainer)
    replied = inputs["labels"] != -100
    attended = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    good = torch.tensor([True])
    ours = sft(batch_of(models, inputs["input_ids"], attended, replied, good), CONFIG, TorchFunctions)
    assert float(ours) == pytest.approx(theirs, abs=CLOSE)
