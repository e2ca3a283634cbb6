"""Small adapters in PEFT layout, right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.registry import Registry
from tests.support.lora import write_peft

DIGEST = "sha256:" + "0" * 64
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def tensors(rank: int = 2, fill: float = 0.5) -> dict[str, np.ndarray]:
    return {
        f"{LAYER}.lora_A.weight": np.full((rank, 8), fill, np.float32),
        f"{LAYER}.lora_B.weight": np.full((8, rank), fill, np.float32),
    }


def write_adapter(directory: Path, weights: dict[str, np.ndarray] | None = None) -> Path:
    return write_peft(directory, weights or tensors(), 2, target_modules=["q_proj"])


def register(
    registry: Registry,
    directory: Path,
    base_digest: str = DIGEST,
    base_model: str = "smollm2",
    **changes: Any,
) -> AdapterVersion:
    """Register a trained adapter; ``changes``: other provenance than usual."""
    usual: dict[str, Any] = {"parent": 0, "run_id": "run_1", "feedback_ids": [], "objective": "none"}
    usual |= {"hyperparameters": {}, "metrics": {}, "base_model": base_model, "base_digest": base_digest}
    return registry.register(directory, **usual | changes)
