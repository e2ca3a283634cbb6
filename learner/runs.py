"""The state of the current run and the results of the last ones."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import Literal, Self

from burnish.adapters.errors import AdapterError
from burnish.adapters.registry import version_label
from burnish.learner.curve import curve_of
from burnish.learner.cycle import Conclusion, Cycle
from burnish.learner.plan import RunOptions
from burnish.learner.stopped import MAX_CRASHES, Resumption, StoppedRun, place, resumption, settled
from burnish.learner.versions import Versions
from burnish.proxy import ids
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.log.runs import Run

logger = logging.getLogger(__name__)

# Read at the start: back-off and new ratings depend on them.
REMEMBERED_RUNS = 50
CONCLUDED = frozenset({"live", "candidate", "rejected"})
"""Runs with a verdict. The ratings that they saw are no longer new."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    options: RunOptions
    version: int | None
    """Train nothing: judge this candidate."""
    started: asyncio.Future[str]
    """The ID of the run once it is in the log; otherwise Conflict or Unavailable."""

    @classmethod
    def again(cls, stopped: StoppedRun) -> Self:
        """What was asked for before burnish stopped. Nobody waits for the answer."""
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        started.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        return cls(stopped.kept.options, None, started)

    @property
    def by_ratings(self) -> bool:
        """Whether there must be ratings of both kinds."""
        return self.version is None and self.options.rollouts is None

    def settle(self, outcome: str | BurnishError) -> None:
        """Answer the request, if it has no answer yet."""
        if self.started.done():
            return
        if isinstance(outcome, str):
            self.started.set_result(outcome)
        else:
            self.started.set_exception(outcome)


@dataclass(eq=False, slots=True)
class Runs:
    cycle: Cycle
    versions: Versions
    active: Run | None = None
    recalled: bool = False
    concluded: str | None = None
    """The ID of the last run with a verdict."""
    stopped: StoppedRun | None = None
    """The last run, if the end of burnish stopped it, and it goes on."""
    failures: int = 0
    """Failures in a row, up to the last run. A run that was stopped is none."""
    failed_at: float | None = None

    async def recall(self) -> None:
        """Read the last runs, and those that a crash left open. Raises Unavailable."""
        runs = [await self._as_left(run) for run in await self.cycle.log.runs(REMEMBERED_RUNS)]
        concluded = [place for place, run in enumerate(runs) if run.status in CONCLUDED]
        self.concluded = runs[concluded[0]].id if concluded else None
        failed = [run for run in runs[: concluded[0] if concluded else None] if run.status == "failed"]
        self.failures, self.failed_at = len(failed), failed[0].ended_at if failed else None
        self.stopped = self._stopped(runs[0]) if runs else None
        self.recalled = True

    def _stopped(self, run: Run) -> StoppedRun | None:
        """A run with a version isn't trained again; the learner judges it."""
        goes_on = run.status == "interrupted" and not run.version
        kept = resumption(self.cycle.job(run.id).path) if goes_on else None
        return StoppedRun(run, kept) if kept else None

    async def _as_left(self, run: Run) -> Run:
        """Bring the record of a run up to what had happened when burnish ended."""
        job = self.cycle.job(run.id).path
        was_stopped = not run.ended_at or (run.status == "interrupted" and resumption(job))
        if was_stopped and run.version and (verdict := self.versions.verdict(run.version)):
            run = replace(run, status=verdict.status, reason=verdict.reason, ended_at=time.time())
            settled(job)
            await self._store(run)
        return run if run.ended_at else await self._crashed(run)

    async def _crashed(self, run: Run) -> Run:
        """End a run that burnish didn't end: it goes on, unless that happened too often."""
        job = self.cycle.job(run.id)
        kept, how_far = resumption(job.path), place(job.phases)
        status: Literal["failed", "interrupted"] = "interrupted"
        reason = f"stopped {how_far}" + ("; goes on" if kept else "")
        try:
            if kept and kept.crashes + 1 >= MAX_CRASHES:
                status = "failed"
                reason = f"burnish was killed {MAX_CRASHES} times during this run, at last {how_far}"
                self.versions.give_up_unjudged(reason)
                settled(job.path)
            elif kept:
                kept.model_copy(update={"crashes": kept.crashes + 1}).keep(job.path)
        except (AdapterError, OSError) as error:
            logger.error("what becomes of training run %s was not stored: %s", run.id, error)
        logger.warning("training run %s: %s", run.id, reason)
        run = replace(run, status=status, reason=reason, ended_at=time.time())
        await self._store(run)
        return run

    async def start(self, reason: str, ratings: int, options: RunOptions, *, by_user: bool) -> Run:
        """Store a new run and return it, or the one that was stopped if it was to do the same.

        Raises Unavailable; even then the run is active.
        """
        if (stopped := self.stopped) and stopped.kept.options == options:
            self.stopped = None
            self.active = replace(stopped.run, status="training", reason=stopped.kept.reason, ended_at=None)
            await self.cycle.log.update_run(self.active)
            logger.info("the run that %s goes on. To watch it: burnish watch", stopped.words)
            return self.active
        await self.drop_stopped("another run was asked for")
        self.active = Run(ids.run_id(), time.time(), None, "training", reason, None, ratings)
        await self.cycle.log.start_run(self.active)
        kept = Resumption(options=options, by_user=by_user, reason=reason)
        try:
            await asyncio.to_thread(kept.keep, self.cycle.job(self.active.id).path)
        except OSError as error:
            logger.warning("a restart will not go on with this run: %s", error)
        logger.info("training has started: %s. To watch it: burnish watch", reason)
        return self.active

    async def drop_stopped(self, reason: str) -> None:
        """The run that was stopped won't go on."""
        if stopped := self.stopped:
            self.stopped = None
            await asyncio.to_thread(settled, self.cycle.job(stopped.run.id).path)
            await self._store(replace(stopped.run, reason=f"{stopped.words}; {reason}"))

    async def resume(self, run_id: str, version: int) -> None:
        """Make a run that ended before its verdict the current one again. Raises NotFound, Unavailable, OSError."""
        run, job = await self.cycle.log.run(run_id), self.cycle.job(run_id)
        kept = resumption(job.path) or Resumption(options=RunOptions(), by_user=True, reason=run.reason)
        if self.stopped and self.stopped.run.id == run_id:
            self.stopped = None
        self.active = replace(run, status="evaluating", reason=kept.reason, version=version, ended_at=None)
        await asyncio.to_thread(kept.keep, job.path)
        await self._store(self.active)
        logger.info("v%d is judged again", version)

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

    async def end(self, status: Literal["failed", "interrupted"], reason: str = "") -> None:
        """End the run without a verdict. If it failed, reject its candidate; if not, it goes on with the next start."""
        if (run := self.active) is None:
            return  # what follows its end was interrupted
        if status == "interrupted":
            reason = f"stopped {place(self.cycle.job(run.id).phases)}; goes on when burnish runs again"
            logger.info("training %s", reason)
        else:
            self.failures += 1
            self.failed_at = time.time()
            try:
                self.versions.give_up_unjudged(f"its run failed before the gate decided: {reason}")
            except (AdapterError, OSError) as error:
                logger.error("the candidate of %s could not be rejected: %s", run.id, error)
        await self._end(replace(run, status=status, reason=reason, ended_at=time.time()))

    async def _end(self, run: Run) -> None:
        await self._keep_curve(run.id)
        await self._store(run)
        # In the same step: who reads that it has ended may ask for the next run at once.
        self.active = None
        if run.status != "interrupted":
            settled(self.cycle.job(run.id).path)
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
