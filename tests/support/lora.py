"""LoRA adapters for the small model, made here without torch: random, and strong enough to be seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from burnish.adapters.manifest import AdapterVersion, Manifest

BLOCKS = 30
SHAPES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}
"""Module → (out, in) of SmolLM2-135M."""


def random_lora(seed: int, rank: int = 4, strength: float = 0.02) -> dict[str, NDArray[np.float32]]:
    """Tensors of a LoRA on every linear layer, named as PEFT names them."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for block in range(BLOCKS):
        for module, (out, width) in SHAPES.items():
            name = f"base_model.model.model.layers.{block}.{module}"
            tensors[f"{name}.lora_A.weight"] = dice.normal(0, width**-0.5, (rank, width)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = dice.normal(0, strength, (out, rank)).astype(np.float32)
    return tensors


def write_peft(path: Path, tensors: dict[str, NDArray[np.float32]], rank: int = 4, **config: object) -> Path:
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
        "target_modules": sorted(name.rpartition(".")[2] for name in SHAPES),
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
        parent=0,
        run_id="run_test",
        created_at="2026-01-01T00:00:00Z",
        feedback_ids=(),
        objective="none",
        hyperparameters={},
        metrics={},
        checksums={name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in files},
    )
    return AdapterVersion(manifest=manifest, path=path, state="candidate", reason="made for a test")
