"""Time and disk of a swap by merged weights: measured for the small model, computed for larger ones.

The stages of burnish's own work (merge, digest and upload, create) are timed on an idle engine. For larger models they
are computed in proportion to the size of the merged file. Loading isn't: it depends on the engine's disk and GPU.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.ollama_api import OllamaApi
from burnish.adapters.manifest import AdapterVersion
from burnish.adapters.merging import ensure_merged

REPEATS = 5
_GB = 1e9
# A block of 32 weights in q8_0 has 34 bytes.
_LINEAR_BYTES = 34 / 32
# Embeddings and output of a Q4_K_M file: q6_K, 210 bytes for 256 weights, and q4_K, 144.
_Q6_K, _Q4_K = 210 / 256, 144 / 256

MERGED_BYTES = {
    "1B": 0.973e9 * _LINEAR_BYTES + 0.263e9 * _Q6_K,
    "4B": 3.633e9 * _LINEAR_BYTES + 0.389e9 * _Q6_K,
    "8B": 6.979e9 * _LINEAR_BYTES + 0.525e9 * (_Q4_K + _Q6_K),
}
"""Llama 3.2 1B, Qwen 3 4B, Llama 3.1 8B in Q4_K_M → size of the merged file: linear tensors in q8_0, the rest as is."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of each stage, one entry a repetition, and the size of the file."""

    merge: list[float]
    upload: list[float]
    create: list[float]
    size_bytes: int

    def computed(self) -> dict[str, dict[str, float]]:
        """Return model → GB of the merged file and seconds of a swap, loading not included."""
        each = sum(statistics.median(stage) for stage in (self.merge, self.upload, self.create))
        return {
            name: {"gb": round(size / _GB, 2), "seconds": round(each * size / self.size_bytes, 1)}
            for name, size in MERGED_BYTES.items()
        }


async def timed_stages(url: str, version: AdapterVersion, base: Path, folder: Path) -> Stages:
    """Merge, upload and create one version several times over."""
    api = EngineApi(url)
    ollama, merge, upload, create = OllamaApi(api), list[float](), list[float](), list[float]()
    size, name = 0, "stages-burnish:v1-00000000"
    try:
        for _ in range(REPEATS):
            target = folder / "stages.gguf"
            began = time.perf_counter()
            await ensure_merged(version, base, target)
            merged = time.perf_counter()
            digest = await ollama.upload(target)
            uploaded = time.perf_counter()
            size = target.stat().st_size
            await ollama.create(name, {"files": {"model.gguf": digest}}, size)
            created = time.perf_counter()
            merge.append(merged - began)
            upload.append(uploaded - merged)
            create.append(created - uploaded)
            target.unlink()
            await ollama.drop(name)
    finally:
        await api.close()
    return Stages(merge, upload, create, size)
