"""Finds out which engine (or which replicas of one) ``upstream`` is, and which weights it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from burnish.adapters.errors import EngineError, EngineUnreachable
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
    if config.upstream and config.upstream.startswith(LITELLM):
        raise EngineError(f"{config.upstream} is a provider's model, whose weights nobody else can train")
    key = config.upstream_api_key.get_secret_value() if config.upstream_api_key else None
    apis = [EngineApi(url, key) for url in config.upstream_urls]
    found = await _one_kind(apis, config.model)
    on_found(found.kind)
    demand_versions(found, apis[0].url)
    weights = await asyncio.to_thread(_weights, config, found, fetch=fetch)
    hosts: dict[str, AdapterHost] = {}
    for api in apis:
        hosts[api.url] = await asyncio.to_thread(
            open_host,
            found,
            api,
            weights,
            versions=versions,
            state_dir=config.data_dir / "engine",
            preset=config.models_preset,
        )
    if len(hosts) == 1:
        return hosts[apis[0].url], weights
    if found.kind == "llamacpp":
        raise EngineError(
            "versions cannot be swapped in several llama-servers: name one of them, and raise its number of slots (-np)"
        )
    return Replicas(hosts), weights


async def _one_kind(apis: Sequence[EngineApi], model: str | None) -> Detected:
    """Ask all replicas. Those that are down are assumed to be like the others."""
    try:
        results = await asyncio.gather(*(detect(api, model) for api in apis), return_exceptions=True)
    finally:
        for api in apis:
            await api.close()
    found = {
        api.url: result for api, result in zip(apis, results, strict=True) if isinstance(result, Detected)
    }
    for error in results:
        if isinstance(error, BaseException) and not (found and isinstance(error, EngineUnreachable)):
            raise error
    (url, first), *others = found.items()
    for other, result in others:
        if (result.kind, result.model) != (first.kind, first.model):
            raise EngineError(
                f"{url} is {first.kind} with {first.model}, and {other} is {result.kind} with {result.model}; "
                "replicas must be the same engine with the same model name"
            )
    return first


def _weights(config: Config, found: Detected, *, fetch: bool) -> Path:
    """Return the weights to train on: those that the user names, else those of the engine. Raises EngineError."""
    if named := config.train.base:
        path = Path(named).expanduser().absolute()
        if path.exists() or not (model := hub_id(named)):
            return path
        if fetch:
            return downloaded(model)
        if here := cached(model):
            return here
        raise EngineError(f"{model} (train.base) is not downloaded yet: `burnish up` downloads it")
    if found.weights:
        return found.weights
    if found.hub_id and (here := cached(found.hub_id)):
        return here
    fetchable = f", or to {found.hub_id} to download it" if found.hub_id else ""
    raise EngineError(
        f"{config.upstream} does not tell where the weights of {found.model} are on this machine: set train.base "
        f"to that GGUF file or Hugging Face directory{fetchable}"
    )
