"""The state of the current run and the results of the last ones."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import Literal

from burnish.adapters.errors import AdapterError
from burnish.adapters.registry import version_label
from burnish.learner.curve import curve_of
from burnish.learner.cycle import Conclusion, Cycle
from burnish.learner.versions import Versions
from burnish.proxy import ids
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.log.runs import Run

logger = logging.getLogger(__name__)

# Read at the start: back-off and new ratings depend on them.
REMEMBERED_RUNS = 50
CONCLUDED = frozenset({"live", "candidate", "rejected"})
"""Runs with a verdict. The ratings that they saw are no longer new."""


@dataclass(eq=False, slots=True)
class Runs:
    cycle: Cycle
    versions: Versions
    active: Run | None = None
    recalled: bool = False
    concluded: str | None = None
    """The ID of the last run with a verdict."""
    failures: int = 0
    """Failures in a row, up to the last run."""
    failed_at: float | None = None

    async def recall(self) -> None:
        """Read the last runs, and end those that a crash left open. Raises Unavailable."""
        runs = await self.cycle.log.runs(REMEMBERED_RUNS)
        for run in runs:
            if run.ended_at is None:
                interrupted = replace(run, status="interrupted", reason="burnish stopped")
                await self._store(replace(interrupted, ended_at=time.time()))
        concluded = [place for place, run in enumerate(runs) if run.status in CONCLUDED and run.ended_at]
        self.failures = concluded[0] if concluded else len(runs)
        self.concluded = runs[concluded[0]].id if concluded else None
        if self.failures:
            self.failed_at = runs[0].ended_at or time.time()
        self.recalled = True

    async def start(self, reason: str, ratings: int) -> Run:
        """Store a new run and return it. Raises Unavailable; even then the run is active."""
        self.active = Run(ids.run_id(), time.time(), None, "training", reason, None, ratings)
        await self.cycle.log.start_run(self.active)
        logger.info("training has started: %s. To watch it: burnish watch", reason)
        return self.active

    async def resume(self, run_id: str, version: int) -> None:
        """Make an interrupted run the current one again. Raises NotFound, Unavailable."""
        run = await self.cycle.log.run(run_id)
        self.active = replace(run, status="evaluating", version=version, ended_at=None)
        await self._store(self.active)
        logger.info("v%d is judged again, because burnish had stopped before the gate decided", version)

    async def add_note(self, note: str) -> None:
        """Add to the run's reason how it differs from the settings, and why."""
        logger.info("settings of this run: %s", note)
        await self._change(reason=f"{self._current.reason}; {note}")

    async def report(self, stage: Literal["evaluating", "swapping"], version: int) -> None:
        await self._change(status=stage, version=version)

    async def conclude(self, conclusion: Conclusion) -> None:
        run = self._current
        self.concluded, self.failures, self.failed_at = run.id, 0, None
        label = version_label(conclusion.version)
        state = "a candidate" if conclusion.status == "candidate" else conclusion.status
        logger.info("%s is %s: %s", label, state, conclusion.reason)
        run = replace(run, status=conclusion.status, reason=conclusion.reason, version=conclusion.version)
        await self._end(replace(run, ended_at=time.time()))

    async def end(self, status: Literal["failed", "interrupted"], reason: str) -> None:
        """End the run without a verdict. If it failed, reject its candidate; if not, the next start judges it."""
        if (run := self.active) is None:
            return  # what follows its end was interrupted
        self.failures += 1
        self.failed_at = time.time()
        if status == "interrupted":
            logger.info("training is interrupted: %s", reason)
        try:
            if status == "failed":
                self.versions.give_up_unjudged(f"its run failed before the gate decided: {reason}")
        except (AdapterError, OSError) as error:
            logger.error("the candidate of %s could not be rejected: %s", run.id, error)
        await self._end(replace(run, status=status, reason=reason, ended_at=time.time()))

    async def _end(self, run: Run) -> None:
        await self._keep_curve(run.id)
        await self._store(run)
        # In the same step: who reads that it has ended may ask for the next run at once.
        self.active = None
        await asyncio.to_thread(self.cycle.ended, run.id)

    async def _keep_curve(self, run_id: str) -> None:
        """Store the curve of a run, whose job will be deleted some day."""
        try:
            if points := await asyncio.to_thread(curve_of, self.cycle.job(run_id)):
                await self.cycle.log.keep_curve(run_id, points)
        except BurnishError as error:
            logger.error("the curve of training run %s was not stored: %s", run_id, error)

    @property
    def _current(self) -> Run:
        assert self.active is not None  # only the current run changes
        return self.active

    async def _change(self, **facts: object) -> None:
        self.active = replace(self._current, **facts)  # type: ignore[arg-type]
        await self._store(self.active)

    async def _store(self, run: Run) -> None:
        """Store a run's state. A log that can't be written at the moment must not end the run."""
        try:
            await self.cycle.log.update_run(run)
        except BurnishError as error:
            logger.error("the state of training run %s was not stored: %s", run.id, error)
