"""A …ForCausalLM made of the checkpoint of a …ForConditionalGeneration: its versions have the checkpoint's names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters
from tests.training.backends.test_torch_peft import CONFIG, difference, rated

TEXT_PART = "model.language_model."


@pytest.fixture(scope="module")
def seeing(tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen 3.5, which transformers trains without its eyes, under other names than it is stored by."""
    folder = tmp_path_factory.mktemp("seeing")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tiny_weights / name, folder / name)
    text = {
        "vocab_size": 2048, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 2, "num_key_value_heads": 2, "layer_types": ["full_attention"] * 2,
    }  # fmt: skip
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    torch.manual_seed(0)
    config = transformers.Qwen3_5Config(
        text_config=text, vision_config=vision | {"num_position_embeddings": 16}
    )
    transformers.Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_a_version_has_the_names_of_the_checkpoint_and_can_be_trained_on(
    seeing: Path, tmp_path: Path
) -> None:
    backend = TorchPeftBackend(seeing, None, CONFIG, seed=0)
    batch = rated(backend, 2)
    tokens = [item.replies[0].tokens for item in batch]
    backend.step(batch, CONFIG, 0.0)
    trained = backend.logps(tokens, "trained")
    saved = tmp_path / "saved"
    saved.mkdir()
    backend.save(saved, "qwen3.5")
    modules = {name.rpartition(".lora_")[0] for name in load_file(saved / "adapter_model.safetensors")}
    stored = {name.removesuffix(".weight") for name in load_file(seeing / "model.safetensors")}
    assert modules and {module.removeprefix("base_model.model.") for module in modules} <= stored
    assert difference(trained, [item.replies[0].reference_logps for item in batch]) > 0
    assert difference(backend.logps(tokens, saved), trained) == 0
    assert difference(TorchPeftBackend(seeing, saved, CONFIG, seed=1).logps(tokens, "trained"), trained) == 0
    assert backend.weight_change(saved) > 0
    for prefix in ("language_model.model.", "model."):
        other = Path(shutil.copytree(saved, tmp_path / prefix))
        renamed = {
            name.replace(TEXT_PART, prefix): tensor
            for name, tensor in load_file(saved / "adapter_model.safetensors").items()
        }
        save_file(renamed, other / "adapter_model.safetensors")
        assert difference(backend.logps(tokens, other), trained) == 0


def test_layers_that_the_checkpoint_calls_otherwise_are_refused_before_training(
    seeing: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(seeing, tmp_path / "other"))
    tensors = load_file(other / "model.safetensors")
    fused = {name.replace("q_proj", "wq"): tensor for name, tensor in tensors.items()}
    save_file(fused, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(JobError, match=r"no weight for model\.layers\.0\.self_attn\.q_proj"):
        TorchPeftBackend(other, None, Hyperparameters(), seed=0)
