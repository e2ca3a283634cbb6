"""Finds out which engine (or which replicas of one) ``upstream`` is, and which weights it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from burnish.adapters.errors import EngineError, EngineUnreachable, UnknownWeights
from burnish.adapters.hosts.api import EngineApi
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.detect import Detected, Kind, detect
from burnish.adapters.hosts.foreign import demand_versions, open_host
from burnish.adapters.hosts.hub import cached, downloaded, hub_id
from burnish.adapters.hosts.replicas import Replicas
from burnish.adapters.manifest import AdapterVersion
from burnish.config.config import Config
from burnish.config.tables import LITELLM


async def foreign_host(
    config: Config,
    versions: Callable[[], Sequence[AdapterVersion]],
    *,
    fetch: bool = True,
    on_found: Callable[[Kind], None] = lambda _: None,
) -> tuple[AdapterHost, Path]:
    """Return the host of the engine behind ``upstream``, and its base weights.

    ``fetch``: download the weights if ``train.base`` names a model on the hub that isn't here. ``on_found`` gets the
    kind of the engine, also if versions can't be swapped in it. Raises EngineUnreachable
    if nothing answers; other EngineErrors and IncompatibleAdapter if versions can't be swapped.
    """
    apis = _apis(config)
    engine, weights = await served_weights(config, fetch=fetch, on_found=on_found)
    state_dir, preset = config.data_dir / "engine", config.models_preset
    host_of = partial(open_host, versions=versions, state_dir=state_dir, preset=preset)
    hosts = {api.url: await asyncio.to_thread(host_of, engine, api, weights) for api in apis}
    if len(hosts) == 1:
        return hosts[apis[0].url], weights
    if engine.kind == "llamacpp":
        raise EngineError(
            "versions cannot be swapped in several llama-servers: name one of them, and raise its number of slots (-np)"
        )
    return Replicas(hosts), weights


async def served_weights(
    config: Config, *, fetch: bool, on_found: Callable[[Kind], None] = lambda _: None
) -> tuple[Detected, Path]:
    """Return the engine behind ``upstream`` and its base weights; all as of ``foreign_host``.

    Raises UnknownWeights, too.
    """
    if config.upstream and config.upstream.startswith(LITELLM):
        raise EngineError(f"{config.upstream} is a provider's model, whose weights nobody else can train")
    apis = _apis(config)
    engine = await _one_kind(apis, config.model)
    on_found(engine.kind)
    demand_versions(engine, apis[0].url)
    return engine, await asyncio.to_thread(_weights, config, engine, fetch=fetch)


def _apis(config: Config) -> list[EngineApi]:
    key = config.upstream_api_key.get_secret_value() if config.upstream_api_key else None
    return [EngineApi(url, key) for url in config.upstream_urls]


async def _one_kind(apis: Sequence[EngineApi], model: str | None) -> Detected:
    """Ask all replicas. Those that are down are assumed to be like the others."""
    try:
        results = await asyncio.gather(*(detect(api, model) for api in apis), return_exceptions=True)
    finally:
        for api in apis:
            await api.close()
    answers = zip(apis, results, strict=True)
    engines = {api.url: engine for api, engine in answers if isinstance(engine, Detected)}
    for error in results:
        if isinstance(error, BaseException) and not (engines and isinstance(error, EngineUnreachable)):
            raise error
    (url, first), *replicas = engines.items()
    for replica_url, engine in replicas:
        if (engine.kind, engine.model) != (first.kind, first.model):
            raise EngineError(
                f"{url} is {first.kind} with {first.model}, and {replica_url} is {engine.kind} with {engine.model}; "
                "replicas must be the same engine with the same model name"
            )
    return first


def _weights(config: Config, engine: Detected, *, fetch: bool) -> Path:
    """Return the weights to train on: those that the user names, else those of the engine. Raises EngineError."""
    if name := config.train.base:
        path = Path(name).expanduser().absolute()
        if path.exists() or not (model := hub_id(name)):
            return path
        if fetch:
            return downloaded(model)
        if directory := cached(model):
            return directory
        raise EngineError(f"{model} (train.base) is not downloaded yet: `burnish up` downloads it")
    if engine.weights:
        return engine.weights
    if engine.hub_id and (directory := cached(engine.hub_id)):
        return directory
    fetchable = f", or to {engine.hub_id} to download it" if engine.hub_id else ""
    raise UnknownWeights(
        f"{config.upstream} does not tell where the weights of {engine.model} are on this machine: set train.base "
        f"to that GGUF file or Hugging Face directory{fetchable}",
        engine.hub_id,
    )
