"""Counts the ratings that the next run could learn from, without reading text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from burnish.proxy.config import TrainConfig
from burnish.proxy.learner.export import FAULTS
from burnish.proxy.log import Log, RatingCounts, RatingTally, ReadyCounts


class Counting:
    """The counts at the last ``update``."""

    def __init__(self, log: Log, train: TrainConfig, learnt: Callable[[], frozenset[str]]) -> None:
        """``learnt`` returns the feedback IDs that the live version has learnt from."""
        self.stale = True
        """Ratings or the live version may have changed since."""
        self._log = log
        self._learnt = learnt
        self._tally = RatingTally(train.rater_weights, next_turns=train.next_turn)
        self._counts = RatingCounts(ReadyCounts(), ReadyCounts(), {})

    def ready(self, *, refresh: bool = False) -> ReadyCounts:
        """Return the counts for a run; with ``refresh`` for one on all ratings."""
        return self._counts.all if refresh else self._counts.ready

    @property
    def left_out(self) -> dict[str, int]:
        """Rated answers that can't be learnt from, by reason."""
        return {FAULTS[fault]: count for fault, count in self._counts.left_out.items()}

    async def update(self, since: str | None) -> None:
        """Count changes. ``since``: the ID of the last run with a verdict. Raises Unavailable."""
        self.stale = False
        try:
            learnt = await asyncio.to_thread(self._learnt)
            moment = since.partition("_")[2] if since else ""
            self._counts = await self._log.rating_counts(self._tally, learnt, moment)
        except BaseException:
            self.stale = True
            raise
