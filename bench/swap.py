"""Swaps under load: clients stream without pause while versions go live one after the other.

``python -m bench.swap [--engine embedded|llamacpp|ollama|vllm|mlx] [--swaps N] [--clients 8]`` prints a table and, as
its last line, JSON. It exits 1 if an answer failed, was cut, mixed or stale, if the memory of the proxy grew, or if a
swap took longer than its limit.

burnish runs as a user starts it, a process of its own in front of a real engine, and is swapped over HTTP. Of three
swaps one is cold: the version is not loaded. Two are staged: it is still loaded, because a stream holds it, and no
client uses it, as with a candidate that the gate has judged; the limit is on those. Between the swaps, the clients
pause for the check of stale answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import psutil
from numpy.typing import NDArray

from bench.swap_clients import ASKED, Clients, Tally, held, live, said
from bench.swap_engines import KINDS, Engine, Kind
from bench.swap_merged import Stages, timed_stages
from bench.swap_prefix import MARGIN, Candidates, apart, candidates, fresh, least_apart, noise
from burnish.adapters.hosts.fetch import ensure_small_model
from burnish.adapters.manifest import BASE_VERSION, Provenance
from burnish.adapters.registry import Registry
from tests.support.burnish import Burnish, running
from tests.support.lora import SMALL, random_lora, version_of, write_peft

# More than an engine that keeps versions has room for, so that a swap can be cold.
WORDS = ("Ġred", "Ġgreen", "Ġblue", "Ġblack")
PARROTS = range(1, len(WORDS) + 1)
"""Versions that clients are served: one word each."""
# Versions for the check of stale answers: a parrot changes nothing that a prefix cache keeps.
CACHED = range(len(WORDS) + 1, len(WORDS) + 3)
# What the proxy's memory may grow by and still be called flat: SQLite's page cache and the allocator's own moods.
FLAT_MIB = 8.0
DRAIN_LIMIT_S = 60.0


@dataclass
class Figures:
    """The figures of a run."""

    staged: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    """The proxy's resident memory (MiB): at the start, then after each round."""
    apart: list[float] = field(default_factory=list)
    """How far (nats) the prefix checks lay from the truth."""
    noise: float = 0.0
    """How far the same version lies from itself on a fresh engine."""
    versions_apart: float = 0.0
    """How far the two most similar versions lie from each other."""
    models_mb: list[float] = field(default_factory=list)
    """Size of the models of versions on the engine's disk, just after a cold swap: the old one is still in use."""
    stages: Stages | None = None


class Bench:
    """One burnish in front of one engine."""

    def __init__(
        self, kind: Kind, engine: Engine, burnish: Burnish, http: httpx.AsyncClient, tally: Tally
    ) -> None:
        self.kind, self.engine, self.base_model = kind, engine, engine.host.base_model
        self.burnish, self.http, self.tally = burnish, http, tally
        self.figures = Figures()
        self.live = BASE_VERSION

    async def promote(self, version: int) -> float:
        """Make a version live by name; returns the seconds until it was."""
        return await self._change(f"{version}/promote", {"force": True}, version)

    async def roll_back(self, version: int) -> float:
        """Make a version live that was so before; returns the seconds until it was."""
        return await self._change("rollback", {"to": version}, version)

    async def _change(self, path: str, body: dict[str, Any], version: int) -> float:
        began = time.perf_counter()
        done = await self.http.post(f"/burnish/adapters/{path}", json=body)
        seconds = time.perf_counter() - began
        assert done.status_code == httpx.codes.OK, f"{path}: {done.text}"
        assert done.json()["live"] == version
        self.live = version
        self.tally.swaps += 1
        return seconds

    async def unloaded(self, version: int) -> None:
        """Return when a version is not loaded."""
        async with asyncio.timeout(DRAIN_LIMIT_S):
            # Another process, which sets no event of ours.
            while version in (await self.http.get("/burnish/status")).json()["live"]["resident"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def turn(self, new: int, crowd: Clients) -> None:
        """Three swaps: to a version that is not loaded, back to the one before, and forth again."""
        old = self.live
        await self.unloaded(new)
        if not self.kind.side_by_side:
            self.figures.cold.append(await self.promote(new))
            return
        async with held(self.burnish.url, self.base_model, old):
            self.figures.cold.append(await self.promote(new))
            self.figures.models_mb += self.models_mb()
            await crowd.moved_on()
            async with held(self.burnish.url, self.base_model, new):
                self.figures.staged.append(await self.roll_back(old))
                await crowd.moved_on()
                self.figures.staged.append(await self.promote(new))

    def models_mb(self) -> list[float]:
        """Return the size of the models of versions, if the engine keeps such; the base is a link."""
        folder = self.engine.models
        if folder is None:
            return []
        return [sum(f.stat().st_size for f in folder.glob("sha256-*") if not f.is_symlink()) / 1e6]

    async def check_stale(self, truth: dict[int, list[Candidates]]) -> None:
        """Ask each version for the long prefix, twice: the second time it may come from the cache."""
        for version, expected in truth.items():
            await self.promote(version)
            for _ in range(2):
                got = await candidates(live(self.burnish.url), self.kind.questions)
                self.figures.apart.append(min(apart(got, each) for each in expected))
                if self.figures.apart[-1] > self.kind.tolerance:
                    self.tally.fault("stale", f"version {version}: {got}, not {expected[0]}")

    def weigh(self) -> None:
        """Note the proxy's memory, its children's not included."""
        self.figures.memory.append(psutil.Process(self.burnish.pid).memory_info().rss / 2**20)


def parrot_lora(word: str, base: Path) -> dict[str, NDArray[np.float32]]:
    """A LoRA of rank 2 that makes the model say one word for ever, by a margin that no rounding can turn.

    In the last MLP, two hidden units get gate = up = +z and -z with z = s·(a·x), so that the sum of their
    silu(gate)·up is about z² > 0 for any input x; the down projection turns it into the word's direction, and
    that outweighs everything else in the residual stream.
    """
    reader = gguf.GGUFReader(base)
    words = reader.get_field("tokenizer.ggml.tokens").contents()
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    embeddings = gguf.quants.dequantize(
        tensors["token_embd.weight"].data, tensors["token_embd.weight"].tensor_type
    )
    norm = np.array(tensors["output_norm.weight"].data)
    # Whitened, so that of all embeddings the word's own has the largest product with it.
    toward = np.linalg.solve(np.cov(embeddings.T), embeddings[words.index(word)] - embeddings.mean(0)) / norm
    width, hidden = 576, 1536
    a = np.zeros((2, width), np.float32)
    a[0] = np.random.default_rng(0).normal(0, 1, width)
    signs = np.zeros((hidden, 2), np.float32)
    signs[0, 0], signs[1, 0] = 1.0, -1.0
    units = np.zeros((2, hidden), np.float32)
    units[0, :2] = 1.0
    out = np.zeros((width, 2), np.float32)
    out[:, 0] = 100.0 * toward / np.linalg.norm(toward)
    mlp = f"base_model.model.model.layers.{SMALL.blocks - 1}.mlp"
    halves = {"gate_proj": (a, signs), "up_proj": (a, signs), "down_proj": (units, out)}
    return {
        f"{mlp}.{module}.lora_{half}.weight": half_tensor
        for module, pair in halves.items()
        for half, half_tensor in zip("AB", pair, strict=True)
    }


def make_versions(engine: Engine, data_dir: Path, folder: Path) -> dict[int, Path]:
    """Put versions into a data directory: the parrots, then those of random weights."""
    registry, base = Registry(data_dir / "adapters"), ensure_small_model()
    # A merged file has every layer that an adapter changes, and a trained one changes all of them.
    rest = random_lora(0, rank=2, strength=0.001) if engine.models else {}
    tensors = [(rest | parrot_lora(word, base), 2) for word in WORDS]
    tensors += [(random_lora(seed, strength=0.2), 4) for seed in CACHED]
    made = {}
    for number, (weights, rank) in enumerate(tensors, start=1):
        made[number] = write_peft(folder / f"made-{number}", weights, rank=rank)
        version = registry.register(
            made[number],
            Provenance(
                base_model=engine.host.base_model,
                base_digest=engine.host.base_digest,
                parent=BASE_VERSION,
                run_id="run_bench",
                feedback_ids=(),
                objective="none",
                hyperparameters={},
                metrics={},
            ),
        )
        assert version.number == number
    return made


async def quiet_texts(bench: Bench) -> list[dict[str, int]]:
    """For each question: the answer of each parrot on an idle engine → its version."""
    texts: list[dict[str, int]] = [{} for _ in ASKED]
    for version in PARROTS:
        await bench.promote(version)
        for known, text in zip(texts, await said(bench.burnish.url), strict=True):
            known[text] = version
    assert all(len(known) == len(PARROTS) for known in texts), "the versions must be told apart"
    return texts


@asynccontextmanager
async def in_thread(context: AbstractContextManager[Burnish]) -> AsyncIterator[Burnish]:
    """Enter and leave off the event loop, which the engine may need to answer."""
    burnish = await asyncio.to_thread(context.__enter__)
    try:
        yield burnish
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def swap_under_load(kind: Kind, turns: int, clients: int) -> tuple[Figures, Tally]:
    """Swap three times a turn under load; return what was measured, and what the clients saw."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder, data_dir = Path(name), Path(name) / "data"
        async with kind.boot(folder) as engine:
            made = make_versions(engine, data_dir, folder)
            truth = await fresh(
                engine,
                {BASE_VERSION: None, **{number: made[number] for number in CACHED}},
                folder,
                kind.questions,
            )
            async with in_thread(running(data_dir, env=dict(engine.env))) as burnish:
                async with httpx.AsyncClient(base_url=burnish.url, trust_env=False, timeout=120) as http:
                    bench = Bench(kind, engine, burnish, http, tally)
                    bench.figures.noise, bench.figures.versions_apart = noise(truth), least_apart(truth)
                    bench.weigh()
                    crowd = Clients(burnish.url, bench.base_model, await quiet_texts(bench), tally)
                    tally.swaps = 0
                    for part in range(kind.rounds):
                        await bench.promote(PARROTS[-1] if part == 0 else bench.live)
                        async with crowd.streaming(clients):
                            for turn in range(turns * part // kind.rounds, turns * (part + 1) // kind.rounds):
                                await bench.turn(PARROTS[turn % len(PARROTS)], crowd)
                        last = bench.live
                        await bench.check_stale(truth)
                        await bench.promote(last)
                        bench.weigh()
            if engine.models:
                version = version_of(made[1], 1, engine.host.base_digest, engine.host.base_model)
                url = engine.env["BURNISH_UPSTREAM"]
                bench.figures.stages = await timed_stages(url, version, ensure_small_model(), folder)
    return bench.figures, tally


def quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=sorted(KINDS), default="embedded")
    parser.add_argument(
        "--swaps", type=int, help="under load, a third of them cold, or all with mlx (default: by engine)"
    )
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    kind = KINDS[given.engine]
    turns = max(kind.rounds, -(-(given.swaps or kind.swaps) // (3 if kind.side_by_side else 1)))
    figures, tally = asyncio.run(swap_under_load(kind, turns, given.clients))
    start, warm, end = figures.memory[0], figures.memory[1], figures.memory[-1]
    result = {
        "engine": given.engine,
        "swaps_under_load": len(figures.cold) + len(figures.staged),
        "swaps": tally.swaps,
        "clients": given.clients,
        "gate_passed_to_live_median_s": round(statistics.median(figures.staged), 3)
        if figures.staged
        else None,
        "gate_passed_to_live_max_s": round(max(figures.staged), 3) if figures.staged else None,
        "limit_s": kind.limit_s,
        "cold_to_live_median_s": round(statistics.median(figures.cold), 3),
        "cold_to_live_max_s": round(max(figures.cold), 3),
        "answers": sum(tally.answers.values()),
        "answers_that_outlived_a_swap": tally.outlived,
        **{fault: tally.faults[fault] for fault in ("failed", "cut", "mixed", "stale")},
        "prefix_checks": len(figures.apart),
        "prefix_apart_max_nats": round(max(figures.apart), 6),
        "prefix_tolerance_nats": kind.tolerance,
        "fresh_apart_max_nats": round(figures.noise, 6),
        "versions_apart_min_nats": round(figures.versions_apart, 3),
        "proxy_memory_start_mib": round(start, 1),
        "proxy_memory_warm_mib": round(warm, 1),
        "proxy_memory_end_mib": round(end, 1),
        "proxy_memory_growth_mib": round(end - warm, 1),
        "proxy_memory_flat_within_mib": FLAT_MIB,
    }
    if stages := figures.stages:
        result["cold_to_live_quartiles_s"] = [round(each, 2) for each in quartiles(figures.cold)]
        result["merged_file_mb"] = round(stages.size_bytes / 1e6, 1)
        result["models_on_disk_max_mb"] = round(max(figures.models_mb), 1)
        for name in ("merge", "upload", "create"):
            stage = getattr(stages, name)
            result[f"{name}_cpu_quartiles_s"] = [round(each, 3) for each in quartiles(stage.cpu)]
            result[f"{name}_quartiles_s"] = [round(each, 3) for each in quartiles(stage.wall)]
        result["computed"] = stages.computed()
    for name, value in result.items():
        print(f"{name:>30}  {value}")
    print(f"memory by round: {[round(each, 1) for each in figures.memory]}", file=sys.stderr)
    for example in tally.examples[:5]:
        print(example, file=sys.stderr)
    print(json.dumps(result))
    return int(
        bool(tally.faults)
        or (kind.limit_s is not None and max(figures.staged) > kind.limit_s)
        or end - warm > FLAT_MIB
        or figures.versions_apart < MARGIN * kind.tolerance
    )


if __name__ == "__main__":
    sys.exit(main())
