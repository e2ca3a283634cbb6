"""Opens rollouts, keeps their versions, takes their rewards, and ends those that run out of time."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from burnish.adapters.manifest import BASE_VERSION
from burnish.adapters.registry import version_label
from burnish.learner.learning import Engine
from burnish.parts.core import Core
from burnish.parts.hooks import Part
from burnish.proxy.access.carried import Carried, RolloutName
from burnish.proxy.http.errors import BurnishError, Conflict, Unauthorized, Unavailable, Unprocessable
from burnish.proxy.ids import rollout_id
from burnish.proxy.json_http import Body
from burnish.proxy.log import Log
from burnish.proxy.log.rollouts import Rollout, RolloutStatus, in_words
from burnish.proxy.plain import Line

logger = logging.getLogger(__name__)

PROOF_CHARACTERS = 32
"""128 bits."""
MAX_NAME = 200
"""Characters."""
MAX_TAGS = 32
MAX_INT = 2**63 - 1
TIME_LIMIT_S = 3600.0
LONGEST_S = 7 * 24 * 3600.0

Name = Annotated[Line, Field(max_length=MAX_NAME, strict=True)]
Count = Annotated[StrictInt, Field(ge=0, le=MAX_INT)]


class Beginning(Body):
    """``POST /v1/rollouts``."""

    task: Name = ""
    group: Name | None = None
    """Attempts at the same thing have the same group, and are compared. None: those with the same seed are."""
    seed: Annotated[StrictInt, Field(ge=-MAX_INT, le=MAX_INT)] | None = None
    tags: dict[Name, Name] = Field(default={}, max_length=MAX_TAGS)
    version: Literal["live", "candidate", "base"] | Count = "live"
    """By its number, or by what it is now."""
    held_out: StrictBool = False
    """Nothing is learnt from it: versions are judged by it."""
    time_limit_s: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)] = TIME_LIMIT_S


class Rollouts(Part):
    def __init__(self, log: Log, secret: bytes) -> None:
        """``secret``: that of the data directory, from which the keys are made."""
        self._log = log
        self._secret = secret
        self._engine: Engine | None = None
        self._why_not = "burnish is starting"
        self._open: dict[str, Rollout] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._held: set[str] = set()
        """Rollouts whose version is kept loaded."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def use(self, core: Core) -> None:
        """Answer with the engine's versions; go on with the rollouts that a restart interrupted."""
        self._engine, self._why_not = core.engine, core.why_not
        self._held.clear()
        with suppress(Unavailable):  # a full disk; a request that names a rollout tries again
            for rollout in await self._log.open_rollouts():
                self._watch(rollout)
        for rollout in list(self._open.values()):
            self._run(self._hold_again(rollout))

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self, request: Beginning, caller: str) -> Rollout:
        """Raises Conflict, Unprocessable, Unavailable."""
        version = None
        if self._engine:
            version = await asyncio.to_thread(chosen, self._engine, request.version)
            await self._engine.leases.hold(version)
        elif request.version not in ("live", "candidate"):
            raise Conflict(f"only the model as it is can answer: {self._why_not}", code="not_learning")
        created_at = time.time()
        rollout = Rollout(
            rollout_id(),
            created_at,
            created_at + request.time_limit_s,
            *(request.task, request.group, request.seed, request.tags),
            *(version, request.held_out, caller),
        )
        try:
            await self._log.add_rollout(rollout)
        except BaseException:
            if self._engine and version is not None:
                self._engine.leases.release(version)
            raise
        if self._engine:
            self._held.add(rollout.id)
        self._watch(rollout)
        return rollout

    async def end(self, name: str, status: RolloutStatus = "ended") -> Rollout:
        """End a rollout; one that has ended stays as it is. Raises NotFound, Unavailable."""
        rollout = await self._log.end_rollout(name, time.time(), status)
        self._close(rollout)
        return rollout

    async def erased(self, user: str) -> None:
        for rollout in [rollout for rollout in self._open.values() if rollout.caller == user]:
            self._close(rollout)

    def proof(self, rollout_id: str) -> str:
        """Return what only the key of a rollout has."""
        return hmac.digest(self._secret, rollout_id.encode(), "sha256").hex()[:PROOF_CHARACTERS]

    async def carried(self, claim: RolloutName) -> Carried:
        """Return an open rollout, for a request. Raises NotFound, Unauthorized, Conflict, Unavailable."""
        rollout_id = claim.id
        if claim.proof is not None and not hmac.compare_digest(claim.proof, self.proof(rollout_id)):
            raise Unauthorized("this isn't the key of that rollout: use the one from POST /v1/rollouts")
        rollout = self._open.get(rollout_id) or await self._log.rollout(rollout_id)
        if rollout.status != "open":
            raise Conflict(
                f"rollout {rollout_id} {in_words(rollout)}, so nothing more can be asked in it: begin another one with "
                "POST /v1/rollouts",
                code="rollout_ended",
            )
        if self._engine is None or rollout.version is None:
            return Carried(rollout_id, None, rollout.caller)
        await self._engine.leases.ensure(rollout.version)
        return Carried(rollout_id, self._engine.leases.name(rollout.version), rollout.caller)

    def _close(self, rollout: Rollout) -> None:
        self._open.pop(rollout.id, None)
        if timer := self._timers.pop(rollout.id, None):
            timer.cancel()
        if rollout.id in self._held and self._engine and rollout.version is not None:
            self._held.discard(rollout.id)
            self._engine.leases.release(rollout.version)

    def _watch(self, rollout: Rollout) -> None:
        """End a rollout when its time is over."""
        if rollout.id in self._open:
            return
        self._open[rollout.id] = rollout
        seconds = max(0.0, rollout.ends_at - time.time())
        loop = asyncio.get_running_loop()
        self._timers[rollout.id] = loop.call_later(seconds, lambda: self._run(self._time_out(rollout.id)))

    async def _time_out(self, name: str) -> None:
        try:
            await self.end(name, "timed_out")
        except BurnishError as error:  # the next start ends it
            logger.warning("rollout %s ran out of time, which wasn't stored: %s", name, error.message)
        else:
            logger.info("rollout %s timed out: nobody ended it", name)

    async def _hold_again(self, rollout: Rollout) -> None:
        if self._engine is None or rollout.version is None:
            return
        try:
            await self._engine.leases.hold(rollout.version)
            self._held.add(rollout.id)
        except Unavailable as error:
            logger.warning("rollout %s can't go on: %s", rollout.id, error.message)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def chosen(engine: Engine, choice: Literal["live", "candidate", "base"] | int) -> int:
    """Return the version that is meant; ``candidate``: the latest one, or the live one if that is later.

    Reads files. Raises Unprocessable.
    """
    live = engine.swap.registry.live()
    if choice == "live":
        return live
    if choice in ("base", BASE_VERSION):
        return BASE_VERSION
    versions = engine.leases.versions()
    if choice == "candidate":
        return max([live, *versions])
    if choice not in versions:
        labels = ", ".join(version_label(number) for number in sorted({BASE_VERSION, *versions}))
        raise Unprocessable(
            f"there is no version {choice} that can answer: burnish has {labels}", param="version"
        )
    return int(choice)
