"""The engines on this machine that ``burnish up`` and ``burnish init`` offer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from burnish.adapters.catalogue import Model, models
from burnish.adapters.errors import EngineError
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.context import LEAST_TOKENS, PARALLEL
from burnish.adapters.hosts.detect import NAMES, USUAL_PORTS, Detected, detect
from burnish.adapters.hosts.model_file import model_file
from burnish.cli.models import RESERVED_BYTES, total_bytes
from burnish.config.model_names import OLLAMA
from burnish.proxy.plain import plain

# A smaller model knows too little to talk with.
LEAST_PARAMETERS = 5e8
# What training takes beside two bytes a parameter, for the models of the catalogue: `training.device.main_memory`.
LEARNING_BYTES, BYTES_A_PARAMETER = 4_000_000_000, 2.3


class EngineOffer(NamedTuple):
    """A way to use an engine, as an answer to the question which serves the model."""

    upstream: str | None
    """None: the embedded engine."""
    model: str | None
    words: str

    @property
    def flags(self) -> str:
        """The options of ``burnish up`` that mean it."""
        return f"--upstream {self.upstream}" if self.upstream else f"--model {self.model}"


def offers(engines: Sequence[tuple[str, Detected]]) -> list[EngineOffer]:
    """Return every way to use the engines that were found and take versions."""
    return [offer for url, engine in engines if engine.takes_versions for offer in _ways(url, engine)]


def _ways(url: str, engine: Detected) -> list[EngineOffer]:
    """Return the ways to use one engine: as the upstream, and for Ollama also its file in the embedded engine."""
    model = plain(engine.model)
    engines = [EngineOffer(url, None, f"{NAMES[engine.kind]} with {model} answers at {url}")]
    if engine.kind == "ollama" and _readable(OLLAMA + engine.model):
        own = f"burnish's own engine, with Ollama's file of {model}: versions are swapped at once"
        engines.append(EngineOffer(None, OLLAMA + engine.model, own))
    return engines


def larger_model() -> EngineOffer | None:
    """Offer the first model of the catalogue that one can talk with and that this machine has the memory to train."""
    able = (
        model
        for model in models()
        if "chat" in model.tasks and model.learns and model.count >= LEAST_PARAMETERS
    )
    room = total_bytes() - RESERVED_BYTES
    return next((_offer(model) for model in able if _bytes(model) <= room), None)


def _bytes(model: Model) -> int:
    return (
        model.memory_bytes(PARALLEL, LEAST_TOKENS) + LEARNING_BYTES + round(BYTES_A_PARAMETER * model.count)
    )


def _offer(model: Model) -> EngineOffer:
    need = (
        f"{model.mb / 1000:.1f} GB to download, about {_bytes(model) / 1e9:.0f} GB of memory while it learns"
    )
    return EngineOffer(None, model.name, f"the embedded engine with {model.name}, which knows more: {need}")


async def engines_here(ports: Sequence[int] = USUAL_PORTS) -> list[tuple[str, Detected]]:
    """Ask all ports of 127.0.0.1 at once; return the engines that burnish knows."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    engines = await asyncio.gather(*(_look(url) for url in urls))
    answers = zip(urls, engines, strict=True)
    return [(url, engine) for url, engine in answers if engine and engine.kind != "other"]


async def _look(url: str) -> Detected | None:
    api = EngineApi(url)
    try:
        return await detect(api)
    except EngineError:
        return None
    finally:
        await api.close()


def _readable(name: str) -> bool:
    try:
        model_file(name)
    except EngineError:
        return False
    return True
