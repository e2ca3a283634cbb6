"""A base model in 8 or 4 bits while a LoRA in full precision is trained on it.

QLoRA: Dettmers et al., arXiv 2305.14314.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from transformers import BitsAndBytesConfig

from burnish.training.errors import JobError, MissingDependency
from burnish.training.job import Quantize


def quantization(wanted: Quantize, device: torch.device, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """Return how transformers shall load a base model; None = as it is.

    4 bits are NF4 with quantised constants, computed in ``dtype``. Raises JobError off CUDA, MissingDependency without
    bitsandbytes.
    """
    if wanted == "none":
        return None
    if device.type != "cuda":
        raise JobError(
            f"train.quantize is {wanted!r}, which needs an NVIDIA GPU, but training runs on {device.type!r}: set "
            'train.quantize to "none", or train.device to a GPU'
        )
    if find_spec("bitsandbytes") is None:
        raise MissingDependency(
            f'train.quantize is {wanted!r}, which needs bitsandbytes: run  pip install "burnish[quantize]"'
        )
    if wanted == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
