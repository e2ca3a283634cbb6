"""A store of models as Ollama lays it out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

LIBRARY = "registry.ollama.ai/library"
LAYER = "application/vnd.ollama.image."


def pulled(store: Path, gguf: Path, name: str = f"{LIBRARY}/qwen3/0.6b", **more: str) -> tuple[Path, Path]:
    """Put a model into the store, as ``ollama pull`` does; ``more``: texts of other layers, by their kind.

    Returns its manifest and its blob, which is a link to ``gguf``.
    """
    content = gguf.read_bytes()
    blob = store / "blobs" / f"sha256-{hashlib.sha256(content).hexdigest()}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    if not blob.exists():
        blob.symlink_to(gguf)
    layers = [layer("model", content), *(layer(kind, text.encode()) for kind, text in more.items())]
    return listing(store, name, layers), blob


def layer(kind: str, content: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": LAYER + kind, "digest": digest, "size": len(content)}


def listing(store: Path, name: str, layers: list[Mapping[str, object]] | list[dict[str, object]]) -> Path:
    manifest = store / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    media = "application/vnd.docker.distribution.manifest.v2+json"
    manifest.write_text(json.dumps({"schemaVersion": 2, "mediaType": media, "layers": layers}))
    return manifest
