"""Names of models and engines that mean something to burnish. Imports nothing of ours."""

from __future__ import annotations

from typing import Literal

DEFAULT_MODEL = "default"
"""Model name that always means the main upstream's own model."""
LATEST = ":latest"
"""Ollama's default tag. Some clients only request models that are listed with a tag."""
OLLAMA = "ollama:"
"""Begins the name of a model in Ollama's store, e.g. "ollama:qwen3:0.6b"."""
ManagedKind = Literal["vllm", "mlx", "llama-server"]
"""Engines that burnish can start itself."""


def plain(model: str) -> str:
    return model.removesuffix(LATEST)
