"""Names of engines, as settings have them. Imports nothing of burnish."""

from __future__ import annotations

from typing import Literal

ManagedKind = Literal["vllm", "mlx", "llama-server"]
"""Engines that burnish can start itself."""
OLLAMA = "ollama:"
"""Begins the name of a model in Ollama's store, e.g. "ollama:qwen3:0.6b"."""
