"""Tiny transformers models with random weights, and LoRAs for them, of every architecture that the converter knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from tests.support import tiny_gguf
from tests.support.tiny_gguf import Shape

CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral3": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "gemma": transformers.GemmaConfig,
    "gemma2": transformers.Gemma2Config,
    "gemma3": transformers.Gemma3TextConfig,
}
"""Architecture as GGUF calls it → a configuration of transformers. (Mistral's are "llama" or "mistral3".)"""


def tiny_shape(architecture: str, **more: Any) -> Shape:
    """A size that llama.cpp takes: it wants the heads of llama and qwen2 together as wide as the model."""
    narrow = {"head_dim": 16} if architecture in ("llama", "qwen2") else {}
    # Gemma 3's sixth layer is the first that looks at everything.
    return Shape(architecture, **narrow | {"blocks": 6 if architecture == "gemma3" else 2} | more)


def tiny_model(shape: Shape, config: type | None = None) -> Any:
    """A model in fp32 whose random weights are large enough to make every part of it matter; says plain text only."""
    sizes: dict[str, Any] = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.blocks,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": 4096,
    }
    if shape.architecture in ("gemma2", "gemma3"):
        sizes |= {"query_pre_attn_scalar": shape.head_dim, "sliding_window": 512}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        (config or CONFIGS[shape.architecture])(**sizes), dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[1] ** -0.5)
                if len(parameter) == shape.vocabulary:
                    parameter[torch.from_numpy(~tiny_gguf.sayable(shape.vocabulary))] = 0
            else:  # norms and biases
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def steps(model: Any, prompt: list[int], tokens: int) -> list[NDArray[np.float32]]:
    """The log-probabilities of all tokens, at each step of a greedy answer."""
    ids, found = list(prompt), []
    with torch.inference_mode():
        for _ in range(tokens):
            logprobs = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).numpy()
            found.append(logprobs)
            ids.append(int(logprobs.argmax()))
    return found


def greedy(model: Any, prompt: list[int], tokens: int) -> list[int]:
    return [int(logprobs.argmax()) for logprobs in steps(model, prompt, tokens)]


def tiny_base(path: Path, shape: Shape, model: Any, **more: Any) -> Path:
    """The model as a GGUF in fp32; ``more``: as tiny_gguf.of_model."""
    return tiny_gguf.of_model(
        path, shape, {name: t.numpy() for name, t in model.state_dict().items()}, **more
    )
