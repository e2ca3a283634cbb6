"""The base model, and a fresh adapter on it, in torch and peft."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from burnish.training.backends.base import ATTENTION, target_names
from burnish.training.errors import JobError
from burnish.training.job import Hyperparameters


def fresh_lora(base: Any, config: Hyperparameters) -> LoraConfig:
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=0.0,
        target_modules=targets(base, config.targets),
    )


def targets(base: Any, choice: Sequence[str] = ()) -> str | list[str]:
    """Return which modules a fresh LoRA changes: all linear layers, but in a mixture of experts only the attention's.

    There, peft's "all-linear" takes the fused experts and the routers, too (0.21, Mixtral, Qwen 3 and DeepSeek), and so
    it does as soon as a single gate_proj is named. But an expert sees few of some thirty replies, and a router must not
    move with them. ``choice``: the user's own choice. Raises JobError when the model has no such layer.
    """
    if not choice:
        if not any(name.endswith(".experts") for name, _ in base.named_modules()):
            return "all-linear"
        choice = (ATTENTION,)
    head = base.get_output_embeddings()
    return target_names(
        [
            name
            for name, module in base.named_modules()
            if isinstance(module, torch.nn.Linear) and module is not head
        ],
        choice,
    )


def load_base(
    weights: Path, dtype: torch.dtype, device: torch.device, quantized: BitsAndBytesConfig | None
) -> Any:
    # bitsandbytes quantises on the way to the GPU, and its models must not be moved afterwards. What it leaves alone
    # (embeddings, norms) keeps ``dtype``, as without it: peft's prepare_model_for_kbit_training would make that fp32.
    placed = {"quantization_config": quantized, "device_map": {"": device}} if quantized else {}
    model = AutoModelForCausalLM.from_pretrained(
        weights, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True, **placed
    )
    if not quantized:
        model = model.to(device)
    return model.requires_grad_(False).eval()


def compute_narrowly(model: Any) -> None:
    """Have adapters computed in the model's number format.

    peft converts each layer's input and output to fp32, in which it has the factors: an eighth of a step.
    """
    for module in model.modules():
        if isinstance(module, Linear) and type(module.base_layer) is torch.nn.Linear:
            module.forward = partial(_adapted, module, module.forward)


def _adapted(layer: Any, by_peft: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if (
        layer.disable_adapters
        or len(names) != 1
        or names[0] in layer.lora_variant
        or layer.lora_bias[names[0]]
    ):
        return by_peft(x, *args, **kwargs)
    name = names[0]
    base: Tensor = layer.base_layer(x)
    a, b = (factors[name].weight.to(x.dtype) for factors in (layer.lora_A, layer.lora_B))
    low = linear(x, a).flatten(0, -2)
    return torch.addmm(base.flatten(0, -2), low, b.T, alpha=layer.scaling[name]).view_as(base)


@contextmanager
def loading(what: str, path: Path) -> Iterator[None]:
    """Turn what transformers, peft and safetensors raise on damaged files into one error."""
    try:
        with quiet():
            yield
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError) as error:
        raise JobError(f"cannot load the {what} {path}: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the deprecation warnings that peft and transformers give each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
