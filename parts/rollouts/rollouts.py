"""Opens rollouts, keeps their versions, takes their rewards, and ends those that run out of time."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from burnish.parts.rollouts.version_leases import Pins, VersionChoice
from burnish.proxy.access.carried import Carried, RolloutName
from burnish.proxy.http.errors import BurnishError, Conflict, Unauthorized, Unavailable
from burnish.proxy.ids import rollout_id
from burnish.proxy.log import Log
from burnish.proxy.log.rollouts import Reward, Rollout, RolloutFilter, RolloutStatus, in_words

logger = logging.getLogger(__name__)

PROOF_CHARACTERS = 32
"""128 bits."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """What a client says of a rollout that it begins."""

    task: str
    group: str | None
    seed: int | None
    tags: Mapping[str, str]
    version: VersionChoice
    held_out: bool
    time_limit_s: float
    caller: str


class RewardResult(NamedTuple):
    rollout: Rollout
    repeated: bool
    """The same reward came before, and counts once."""


class Rollouts:
    """All rollouts of one log."""

    def __init__(self, log: Log, secret: bytes) -> None:
        """``secret``: that of the data directory, from which the keys are made."""
        self._log = log
        self._secret = secret
        self._pins: Pins | None = None
        self._why_not = "burnish is starting"
        self._open: dict[str, Rollout] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._held: set[str] = set()
        """Rollouts whose version is pinned."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def use(self, pins: Pins | None, why_not: str) -> None:
        """Answer with these versions; goes on with the rollouts that a restart interrupted.

        ``why_not``: why burnish doesn't choose the version, if ``pins`` is None.
        """
        self._pins, self._why_not = pins, why_not
        self._held.clear()
        with suppress(Unavailable):  # a full disk; a request that names a rollout tries again
            for rollout in await self._log.open_rollouts():
                self._watch(rollout)
        for rollout in list(self._open.values()):
            self._run(self._hold_again(rollout))

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self, request: RolloutRequest) -> Rollout:
        """Raises Conflict, Unprocessable, Unavailable."""
        version = None
        if self._pins:
            version = await asyncio.to_thread(self._pins.chosen, request.version)
            await self._pins.hold(version)
        elif request.version not in ("live", "candidate"):
            raise Conflict(f"only the model as it is can answer: {self._why_not}", code="not_learning")
        created_at = time.time()
        rollout = Rollout(
            rollout_id(),
            created_at,
            created_at + request.time_limit_s,
            *(request.task, request.group, request.seed, request.tags),
            *(version, request.held_out, request.caller),
        )
        try:
            await self._log.add_rollout(rollout)
        except BaseException:
            if self._pins and version is not None:
                self._pins.release(version)
            raise
        if self._pins:
            self._held.add(rollout.id)
        self._watch(rollout)
        return rollout

    async def reward(self, name: str, amount: float, step: int | None, reason: str | None) -> RewardResult:
        """Raises NotFound, Conflict, Unprocessable, Unavailable."""
        reward = Reward(time.time(), amount, None, reason)
        return RewardResult(*await self._log.reward_rollout(name, reward, step))

    async def end(self, name: str, status: RolloutStatus = "ended") -> Rollout:
        """End a rollout; one that has ended stays as it is. Raises NotFound, Unavailable."""
        rollout = await self._log.end_rollout(name, time.time(), status)
        self._close(rollout)
        return rollout

    async def one(self, name: str) -> Rollout:
        """Raises NotFound, Unavailable."""
        return await self._log.rollout(name)

    async def tokens(self, rollout: Rollout) -> tuple[int, dict[str, int]]:
        """Return how many steps have their tokens, and how many lack them, by reason. Raises Unavailable."""
        return await self._log.kept_tokens([step.completion_id for step in rollout.steps])

    async def latest(self, filters: RolloutFilter, limit: int) -> list[Rollout]:
        return await self._log.rollouts(filters, limit)

    def forgotten(self, caller: str) -> None:
        """Called when the log has erased a user."""
        for rollout in [rollout for rollout in self._open.values() if rollout.caller == caller]:
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
        model = await self._pins.name(rollout.version) if self._pins and rollout.version is not None else None
        return Carried(rollout_id, model, rollout.caller)

    def _close(self, rollout: Rollout) -> None:
        self._open.pop(rollout.id, None)
        if timer := self._timers.pop(rollout.id, None):
            timer.cancel()
        if rollout.id in self._held and self._pins and rollout.version is not None:
            self._held.discard(rollout.id)
            self._pins.release(rollout.version)

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
        if self._pins is None or rollout.version is None:
            return
        try:
            await self._pins.hold(rollout.version)
            self._held.add(rollout.id)
        except Unavailable as error:
            logger.warning("rollout %s can't go on: %s", rollout.id, error.message)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
