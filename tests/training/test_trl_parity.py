"""The same batch, the same loss as TRL's trainers compute; our log-probabilities come from plain transformers, fp32."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from burnish.training.backends.torch_peft import TorchFunctions
from burnish.training.job import Hyperparameters
from burnish.training.objectives import Batch, dpo, kto, sft

# What TRL and its libraries warn of is theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

CLOSE = 1e-4
CONFIG = Hyperparameters(beta=0.1)
QUESTIONS = ("What is rain?", "Why is the sky blue?", "Who was Mozart?", "Where do bees live?")
FIELDS = ("input_ids", "attention_mask", "completion_mask")
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


def batch_of(models: tuple[Any, Any], good: torch.Tensor, *fields: torch.Tensor) -> Batch:
    ids, attended, replied = fields
    policy, reference = (logps(model, ids, attended) for model in models)
    mask = replied[:, 1:].bool()
    return Batch(policy, reference, reference, mask, torch.ones_like(policy), good, torch.ones(len(ids)))


def loss_and_inputs(
    kind: str,
    models: tuple[Any, Any],
    tokenizer: Any,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    **more: Any,
) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of TRL's trainer of one kind ("KTO", …) on its first batch, and that batch."""
    import trl
    from datasets import Dataset

    settings = {
        **{"output_dir": str(tmp_path), "per_device_train_batch_size": len(rows), "max_steps": 1},
        **{"report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False},
    }
    reference = {} if kind == "SFT" else {"ref_model": models[1]}
    data: dict[str, Any] = {
        "processing_class": tokenizer,
        "train_dataset": Dataset.from_list(rows),
        **reference,
    }
    arguments = getattr(trl, f"{kind}Config")(**settings, **more)
    trainer = getattr(trl, f"{kind}Trainer")(model=copy.deepcopy(models[0]), args=arguments, **data)
    inputs = next(iter(trainer.get_train_dataloader()))
    trainer.model.eval()
    with torch.no_grad():
        return float(trainer.compute_loss(trainer.model, dict(inputs))), inputs


def test_kto(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    rows = [
        {"prompt": question, "completion": LONG if n % 2 else SHORT, "label": n % 2 == 0}
        for n, question in enumerate(QUESTIONS)
    ]
    theirs, inputs = loss_and_inputs("KTO", models, tokenizer, tmp_path, rows, beta=CONFIG.beta)
    good = torch.as_tensor(inputs["label"]).bool()
    ours, apart = (batch_of(models, good, *(inputs[kind + name] for name in FIELDS)) for kind in ("", "KL_"))
    point = float(apart.log_ratio(apart.reference, TorchFunctions).sum(dim=1).mean().clamp(min=0))
    found = kto(replace(ours, point=point), CONFIG, TorchFunctions) / len(QUESTIONS)
    assert float(found) == pytest.approx(theirs, abs=CLOSE)
    assert abs(theirs - 0.5) > 10 * CLOSE, "at the start any formula gives a half"


def test_dpo(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    rows = [{"prompt": question, "chosen": SHORT, "rejected": LONG} for question in QUESTIONS]
    theirs, inputs = loss_and_inputs("DPO", models, tokenizer, tmp_path, rows, beta=CONFIG.beta)
    # Theirs come as all chosen, then all rejected; ours in pairs.
    count = len(QUESTIONS)
    order = [place for n in range(count) for place in (n, count + n)]
    good = torch.tensor([True, False] * count)
    ours = batch_of(models, good, *(inputs[name][order] for name in FIELDS))
    assert float(dpo(ours, CONFIG, TorchFunctions) / (2 * count)) == pytest.approx(theirs, abs=CLOSE)
    assert abs(theirs - 0.6931) > 10 * CLOSE


def test_sft_of_one_reply(models: tuple[Any, Any], tokenizer: Any, tmp_path: Path) -> None:
    # TRL takes the mean over all tokens of a batch, we over each reply's first: for one reply these are the same.
    rows = [{"prompt": QUESTIONS[0], "completion": LONG}]
    theirs, inputs = loss_and_inputs("SFT", models, tokenizer, tmp_path, rows, completion_only_loss=True)
    attended = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    ours = batch_of(models, torch.tensor([True]), inputs["input_ids"], attended, inputs["labels"] != -100)
    assert float(sft(ours, CONFIG, TorchFunctions)) == pytest.approx(theirs, abs=CLOSE)
