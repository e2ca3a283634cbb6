"""How large a model is, by its own files, and which device has enough memory for it. Imports no ML framework.

The GPU may be shared with the engine that serves: a trainer that takes memory which is not free would fail half-way,
or make the engine fail. So the need is estimated from above before anything is loaded.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError, safe_open

from burnish.adapters.convert.gguf_layout import field, open_gguf
from burnish.system.extras import TRAINING
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters, ModelSize, Quantize

_GB = 1e9
# bf16, which every GPU worth training on has; an older one trains in fp32 and needs up to twice as much.
BYTES = 2
# Of a linear layer's weight; NF4 has constants for each block, themselves quantised.
WEIGHT_BYTES: dict[Quantize, float] = {"none": BYTES, "8bit": 1.15, "4bit": 0.6}
# Outputs that a layer keeps for its backward pass, in multiples of the hidden and of the inner size: norms, q, k, v,
# attention's output and both residual sums; gate, up, their product, and its input to the last projection. LoRA's
# dropout-free branches keep the same inputs again, hence rounded up.
HIDDEN_KEPT, INNER_KEPT = 16, 6
# Logits of a reply in the model's format, their gradient, and slices of both in fp32.
LOGITS_KEPT = 3
# A gradient goes through the end of a conversation only, which is rarely longer; of what is before, keys and values are
# in memory, and once more for each head of the layer that reads them.
LONG_END = 2048
# Weights, gradients and Adam's two moments of the adapter are fp32; the allocator rounds up and fragments.
OVERHEAD = 1.15
# A GPU is idle most of the time with as few tokens at once as suit a laptop's memory: an H200 took 38 s for 32 ratings
# on an 8B model, and 16 s with 16 times as many. The first that fits is taken.
TIMES_AS_MANY = (16, 8, 4, 2)
# torch and its libraries, and the gradients of single replies (backends.base).
TRAINER_BYTES = 1.4e9
# Of most models with fewer than eight billion parameters: inner size by hidden size, and the smaller vocabularies.
USUAL_INNER, USUAL_VOCABULARY = 3, 50_000


class Sizes(NamedTuple):
    """Of a dense model, as its config.json has them."""

    hidden: int
    inner: int
    layers: int
    vocabulary: int
    keys: int
    """Width of a layer's keys."""


def framework(
    device: str, quantize: Quantize, *, apple: bool, torch: bool, mlx: bool
) -> Literal["torch", "mlx"]:
    """Return the framework that trains, given ``train.device``, whether this is Apple silicon, and what is installed.

    Apple's own, MLX, comes first there. torch trains if a device or a quantisation is named that only torch knows.
    """
    if not (torch and mlx):
        return "mlx" if mlx else "torch"
    return "mlx" if apple and device == "auto" and quantize == "none" else "torch"


def framework_here(device: str, quantize: Quantize) -> Literal["torch", "mlx"]:
    return framework(
        device,
        quantize,
        apple=sys.platform == "darwin" and platform.machine() == "arm64",
        torch=all(find_spec(name) for name in TRAINING),
        mlx=find_spec("mlx_lm") is not None,
    )


def pick(device: str, free_bytes: Sequence[int], *, mps: bool = False) -> str:
    """Return "cpu", "mps" or "cuda:N" for a ``train.device``, given the free memory of each GPU.

    ``mps``: torch sees Apple's GPU. "auto" is the GPU with most room, or the CPU where there is none; "shared" is that
    GPU or an error. Raises JobError, which says what there is.
    """
    count = len(free_bytes)
    names = [*(f"cuda:{n}" for n in range(count)), *(["mps"] if mps else [])]
    there = f"{len(names)} ({', '.join(names)})" if names else "none"
    if mps and (device == "mps" or (device in ("auto", "shared") and not count)):
        return "mps"
    if device == "cpu" or (device == "auto" and not count):
        return "cpu"
    if device in ("auto", "shared", "cuda") and count:
        roomiest = max(range(count), key=lambda number: free_bytes[number])
        return "cuda:0" if device == "cuda" else f"cuda:{roomiest}"
    number = device.removeprefix("cuda:")
    if number.isdecimal() and int(number) < count:
        return device
    raise JobError(
        f"train.device is {device!r}, but torch sees these GPUs: {there}; name one of them, or set train.device to "
        '"cpu" or "auto"'
    )


def demand_room(device: str, free_bytes: int, needed_bytes: int) -> None:
    """Raise JobError when a GPU has less room than training is estimated to need."""
    if needed_bytes > free_bytes:
        raise JobError(
            f"training needs about {needed_bytes / _GB:.1f} GB on {device}, of which {free_bytes / _GB:.1f} GB are "
            "free: the ratings are kept and training is tried again later. Give the engine a smaller share of the "
            "GPU (vLLM: --gpu-memory-utilization), lower train.advanced.max_tokens if prompts are short, or set "
            'train.device to "cpu"'
        )


def needed_bytes(weights: Path, config: Hyperparameters, quantize: Quantize = "none") -> int:
    """Estimate from above what training on a Hugging Face directory takes on a GPU, in bytes.

    Raises JobError when the directory does not say its sizes.
    """
    return estimated_bytes(parameters(weights), _sizes(weights), config, quantize)


def tokens_at_once(weights: Path, config: Hyperparameters, quantize: Quantize, free_bytes: int) -> int:
    """Return how many tokens one forward pass takes on a GPU: up to 16 times ``micro_batch_tokens`` if there is room.

    Raises JobError when the directory does not say its sizes.
    """
    tokens = config.micro_batch_tokens
    for times in TIMES_AS_MANY:
        wider = config.model_copy(update={"micro_batch_tokens": times * tokens})
        if needed_bytes(weights, wider, quantize) <= free_bytes:
            return times * tokens
    return tokens


def estimated_bytes(count: int, sizes: Sizes, config: Hyperparameters, quantize: Quantize = "none") -> int:
    """Estimate from above what training a model of ``count`` parameters takes on a GPU, in bytes.

    Weights in bf16 or quantised (embedding and head never are), plus the greater of two forward passes (see
    backends.torch_peft): a micro-batch that keeps what its layers put out, or one long conversation that keeps each
    layer's input and recomputes one layer at a time. Either ends in logits over the vocabulary. A model with recurrent
    layers or windows, which reads long prompts whole, needs more for those.
    """
    hidden, inner, layers, vocabulary, keys = sizes
    kept_in_layer = BYTES * (HIDDEN_KEPT * hidden + INNER_KEPT * inner)
    logits = BYTES * LOGITS_KEPT * vocabulary
    batch = config.micro_batch_tokens * (layers * kept_in_layer + logits)
    long = _end(config) * (layers * BYTES * hidden + kept_in_layer + logits)
    long += (config.max_tokens - _end(config)) * 2 * BYTES * ((layers + 1) * keys + hidden)
    whole = min(count, 2 * vocabulary * hidden)
    weights = BYTES * whole + WEIGHT_BYTES[quantize] * (count - whole)
    return math.ceil(OVERHEAD * (weights + max(batch, long)))


def _end(config: Hyperparameters) -> int:
    return min(config.max_tokens, LONG_END)


def main_memory(size: ModelSize, config: Hyperparameters) -> int:
    """Estimate from above what training takes without a GPU, in bytes, before the first run has told.

    As ``needed_bytes``, with usual proportions and without long prompts: those of 4,000 tokens take 5 % more. The small
    model took 1.9 to 2.5 GB; this gives 2.6.
    """
    in_layer = HIDDEN_KEPT * size.hidden + INNER_KEPT * USUAL_INNER * size.hidden
    long = _end(config) * BYTES * (size.layers * size.hidden + in_layer + LOGITS_KEPT * USUAL_VOCABULARY)
    return math.ceil(TRAINER_BYTES + OVERHEAD * (BYTES * size.parameters + long))


def parameters(weights: Path) -> int:
    """Count the parameters in the safetensors headers of a directory. Raises JobError."""
    count = 0
    for path in weights.glob("*.safetensors"):
        try:
            with safe_open(path, "numpy") as file:
                count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise JobError(f"{path} is not a safetensors file: {error}") from error
    return count


def _sizes(weights: Path) -> Sizes:
    try:
        config = json.loads((weights / "config.json").read_bytes())
        config |= config.get("text_config", {})  # models that also see
        hidden = int(config["hidden_size"])
        inner = int(config.get("intermediate_size") or 4 * hidden)
        heads = int(config.get("num_attention_heads") or 1)
        width = int(config.get("head_dim") or hidden // heads)
        keys = width * int(config.get("num_key_value_heads") or heads)
        return Sizes(hidden, inner, int(config["num_hidden_layers"]), int(config["vocab_size"]), keys)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobError(
            f"{weights / 'config.json'} doesn't contain the size of the model ({error!r}), so burnish can't "
            'tell whether the GPU has room; set train.device to "cuda" to train without asking'
        ) from error


# What Hugging Face configurations call it: Llama and most others; GPT-2; Mamba and T5.
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
# Mixtral, gpt-oss; Qwen, OLMoE; DeepSeek, GLM; Ernie.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
# Most; gpt-oss; Ernie.
_EXPERTS_USED = ("num_experts_per_tok", "experts_per_token", "moe_k")


def model_size(weights: Path) -> ModelSize | None:
    """Read the size from a GGUF file or a Hugging Face directory; None when they do not say it."""
    try:
        size = _of_directory(weights) if weights.is_dir() else _of_gguf(weights)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, JobError):
        return None  # what is wrong with the file is said where it is loaded
    return size if min(size.hidden, size.layers, size.parameters) > 0 else None


def _of_directory(path: Path) -> ModelSize:
    config = json.loads((path / "config.json").read_bytes())
    config |= config.get("text_config") or {}  # models that also see
    return ModelSize(
        hidden=_first(config, _HIDDEN),
        layers=_first(config, _LAYERS),
        parameters=parameters(path),
        experts=_first(config, _EXPERTS, 0),
        experts_used=_first(config, _EXPERTS_USED, 0),
    )


def _first(config: dict[str, Any], names: tuple[str, ...], *otherwise: int) -> int:
    numbers = [int(config[name]) for name in names if config.get(name)]
    return [*numbers, *otherwise][0]


def _of_gguf(path: Path) -> ModelSize:
    reader = open_gguf(path)
    architecture = field(reader, "general.architecture")
    return ModelSize(
        hidden=int(field(reader, f"{architecture}.embedding_length")),
        layers=int(field(reader, f"{architecture}.block_count")),
        parameters=sum(math.prod(int(n) for n in tensor.shape) for tensor in reader.tensors),
        experts=int(field(reader, f"{architecture}.expert_count") or 0),
        experts_used=int(field(reader, f"{architecture}.expert_used_count") or 0),
    )
