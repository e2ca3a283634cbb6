"""The models that are compared: the small one, taught short answers, and its merges."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import psutil
from gguf.quants import quantize

from bench.learning.learn import learn
from bench.learning.questions import PROMPTS
from burnish.adapters.convert.gguf import to_gguf
from burnish.adapters.convert.gguf_layout import read_base
from burnish.adapters.convert.merge import merge
from burnish.adapters.hosts.context import PARALLEL
from burnish.adapters.hosts.embedded import EngineProcess
from burnish.adapters.hosts.embedded_child import Settings
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.threads import cores
from burnish.proxy.cli.demo.halves import HALVES, Name
from burnish.proxy.cli.demo.running import burnish
from burnish.proxy.cli.demo.user import User

SEED = 0
FOR_TEACHING = 100
"""Questions, from which the teacher takes as many as it needs; none is asked again."""
KEY = "bench"
CONTEXT_TOKENS = 1024
LOOK_S = 0.01
"""Between two looks at the memory of the merge."""
BASE, RUN_TIME, DEFAULT = "base model", "run-time adapter", "merged, q8_0 (default)"
FINE, COARSE = "merged, f16", "merged, back to the base's 4 bits"

_ORDER = random.Random(SEED).sample(PROMPTS, len(PROMPTS))
QUESTIONS = _ORDER[FOR_TEACHING:]


class Cost(NamedTuple):
    """What a run of the merging process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Resident memory."""
    answer: dict[str, Any]
    """The fields of ``Merged``, or an error."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A model that is asked."""

    name: str
    file: str
    """Beginning of the names of its files."""
    path: Path
    adapter: Path | None = None
    """PEFT directory of what is added at run time."""
    converted: Path | None = None
    """The same as GGUF."""
    size_bytes: int = 0
    cost: Cost | None = None
    """Of the merge, start of the process included."""

    async def serve(self, log: Path) -> EngineProcess:
        """Start an engine. Raises EngineError."""
        settings = Settings(
            model=str(self.path),
            name="model",
            api_key=KEY,
            threads=1,  # two models are asked at once
            context=CONTEXT_TOKENS,
            parallel=PARALLEL,
            adapter=str(self.adapter) if self.adapter else None,
            converted=str(self.converted) if self.converted else None,
        )
        return await EngineProcess.start(settings, log)


def compared(folder: Path) -> list[Compared]:
    """Teach and merge what isn't there yet, and return all models."""
    base, adapter = ensure_small_model(), _taught(folder / "taught")
    converted = folder / "adapter.gguf"
    if not converted.exists():
        to_gguf(adapter, read_base(base), converted)
    size = base.stat().st_size
    fine, coarse = folder / "f16.gguf", folder / "coarse.gguf"
    if not fine.exists():
        merge(adapter, base, fine, "f16")
    if not coarse.exists():
        _requantise(fine, base, coarse)
    return [
        Compared(BASE, "base", base, size_bytes=size),
        Compared(RUN_TIME, "run_time", base, adapter, converted, size + converted.stat().st_size),
        _merged(adapter, base, folder / "q8_0.gguf"),
        Compared(FINE, "f16", fine, size_bytes=fine.stat().st_size),
        Compared(COARSE, "coarse", coarse, size_bytes=coarse.stat().st_size),
    ]


def _taught(folder: Path) -> Path:
    """Let the demo's user comment on answers until burnish has learnt, and return the version's directory."""
    version = folder / "adapters" / "v0001"
    if version.exists():
        return version
    folder.mkdir(parents=True, exist_ok=True)
    half = HALVES[Name.COMMENTS]
    learning = {"SCHEDULE": "manual", "SEED": str(SEED), "THREADS": str(cores())}
    settings = {f"BURNISH_TRAIN__{name}": value for name, value in learning.items()}
    with burnish(folder, settings) as url, User(url, half.system) as user:
        list(user.teach(half, _ORDER[:FOR_TEACHING], SEED))
        learn(url, overrule=True)
    return version


def _merged(adapter: Path, base: Path, target: Path) -> Compared:
    """Merge in a child, as burnish does it, and measure the child."""
    figures = target.with_suffix(".json")
    if not figures.exists():
        target.unlink(missing_ok=True)
        figures.write_text(json.dumps(_measured(adapter, base, target)), encoding="utf-8")
    found = Cost(*json.loads(figures.read_text(encoding="utf-8")))
    return Compared(DEFAULT, "q8_0", target, size_bytes=target.stat().st_size, cost=found)


def _measured(adapter: Path, base: Path, target: Path) -> Cost:
    """Run one merge."""
    began, cpu = time.perf_counter(), _children_cpu_s()
    child = subprocess.Popen(
        (sys.executable, "-m", "burnish.adapters.merge_child"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin
    assert child.stdout
    child.stdin.write(json.dumps([str(path) for path in (adapter, base, target.absolute())]).encode() + b"\n")
    child.stdin.flush()
    peak = 0
    while child.poll() is None:
        with suppress(psutil.NoSuchProcess):
            peak = max(peak, psutil.Process(child.pid).memory_info().rss)
        time.sleep(LOOK_S)
    return Cost(
        time.perf_counter() - began, _children_cpu_s() - cpu, peak, json.loads(child.stdout.readline())
    )


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _requantise(fine: Path, base: Path, target: Path) -> None:
    """Write a merged f16 model in the types of its base: what burnish must not do."""
    source = gguf.GGUFReader(fine)
    types = {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(base).tensors}
    writer = gguf.GGUFWriter(target, "")
    writer.kv_data[0].clear()
    for key, field in source.fields.items():
        if not key.startswith("GGUF."):
            writer.add_key_value(key, field.contents(), field.types[0], (*field.types, None)[1])
    for tensor in source.tensors:
        data, kind = tensor.data, types[tensor.name]
        if kind != tensor.tensor_type:
            data = quantize(data.astype("float32"), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
