"""Names of models that mean something to burnish. Imports nothing of ours."""

from __future__ import annotations

DEFAULT_MODEL = "default"
"""Model name that always means the main upstream's own model."""
LATEST = ":latest"
"""Ollama's default tag. Some clients only request models that are listed with a tag."""


def plain(model: str) -> str:
    return model.removesuffix(LATEST)
