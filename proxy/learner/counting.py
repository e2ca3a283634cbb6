"""How many ratings the next run could learn from. No text is read for it."""

from __future__ import annotations

import asyncio

from burnish.adapters.registry import Registry
from burnish.proxy.config import TrainConfig
from burnish.proxy.learner.export import FAULTS, learnt_by
from burnish.proxy.log import Log, RatingCounts, RatingTally, ReadyCounts


class Counting:
    """The counts as of the last look at the log."""

    def __init__(self, log: Log, registry: Registry, train: TrainConfig) -> None:
        self.stale = True
        """Whether ratings, or what counts as learnt, may have changed since."""
        self._log = log
        self._registry = registry
        self._tally = RatingTally(train.rater_weights, next_turns=train.next_turn)
        self._counts = RatingCounts(ReadyCounts(), ReadyCounts(), {})
        self._learnt: tuple[int, frozenset[str]] | None = None

    def ready(self, *, refresh: bool = False) -> ReadyCounts:
        """Return what a run would learn from; with ``refresh`` a run on all ratings."""
        return self._counts.all if refresh else self._counts.ready

    @property
    def left_out(self) -> dict[str, int]:
        """Rated answers that cannot be learnt from, by reason."""
        return {FAULTS[fault]: count for fault, count in self._counts.left_out.items()}

    async def update(self, since: str | None) -> None:
        """Count what changed. ``since``: the id of the last run that came to a verdict. Raises Unavailable."""
        self.stale = False
        try:
            learnt = await asyncio.to_thread(self.learnt)
            moment = since.partition("_")[2] if since else ""
            self._counts = await self._log.rating_counts(self._tally, learnt, moment)
        except BaseException:
            self.stale = True
            raise

    def learnt(self) -> frozenset[str]:
        """Return the feedback ids that the live version has learnt from, the same object while it is live."""
        live = self._registry.live()
        if self._learnt is None or self._learnt[0] != live:
            manifests = {version.number: version.manifest for version in self._registry.versions()}
            self._learnt = live, learnt_by(live, manifests)
        return self._learnt[1]
