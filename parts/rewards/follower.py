"""Gives each new answer its reward: follows the log a moment behind its writer, so no request waits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.parts.rewards.replies import ScorableReply, Scored, asking, scorable_reply
from burnish.proxy.http.errors import Conflict, Unavailable
from burnish.proxy.log import Log
from burnish.proxy.records import Completion

logger = logging.getLogger(__name__)

GATHER_S = 0.2
"""Answers that are stored within this time are scored together."""
ROWS = 100
"""Read at once."""
FAULT_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Active:
    """A reward model that is on."""

    id: str
    since: float
    """Seconds since the epoch, UTC."""
    reads_context: bool
    """Whether it wants the whole conversation, not only the last question."""
    ask: Callable[[Sequence[dict[str, Any]], Sequence[ScorableReply]], Awaitable[list[float]]]

    async def score(self, messages: Sequence[dict[str, Any]], replies: Sequence[ScorableReply]) -> Scored:
        """Raises Conflict, Unavailable."""
        rewards = await self.ask(messages, replies) if replies else []
        return Scored(self.id, [reward if math.isfinite(reward) else None for reward in rewards])

    def same_as(self, model: Active | None) -> bool:
        return model is not None and (self.id, self.since) == (model.id, model.since)


class Follower:
    def __init__(
        self, log: Log, active: Callable[[], Active | None], on_rewarded: Callable[[Collection[str]], None]
    ) -> None:
        """``on_rewarded`` gets the IDs of completions that got a reward."""
        self._log = log
        self._active = active
        self._on_rewarded = on_rewarded
        self._stored = asyncio.Event()
        self.scored = self.unscored = 0
        """Answers since burnish started."""

    def wake(self) -> None:
        """Called in the event loop when completions were stored, or another model is on."""
        self._stored.set()

    async def run(self) -> None:
        """Score what is stored while a model is on, for ever."""
        model: Active | None = None
        upto = 0
        while True:
            try:
                if active := self._active():
                    if not active.same_as(model):
                        model, upto = active, await self._log.rewarded_upto(active.id, active.since)
                    upto = await self._catch_up(active, upto)
                await self._stored.wait()
                await asyncio.sleep(GATHER_S)
            except (Conflict, Unavailable) as error:
                logger.warning("answers get no rewards for %g s: %s", FAULT_PAUSE_S, error)
                await asyncio.sleep(FAULT_PAUSE_S)
            except Exception:
                # A fault of one model must not end the rewards of the next.
                logger.exception("answers get no rewards for %g s", FAULT_PAUSE_S)
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _catch_up(self, active: Active, position: int) -> int:
        """Score all that is stored behind a row; return the number of the last one. Raises Conflict, Unavailable."""
        while True:
            self._stored.clear()
            upto, completions = await self._log.unrewarded(position, ROWS, full=active.reads_context)
            rewards = [await _reward(active, completion) for completion in completions]
            pairs = zip(completions, rewards, strict=True)
            rows = [(completion.id, reward) for completion, reward in pairs if reward is not None]
            if rows:
                await self._log.set_rewards(active.id, rows)
                self._on_rewarded([name for name, _ in rows])
            self.scored += len(rows)
            self.unscored += len(completions) - len(rows)
            if upto == position or not active.same_as(self._active()):
                return upto
            position = upto


async def _reward(active: Active, completion: Completion) -> float | None:
    messages = completion.messages if active.reads_context else asking(completion.prompt)
    reply = scorable_reply(completion.reply or {}, completion.ended.finish_reason)
    return (await active.score(messages, [reply])).rewards[0]
