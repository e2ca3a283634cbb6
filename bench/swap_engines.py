"""The engines that ``bench.swap`` can put behind burnish, each a real one, booted for the bench alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.detect import weights_digest
from burnish.adapters.hosts.embedded import EmbeddedHost
from burnish.adapters.hosts.fetch import SMALL_MODEL, SMALL_MODEL_DIGEST, cache_dir, ensure_small_model
from burnish.adapters.hosts.llamacpp import LlamaCppHost
from burnish.adapters.hosts.mlx import MlxHost
from burnish.adapters.hosts.ollama import OllamaHost
from burnish.adapters.hosts.vllm import VllmHost
from burnish.adapters.manifest import AdapterVersion
from burnish.training.weights import prepared_weights
from tests.support.llama_server import LlamaServer
from tests.support.ollama_double import WITHOUT_ADAPTERS, ollama_double
from tests.support.real_engines import mlx_base, mlx_server, vllm_server

NAME = "smollm2"
MAX_RANK = 16


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine: how burnish is put in front of it, and a host to ask it without burnish."""

    host: AdapterHost
    known: list[AdapterVersion]
    """What that host takes for the registry's versions."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Settings of the burnish in front of it."""
    models: Path | None = None
    """Where it keeps a model of its own for each version; None if versions are adapters."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of engine, and what holds for it."""

    boot: Callable[[Path], AbstractAsyncContextManager[Engine]]
    """Boots one that keeps its files in a folder."""
    swaps: int
    """By default."""
    tolerance: float
    """How far (nats) a version's logprobs may lie from those of a fresh engine, with or without its own cache."""
    limit_s: float | None = None
    """From "gate passed" to "new requests get it", where that is promised."""
    side_by_side: bool = True
    """It answers as several versions at once; else every swap is cold, and waits for the answers under way."""
    rounds: int = 4
    """Of swaps, with a check for stale answers after each; the first one warms up."""
    questions: int = 90
    """In the prefix of that check: six tokens or more each."""


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Engine]:
    """Burnish's own; the host here boots children of its own, as burnish does."""
    host = EmbeddedHost(ensure_small_model(), base_model=SMALL_MODEL, state_dir=folder / "engine")
    try:
        yield Engine(host, [])
    finally:
        await host.close()


@asynccontextmanager
async def llamacpp(folder: Path) -> AsyncIterator[Engine]:
    """A llama-server in router mode; each version becomes a process of its own."""
    model, preset, known = ensure_small_model(), folder / "models.ini", list[AdapterVersion]()
    preset.write_text(f"[{NAME}]\nmodel = {model}\nctx-size = 8192\nparallel = 12\nfit = off\n")
    arguments = ["--models-preset", str(preset), "--models-max", "0", "--cache-ram", "0"]
    with LlamaServer(arguments, folder / "llama-server.log") as server:
        host = LlamaCppHost(
            server.url,
            base_model=NAME,
            base_digest=SMALL_MODEL_DIGEST,
            base_path=model,
            preset=preset,
            state_dir=folder / "converted",
            versions=lambda: known,
        )
        try:
            yield Engine(host, known, foreign(server.url, model) | {"BURNISH_MODELS_PRESET": str(preset)})
        finally:
            await host.close()


@asynccontextmanager
async def ollama(folder: Path) -> AsyncIterator[Engine]:
    """Run the double of an Ollama that takes no adapters, over real llama-servers: each version is a merged model."""
    model, known, own = ensure_small_model(), list[AdapterVersion](), folder / "ollama"
    own.mkdir()
    async with ollama_double(
        own, NAME, model, SMALL_MODEL_DIGEST, release=WITHOUT_ADAPTERS, context=8192, parallel=12
    ) as double:
        host = OllamaHost(
            double.url,
            base_model=NAME,
            base_digest=SMALL_MODEL_DIGEST,
            base_path=model,
            state_dir=folder / "merged",
            versions=lambda: known,
        )
        try:
            yield Engine(host, known, foreign(double.url, model), own)
        finally:
            await host.close()


@asynccontextmanager
async def vllm(folder: Path) -> AsyncIterator[Engine]:
    """Run vLLM in float32, with room for three adapters in a batch: new requests would else wait for old streams."""
    weights = await dequantised()
    known = list[AdapterVersion]()
    with vllm_server(weights, NAME, MAX_RANK, folder / "vllm.log", max_loras=3) as url:
        host = VllmHost(url, base_model=NAME, base_digest=weights_digest(weights), versions=lambda: known)
        try:
            yield Engine(host, known, foreign(url, weights))
        finally:
            await host.close()


@asynccontextmanager
async def mlx(folder: Path) -> AsyncIterator[Engine]:
    """Run MLX in float32, on its own copy of the base; one version at a time is in memory."""
    weights = mlx_base(await dequantised(), folder / "base")
    known = list[AdapterVersion]()
    with mlx_server(weights, folder / "hub", folder / "mlx.log") as url:
        host = MlxHost(
            url,
            base_path=weights,
            base_digest=weights_digest(weights),
            state_dir=folder / "converted",
            versions=lambda: known,
        )
        try:
            yield Engine(host, known, foreign(url, weights) | {"BURNISH_MODEL": str(weights)})
        finally:
            await host.close()


async def dequantised() -> Path:
    """Return the small model as a Hugging Face directory."""
    return await asyncio.to_thread(
        prepared_weights, ensure_small_model(), SMALL_MODEL_DIGEST, cache_dir() / "weights"
    )


def foreign(url: str, weights: Path) -> dict[str, str]:
    """Settings of a burnish in front of an engine that somebody else runs."""
    return {"BURNISH_UPSTREAM": url, "BURNISH_TRAIN__BASE": str(weights)}


KINDS = {
    "embedded": Kind(embedded, swaps=20, tolerance=1e-3, limit_s=2.0),
    "llamacpp": Kind(llamacpp, swaps=100, tolerance=1e-3),
    "ollama": Kind(ollama, swaps=20, tolerance=1e-3),
    "vllm": Kind(vllm, swaps=20, tolerance=1e-3),
    # On a processor it reads a dozen tokens a second.
    "mlx": Kind(mlx, swaps=6, tolerance=0.02, side_by_side=False, rounds=2, questions=12),
}
