"""An engine sleeps while a trainer needs its memory; the first request wakes it, and the trainer gives way.

Serving comes first: requests never wait for training, only for the engine to wake.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from burnish.adapters.errors import EngineError, EngineUnreachable
from burnish.adapters.hosts.base import AdapterHost, Sleeps
from burnish.adapters.route import LiveRoute

logger = logging.getLogger(__name__)

# Weights come back from the computer's memory in seconds; a crashed engine is restarted by its owner within minutes.
WAKE_LIMIT_S = 300.0
WAKE_PAUSE_S = 1.0
# After so many attempts without any answer, the engine is gone; when it is started again, it is awake.
GONE_AFTER = 3


class Disturbed(EngineError):
    """A request came in while the engine slept, or was under way when it should have gone to sleep."""


async def while_asleep(
    host: AdapterHost, route: LiveRoute, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Do work while the engine sleeps, if it can sleep; it is awake again when this returns.

    Raises Disturbed if a request is under way or comes in, which cancels the work, and any error of ``work``.
    """
    if not isinstance(host, Sleeps) or await host.sleeping() is None:
        await work()
        return
    disturbed = route.fall_asleep()
    try:
        if any(route.in_flight(version) for version in route.resident()):
            raise Disturbed(
                "a request is under way, but training needs the engine to sleep; it waits until the engine is idle"
            )
        await host.sleep()
        await _unless(disturbed, work())
    finally:
        try:
            await wake(host)
        finally:
            route.wake_up()


async def _unless(disturbed: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    working, disturbance = loop.create_task(work), loop.create_task(disturbed.wait())
    try:
        await asyncio.wait((working, disturbance), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Disturbed(
                "a request came in, so the engine woke and training stopped; it starts again when the engine is idle"
            )
        await working
    finally:
        working.cancel()
        disturbance.cancel()
        await asyncio.gather(working, disturbance, return_exceptions=True)


async def wake(host: Sleeps) -> None:
    """Wake an engine, with retries. Raises EngineError if it doesn't wake."""
    last = "it still sleeps"
    unreachable = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(WAKE_LIMIT_S):
            while unreachable < GONE_AFTER:
                try:
                    if not await host.sleeping():
                        return
                    await host.wake()
                    unreachable = 0
                except EngineError as error:
                    logger.warning("the engine does not wake: %s; trying again", error)
                    last = str(error)
                    unreachable += isinstance(error, EngineUnreachable)
                    await asyncio.sleep(WAKE_PAUSE_S)
    raise EngineError(f"the engine was put to sleep for training and does not wake: {last}")
