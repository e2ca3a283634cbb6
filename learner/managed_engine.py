"""Starts the engine that the configuration names; for everything else it is an ordinary upstream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from burnish.adapters.hosts.managed import ManagedEngine
from burnish.adapters.hosts.recipes import Recipe, recipe_for
from burnish.config.config import Config
from burnish.learner.learning import cancelled

logger = logging.getLogger(__name__)


@asynccontextmanager
async def with_engine(config: Config) -> AsyncIterator[tuple[Config, ManagedEngine | None]]:
    """Start the engine, if burnish is to start one, and end it with the block.

    Yield the configuration in which it is the upstream. Raises EngineError if it doesn't start; nothing is left then.
    """
    if config.managed is None:
        yield config, None
        return
    recipe = await asyncio.to_thread(recipe_of, config)
    engine = ManagedEngine(recipe, config.data_dir / "engine" / "engine.log")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        await engine.start()
        logger.info("%s is warm, as process %d", recipe.name, engine.status()["pid"])
        supervising = asyncio.get_running_loop().create_task(engine.supervise())
        stack.push_async_callback(cancelled, supervising)
        yield config.before_own(engine.url, recipe.api_key, recipe.model, recipe.preset), engine


def recipe_of(config: Config, *, fetch: bool = True) -> Recipe:
    """Return how to start the engine that the configuration names. Raises EngineError if something is missing.

    ``fetch``: download a model on the hub that isn't here.
    """
    assert config.managed
    return recipe_for(
        config.managed,
        config.model,
        rank=config.train.overrides().get("rank", 0),
        sleeps=config.train.device == "shared",
        state_dir=config.data_dir / "engine",
        python=config.engine_python,
        arguments=config.engine_args,
        fetch=fetch,
    )
