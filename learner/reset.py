"""Start learning over: the base model is live, no rating counts any more, and what was learnt is unloaded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.swap import Swap
from burnish.learner.learner import Learner
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.files import back_up

# A version is unloaded when its last request has ended. Long answers end after the command has said so.
UNLOAD_LIMIT_S = 20.0


class Outcome(NamedTuple):
    backup: Path
    """Copy of the log from before."""
    replaced: int
    """The version that was live."""
    ratings: int
    """Pieces of feedback that no longer count."""
    run: str | None
    """The run that was under way, and was ended."""
    loaded: list[int]
    """Versions that still answer requests, and are unloaded after them."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Each call starts over; one at a time. The answers in the log and the versions on the disk stay."""

    learner: Learner
    swap: Swap
    log: Log
    log_file: Path
    _running: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __call__(self, reason: str) -> Outcome:
        """Raises Conflict, Unavailable; unless the message says otherwise, nothing has changed then."""
        async with self._running:
            replaced = self.swap.registry.live()
            backup = self.log_file.with_name(f"burnish.before-reset-{datetime.now():%Y%m%d-%H%M%S-%f}.db")
            await asyncio.to_thread(back_up, self.log_file, backup)
            await self.learner.rollback(BASE_VERSION, reason)
            async with self.learner.stopped(reason) as run:
                # The run may have made its version live in the last moment.
                await self.learner.rollback(BASE_VERSION, reason)
                try:
                    ratings = await self.log.undo_all_feedback()
                    await self.log.close_duels()
                except Unavailable as error:
                    raise Unavailable(
                        f"the base model is live, but the ratings still count: {error}"
                    ) from error
            return Outcome(backup, replaced, ratings, run, await self._unloaded())

    async def _unloaded(self) -> list[int]:
        """Unload all versions; return those that are still in use after a while."""
        versions = [number for number in self.swap.route.resident() if number != BASE_VERSION]
        tasks = {number: self.swap.retire(number) for number in versions}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=UNLOAD_LIMIT_S)
        return [number for number in tasks if number in self.swap.route.resident()]
