"""LoRA adapters in PEFT layout, made here without torch, and how they become versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from burnish.adapters.manifest import AdapterVersion, Manifest, Provenance
from burnish.adapters.registry import Registry
from tests.support.tiny_gguf import LINEAR, Array, Shape, tiny_lora

Make = Callable[..., AdapterVersion]
"""A fixture that makes one more version."""
DIGEST = "sha256:" + "0" * 64
PROVENANCE: dict[str, Any] = {
    **{"parent": 0, "run_id": "run_1", "feedback_ids": (), "objective": "none"},
    **{"hyperparameters": {}, "metrics": {}},
}
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
SMALL = Shape("llama", heads=9, kv_heads=3, head_dim=64, hidden=576, ffn=1536, blocks=30)
"""Of SmolLM2-135M."""


def random_lora(seed: int, rank: int = 4, strength: float = 0.02) -> dict[str, Array]:
    """Tensors of a LoRA on every linear layer of the small model, named as PEFT names them."""
    return tiny_lora(SMALL, seed, rank, strength)


def write_peft(path: Path, tensors: dict[str, Array], rank: int = 4, **config: object) -> Path:
    """Write a PEFT directory; ``config`` adds to adapter_config.json, or changes it."""
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / "adapter_model.safetensors")
    plain = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "smollm2",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(name.rpartition(".")[2] for name in LINEAR),
        "inference_mode": True,
    }
    (path / "adapter_config.json").write_text(json.dumps(plain | config))
    return path


def version_of(path: Path, number: int, base_digest: str, base_model: str = "smollm2") -> AdapterVersion:
    """A version as the registry would hand it out, without a registry."""
    files = ("adapter_model.safetensors", "adapter_config.json")
    manifest = Manifest(
        version=number,
        base_model=base_model,
        base_digest=base_digest,
        created_at="2026-01-01T00:00:00Z",
        checksums={name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in files},
        **PROVENANCE,
    )
    return AdapterVersion(manifest=manifest, path=path, state="candidate", reason="made for a test")


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
    usual = PROVENANCE | {"base_model": base_model, "base_digest": base_digest}
    return registry.register(directory, Provenance(**usual | changes))
