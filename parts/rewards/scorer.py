"""Gives each new answer its reward."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.parts.rewards.replies import ScorableReply, Scored, asking, scorable_reply
from burnish.proxy.log import Log
from burnish.proxy.log.followers import Follower
from burnish.proxy.records import Completion

ROWS = 100
"""Read at once."""


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


class Scorer:
    """Gives rewards as long as a model is on."""

    def __init__(
        self, log: Log, active: Callable[[], Active | None], on_rewarded: Callable[[Collection[str]], None]
    ) -> None:
        """``on_rewarded`` gets the IDs of completions that got a reward."""
        self._log = log
        self._active = active
        self._on_rewarded = on_rewarded
        self._model: Active | None = None
        """That was on last."""
        self._upto = 0
        """Number of the last row that it has seen."""
        self.scored = self.unscored = 0
        """Answers since burnish started."""
        self.follower = Follower("answers get no rewards", self._score_on)

    async def _score_on(self) -> bool:
        """Score some of what is stored behind the last row that was scored. Raises Conflict, Unavailable."""
        active = self._active()
        if active is None:
            return False
        if not active.same_as(self._model):
            self._model, self._upto = active, await self._log.rewarded_upto(active.id, active.since)
        upto, completions = await self._log.behind(self._upto, ROWS, full=active.reads_context)
        whole = [
            completion
            for completion in completions
            if completion.reply and completion.ended.outcome == "complete" and completion.ended.reward is None
        ]
        rewards = [await _reward(active, completion) for completion in whole]
        pairs = zip(whole, rewards, strict=True)
        rows = [(completion.id, reward) for completion, reward in pairs if reward is not None]
        if rows:
            await self._log.set_rewards(active.id, rows)
            self._on_rewarded([name for name, _ in rows])
        self.scored += len(rows)
        self.unscored += len(whole) - len(rows)
        more, self._upto = upto != self._upto, upto
        return more


async def _reward(active: Active, completion: Completion) -> float | None:
    messages = completion.messages if active.reads_context else asking(completion.prompt)
    reply = scorable_reply(completion.reply or {}, completion.ended.finish_reason)
    return (await active.score(messages, [reply])).rewards[0]
