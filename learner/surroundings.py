"""What goes on beside training, as far as it decides when a run starts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from burnish.adapters.errors import AdapterError
from burnish.learner.machine import UNKNOWN, Machine, Meter

logger = logging.getLogger(__name__)

# A look costs some milliseconds of the processor; a machine may stay on battery for days.
LOOK_EVERY_S = 30.0


class Surroundings:
    """The latest traffic, the latest reading of the machine, and since when only such things prevent a run."""

    def __init__(self, meter: Meter, memory_needed: Callable[[], int | None]) -> None:
        """``memory_needed`` returns the bytes that a run takes; it may read files."""
        self.busy_at: float | None = None
        """When a request was last in flight, in seconds since the epoch."""
        self.due_since: float | None = None
        self.machine = UNKNOWN
        self.needed_bytes: int | None = None
        self._meter = meter
        self._memory_needed = memory_needed
        self._looked_at: float | None = None
        """On the monotonic clock."""

    async def look(self) -> None:
        """Read the machine, unless that was done just before."""
        if self._looked_at is not None and time.monotonic() < self._looked_at + LOOK_EVERY_S:
            return
        self.needed_bytes = await self._needed()
        self.machine = await self._read(self._meter.measured())
        self._looked_at = time.monotonic()

    def forget(self) -> None:
        """The reading isn't needed: the next one must be new."""
        self.machine, self._looked_at = UNKNOWN, None

    async def at_once(self) -> tuple[Machine, int | None]:
        """Return what is known of the machine without waiting, and the bytes that a run takes."""
        return await self._read(asyncio.to_thread(self._meter.now)), await self._needed()

    async def _read(self, reading: Awaitable[Machine]) -> Machine:
        try:
            return await reading
        except Exception:
            # Systems and their sensors fail in many ways, and none of them may end learning.
            logger.exception("the state of the machine can't be read; training goes on without it")
            return UNKNOWN

    async def _needed(self) -> int | None:
        try:
            return await asyncio.to_thread(self._memory_needed)
        except AdapterError as error:
            logger.warning("it isn't known how much memory a run takes: %s", error)
            return None
