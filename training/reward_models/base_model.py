"""Loads the base model to look at it; nothing is trained. Code in its directory never runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnish.system.memory import available_bytes
from burnish.training.errors import JobError, MissingDependency

FP32_BYTES = 2
"""For each byte of weights, which are stored in 16 bits."""
BESIDE_BYTES = 500_000_000
"""torch, and what passes through the model."""
MOST_BYTES = 4_000_000_000
"""Of weights, in 16 bits: two thousand million parameters need seconds for each reply."""


def loaded_base(weights: Path, threads: int) -> tuple[Any, Any]:
    """Return tokenizer and model of a Hugging Face directory, in fp32 on the CPU.

    Raises JobError, also if there is no room, and MissingDependency.
    """
    _check_room(weights)
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise MissingDependency.because(error) from error
    torch.set_num_threads(threads)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(weights, **options)
        model = AutoModel.from_pretrained(weights, dtype=torch.float32, use_safetensors=True, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise JobError(f"the base model in {weights} can't be loaded: {error}") from error
    return tokenizer, model.eval()


def _check_room(weights: Path) -> None:
    size = sum(file.stat().st_size for file in weights.glob("*.safetensors"))
    if size > MOST_BYTES:
        raise JobError(
            f"the base model has {size / 1e9:.1f} GB of weights, too many to look at each reply with it"
        )
    needed, free = FP32_BYTES * size + BESIDE_BYTES, available_bytes()
    if free is not None and free < needed:
        raise JobError(
            f"the base model needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
        )
