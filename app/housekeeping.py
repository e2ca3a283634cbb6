"""What goes on beside requests: old completions are deleted, and an engine that was down is asked again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from burnish.config.config import Config, is_loopback
from burnish.proxy.http.errors import ConfigError, Unavailable
from burnish.proxy.log import Keep, Log

logger = logging.getLogger(__name__)

# A request to an engine that is down costs nothing, and people wait for it.
ASK_AGAIN_S = 2.0
PRUNE_EVERY_S = 600.0
"""Old completions are deleted a few minutes late."""


def warn(config: Config) -> None:
    """Say at the start what the settings don't allow."""
    if not is_loopback(config.host) and config.admin_key is None:
        logger.warning(
            "admin_key isn't set, so nobody can train, roll back, read the log or erase over %s", config.host
        )


async def ask_until_known(ask: Callable[[], Awaitable[bool]]) -> None:
    """Ask an engine that was down until it answers. ``ask`` returns whether to ask again."""
    again = True
    while again:
        await asyncio.sleep(ASK_AGAIN_S)
        try:
            again = await ask()
        except ConfigError as error:
            logger.error("%s; then restart burnish", error.message)
            return
        except Exception:
            # If this loop ended, burnish would only pass requests through from then on.
            logger.exception("the engine cannot be opened; trying again in %g s", ASK_AGAIN_S)


async def prune_regularly(config: Config, log: Log, pruned: Callable[[], Awaitable[None]]) -> None:
    """``pruned`` is called when completions were deleted. It may raise OSError, Unavailable."""
    settings, next_turns = config.log, config.train.next_turn
    every = (
        Keep(settings.keep_days, settings.keep_completions, settings.keep_rated, next_turns),
        Keep(days=settings.keep_unrated_days, next_turns=next_turns),
    )
    limits = [limit for limit in every if not limit.all]  # a completion must be within all of them
    while limits:
        try:
            if count := sum([await log.prune(limit) for limit in limits]):
                logger.info("deleted %d old completions from the log", count)
                await pruned()
        except (OSError, Unavailable) as error:
            logger.warning("old completions were not all deleted: %s", error)
        await asyncio.sleep(PRUNE_EVERY_S)
