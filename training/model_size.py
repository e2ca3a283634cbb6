"""How large a model is, as its own files say. Importable without any framework: the proxy reads it, too."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from burnish.adapters.convert.gguf_layout import field, open_gguf
from burnish.training.device import parameters
from burnish.training.errors import JobError
from burnish.training.job import ModelSize

# What Hugging Face configurations call it: Llama and most others; GPT-2; Mamba and T5.
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
# Mixtral, gpt-oss; Qwen, OLMoE; DeepSeek, GLM; Ernie.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def model_size(weights: Path) -> ModelSize | None:
    """Read the size from a GGUF file or a Hugging Face directory; None when they do not say it."""
    try:
        found = _of_directory(weights) if weights.is_dir() else _of_gguf(weights)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, JobError):
        return None  # what is wrong with the file is said where it is loaded
    return found if min(found.hidden, found.layers, found.parameters) > 0 else None


def _of_directory(path: Path) -> ModelSize:
    said = json.loads((path / "config.json").read_bytes())
    said |= said.get("text_config") or {}  # models that also see
    return ModelSize(
        hidden=_first(said, _HIDDEN),
        layers=_first(said, _LAYERS),
        parameters=parameters(path),
        experts=_first(said, _EXPERTS, 0),
    )


def _first(said: dict[str, Any], names: tuple[str, ...], *otherwise: int) -> int:
    found = [int(said[name]) for name in names if said.get(name)]
    return [*found, *otherwise][0]


def _of_gguf(path: Path) -> ModelSize:
    reader = open_gguf(path)
    architecture = field(reader, "general.architecture")
    return ModelSize(
        hidden=int(field(reader, f"{architecture}.embedding_length")),
        layers=int(field(reader, f"{architecture}.block_count")),
        parameters=sum(math.prod(int(n) for n in tensor.shape) for tensor in reader.tensors),
        experts=int(field(reader, f"{architecture}.expert_count") or 0),
    )
