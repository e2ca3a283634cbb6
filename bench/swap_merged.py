"""Time and disk of a swap by merged weights: measured for the small model, computed for larger ones.

The stages of burnish's own work (merge, digest and upload, create) are timed without other requests. They are computed
for larger models from their CPU time, which depends little on what else the machine does, in proportion to the size of
the merged file. Loading isn't: it depends on the engine's disk and GPU.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

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


Result = TypeVar("Result")


@dataclass
class Stage:
    """Seconds of one stage, one entry a repetition."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of burnish's part and the double's."""

    async def timed(self, work: Awaitable[Result]) -> Result:
        wall, cpu = time.perf_counter(), _cpu_s()
        result = await work
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(_cpu_s() - cpu)
        return result


@dataclass
class Stages:
    """The stages of a swap, without loading."""

    merge: Stage = field(default_factory=Stage)
    upload: Stage = field(default_factory=Stage)
    create: Stage = field(default_factory=Stage)
    size_bytes: int = 0
    """Of the merged file."""

    def computed(self) -> dict[str, dict[str, float]]:
        """Return model → GB of the merged file, and CPU seconds of the stages that grow with it."""
        merge, upload = statistics.median(self.merge.cpu), statistics.median(self.upload.cpu)
        return {
            name: {
                "gb": round(size / _GB, 2),
                "merge_cpu_s": round(merge * size / self.size_bytes),
                "upload_cpu_s": round(upload * size / self.size_bytes),
            }
            for name, size in MERGED_BYTES.items()
        }


async def timed_stages(url: str, version: AdapterVersion, base: Path, folder: Path) -> Stages:
    """Merge, upload and create one version several times over."""
    api, target, name = EngineApi(url), folder / "stages.gguf", "stages-burnish:v1-00000000"
    ollama, stages = OllamaApi(api), Stages()
    try:
        for _ in range(REPEATS):
            await stages.merge.timed(ensure_merged(version, base, target))
            stages.size_bytes = target.stat().st_size
            digest = await stages.upload.timed(ollama.upload(target))
            files = {"files": {"model.gguf": digest}}
            await stages.create.timed(ollama.create(name, files, stages.size_bytes))
            target.unlink()
            await ollama.drop(name)
    finally:
        await api.close()
    return stages


def _cpu_s() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
