"""The device, the number format and the quantisation for torch."""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import BitsAndBytesConfig

from burnish.system.extras import how_to_install
from burnish.training.device import demand_room, needed_bytes, pick, tokens_at_once
from burnish.training.errors import JobError, MissingDependency
from burnish.training.job import Hyperparameters, Quantize

# Each takes about a millisecond; the first ones prepare kernels.
DTYPE_TRIES = 20
# Without instructions for it, bf16 is several times slower; anything less is noise, and fp32 costs memory.
CLEARLY_FASTER = 1.5


def training_device(setting: str, weights: Path, config: Hyperparameters, quantize: Quantize) -> torch.device:
    """Choose where to train; on a GPU that the user did not give to training alone there must be room."""
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    name = pick(setting, free, mps=torch.backends.mps.is_available())
    device = torch.device(name)
    # cuDNN's attention, torch's first choice on Hopper cards, gave gradients that are no numbers for padded batches
    # (torch 2.11 on an H200). This process does nothing but train.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if device.type == "cuda" and setting in ("auto", "shared"):
        demand_room(name, free[device.index], needed_bytes(weights, config, quantize))
    return device


def micro_batch_tokens(
    device: torch.device, dtype: torch.dtype, weights: Path, config: Hyperparameters, quantize: Quantize
) -> int:
    """Return how many tokens one forward pass takes: more than set on an NVIDIA GPU with room, half in fp32."""
    tokens = config.micro_batch_tokens
    if device.type == "cuda":
        with suppress(JobError):  # the model's sizes are unknown, and the user gave this GPU to training
            tokens = tokens_at_once(weights, config, quantize, torch.cuda.mem_get_info(device)[0])
    return tokens // 2 if dtype is torch.float32 else tokens


def faster_dtype(device: torch.device) -> torch.dtype:
    """Return the number format to train in: bf16, unless this machine is clearly faster with fp32.

    bf16 halves memory everywhere; processors without instructions for it (before AVX512-BF16, AMX, ARMv8.6) are
    several times slower with it, and nothing but a try tells which is which. The tries alternate and only the best of
    each counts, so that a busy machine does not decide.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "mps":
        return torch.float32  # the first of Apple's processors have no instructions for bf16
    operands = {
        dtype: (torch.ones(256, 512, dtype=dtype), torch.ones(512, 1024, dtype=dtype))
        for dtype in (torch.float32, torch.bfloat16)
    }
    best = dict.fromkeys(operands, math.inf)
    for _ in range(DTYPE_TRIES):
        for dtype, (first, second) in operands.items():
            started = time.perf_counter()
            first @ second
            best[dtype] = min(best[dtype], time.perf_counter() - started)
    clearly = best[torch.float32] * CLEARLY_FASTER < best[torch.bfloat16]
    return torch.float32 if clearly else torch.bfloat16


def quantization(quantize: Quantize, device: torch.device, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """Return how transformers shall load a base model; None = as it is.

    A LoRA in full precision is trained on it. 4 bits are NF4 with quantised constants, computed in ``dtype``. Source:
    QLoRA, Dettmers et al., arXiv 2305.14314. Raises JobError off CUDA, MissingDependency without bitsandbytes.
    """
    if quantize == "none":
        return None
    if device.type != "cuda":
        raise JobError(
            f"train.quantize is {quantize!r}, which needs an NVIDIA GPU, but training runs on {device.type!r}: set "
            'train.quantize to "none", or train.device to a GPU'
        )
    if find_spec("bitsandbytes") is None:
        raise MissingDependency(
            f"train.quantize is {quantize!r}, which needs bitsandbytes; run: {how_to_install('quantize')}"
        )
    if quantize == "8bit":
        # It warns of each layer in each pass that bf16 becomes fp16.
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
