"""Which versions lose their weights, so that learning for years does not fill the disk."""

from __future__ import annotations

import asyncio
import logging

from burnish.adapters.errors import AdapterError
from burnish.adapters.swap import Swap

logger = logging.getLogger(__name__)


async def prune(swap: Swap, keep: int) -> list[int]:
    """Delete the weights of all but the latest ``keep`` versions and those that are needed; return their numbers.

    Needed are what is live, what undoing leads to, and what the engine serves or a request uses. What cannot be
    deleted is logged, and tried again the next time.
    """
    registry = swap.registry
    async with swap.lock:
        held = [
            version for version in await asyncio.to_thread(registry.versions) if version.state != "pruned"
        ]
        old = held[:-keep]
        pruned: list[int] = []
        try:
            needed = {registry.live(), registry.previous_live(), *swap.route.resident()}
            needed.update(await swap.host.served() if old else ())
            for version in old:
                if version.number not in needed and not swap.route.in_flight(version.number):
                    why = f"only the latest {keep} versions keep their weights (train.keep_versions)"
                    await asyncio.to_thread(registry.prune, version.number, why)
                    pruned.append(version.number)
                    await swap.host.forget(version)
        except (AdapterError, OSError) as error:
            logger.warning("old versions could not be deleted: %s", error)
    if pruned:
        logger.info("deleted the weights of %s", ", ".join(f"v{number}" for number in pruned))
    return pruned
