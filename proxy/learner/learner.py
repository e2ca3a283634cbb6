"""The cycle that turns ratings into live versions, for as long as burnish runs.

One task decides and runs, one run at a time. Whatever goes wrong in a run ends that run with a reason; serving goes
on, and the ratings stay ready for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from burnish.adapters.errors import AdapterError
from burnish.adapters.registry import Registry, version_label
from burnish.adapters.swap import Swap
from burnish.proxy import ids
from burnish.proxy.config import TrainConfig
from burnish.proxy.errors import BurnishError, Conflict, Unavailable
from burnish.proxy.learner.counting import Counting
from burnish.proxy.learner.cycle import Cycle, Ended
from burnish.proxy.learner.scheduler import Decision, Policy, State, decide
from burnish.proxy.learner.trainer import progress
from burnish.proxy.learner.versions import Versions
from burnish.proxy.log import Log
from burnish.proxy.records import Run
from burnish.training.errors import JobError, TrainingError
from burnish.training.job import JobDirectory

logger = logging.getLogger(__name__)

# How often traffic, clock and back-off are looked at; costs microseconds.
TICK_S = 1.0
PAUSED = "paused"
"""A file in the jobs' folder: no run starts by itself while it is there."""
# After a fault of ours, so that it doesn't fill the log.
FAULT_PAUSE_S = 30.0
# How far back runs are read at start, to go on with back-off and counting.
REMEMBERED_RUNS = 50
CONCLUDED = frozenset({"live", "candidate", "rejected"})
"""Runs that came to a verdict; the ratings that they saw are no longer new."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The user wants a run."""

    one_sided: bool
    refresh: bool
    started: asyncio.Future[str]
    """The run's id, once it is in the log; Conflict or Unavailable when there will be none."""


class Learner:
    """Decides when to train, trains, judges and swaps; tells what it does and why."""

    def __init__(
        self,
        *,
        log: Log,
        registry: Registry,
        swap: Swap,
        train: TrainConfig,
        base_weights: Path,
        weights_cache: Path,
        jobs: Path,
    ) -> None:
        """Take what it works on. ``base_weights`` is the file that the engine serves, ``jobs`` the jobs' folder."""
        self._log = log
        self._registry = registry
        self._swap = swap
        self._keep = train.keep_versions
        self._policy = Policy(
            train.enabled,
            train.min_ratings,
            train.min_comments,
            train.min_good,
            train.min_bad,
            train.schedule,
        )
        self._counting = Counting(log, registry, train)
        self._cycle = Cycle(
            log=log,
            registry=registry,
            swap=swap,
            train=train,
            base_weights=base_weights,
            weights_cache=weights_cache,
            jobs=jobs,
            learnt=self._counting.learnt,
        )
        self._versions = Versions(registry, swap)
        self._asked: _Asked | None = None
        self._active: Run | None = None
        self._concluded: str | None = None
        self._failures = 0
        self._failed_at: float | None = None
        self._busy_at: float | None = None
        self._due_since: float | None = None
        self._decision = Decision(False, "burnish has just started")
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_mark = jobs / PAUSED
        self._paused = self._pause_mark.exists()

    async def start(self) -> None:
        """Put in order what a crash left, then work in the background until ``stop``. Raises AdapterError."""
        try:
            await asyncio.to_thread(self._registry.recover)
            self._versions.give_up_unjudged("burnish was interrupted before the gate decided")
        except OSError as error:
            logger.error("what the last end left behind could not be put in order: %s", error)
        await self._swap.prune(self._keep)
        await self._recall()
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End the run that is under way, as interrupted, and its child."""
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._asked:
            self._asked.started.cancel()

    def wake(self) -> None:
        """Say that ratings have come or gone."""
        self._counting.stale = True
        self._changed.set()

    def status(self) -> dict[str, Any]:
        """Return what it does, why, and what is ready."""
        run = self._active
        idle = "paused" if self._paused else "idle"
        state = run.status if run else idle if self._policy.enabled else "off"
        return {
            "state": state,
            "reason": run.reason if run else self._decision.reason,
            "run": self.shown(run) if run else None,
            "ready": self._counting.ready()._asdict(),
            "left_out": self._counting.left_out,
            "needed": {
                "new": self._policy.min_ratings,
                "good": self._policy.min_good,
                "bad": self._policy.min_bad,
                "comments": self._policy.min_comments,
            },
            "schedule": self._policy.schedule,
            "failures": self._failures,
        }

    def shown(self, run: Run) -> dict[str, Any]:
        """Return a run as the API shows it, with live progress, and what came of its training."""
        job = self.job(run.id)
        try:
            result = job.result().model_dump(mode="json", exclude={"run_id"})
        except JobError:
            result = None
        return asdict(run) | {"progress": progress(job), "result": result}

    def job(self, run_id: str) -> JobDirectory:
        """Return a run's job directory; those of old runs are gone."""
        return self._cycle.job(run_id)

    async def train_now(self, *, force_one_sided: bool = False, refresh: bool = False) -> str:
        """Start a run whatever the counts and the clock say; return its id. Raises Conflict, Unavailable.

        ``refresh``: from the bare model, on all ratings.
        """
        await self._count()
        asked = _Asked(force_one_sided, refresh, asyncio.get_running_loop().create_future())
        decision = decide(self._state(asked), self._policy, _now())
        if not decision.start:
            raise _not_started(decision)
        if self._asked is None:
            self._asked = asked
            self._changed.set()
        return await asyncio.shield(self._asked.started)

    async def dry_run(self, *, force_one_sided: bool = False, refresh: bool = False) -> dict[str, Any]:
        """Return what ``train_now`` would do, and why or why not; changes nothing."""
        await self._count()
        asked = _Asked(force_one_sided, refresh, asyncio.get_running_loop().create_future())
        decision = decide(self._state(asked), self._policy, _now())
        plan = await self._cycle.plan("run_", accept_one_sided=force_one_sided, refresh=refresh)
        new = [sample for sample in plan.training if not sample.replayed]
        return {
            "would_train": decision.start,
            "why": decision.reason,
            "by_itself": decide(self._state(), self._policy, _now()).reason,
            "ready": self._counting.ready()._asdict(),
            "trains_on": {
                "good": sum(sample.reward > 0 for sample in new),
                "bad": sum(sample.reward < 0 for sample in new),
            },
            "replayed": len(plan.training) - len(new),
            "left_out": plan.spec.left_out,
            "held_out": len(plan.held_out),
            "parent": plan.parent,
            "objective": plan.spec.objective,
            "hyperparameters": plan.spec.hyperparameters.model_dump(mode="json"),
            "note": plan.note,
        }

    async def promote(self, number: int, reason: str, *, force: bool = False) -> None:
        """Make a version live by hand; see ``Versions.promote``."""
        await self._versions.promote(number, reason, force=force)
        self.wake()  # what counts as learnt depends on what is live

    async def rollback(self, to: int | None, reason: str) -> int:
        """Go back to what was live before; see ``Versions.rollback``."""
        number = await self._versions.rollback(to, reason)
        self.wake()
        return number

    async def pause(self, *, on: bool) -> None:
        """Start no more runs by itself, or go on; also after a restart. A run that is under way goes on.

        Raises Unavailable.
        """
        try:
            await asyncio.to_thread(_mark, self._pause_mark, there=on)
        except OSError as error:
            raise Unavailable(
                f"that cannot be noted in {self._pause_mark}: {error.strerror or error}"
            ) from error
        self._paused = on
        self._look()
        self.wake()

    async def _recall(self) -> None:
        """Read the last runs: close those that a crash left open, and go on counting where they ended."""
        runs = await self._log.runs(REMEMBERED_RUNS)
        for run in runs:
            if run.ended_at is None:
                await self._store(
                    replace(run, status="interrupted", reason="burnish stopped", ended_at=time.time())
                )
        concluded = [place for place, run in enumerate(runs) if run.status in CONCLUDED and run.ended_at]
        self._failures = concluded[0] if concluded else len(runs)
        self._concluded = runs[concluded[0]].id if concluded else None
        if self._failures:
            self._failed_at = runs[0].ended_at or time.time()

    async def _work(self) -> None:
        while True:
            pause_s = TICK_S
            try:
                await self._tick()
            except Unavailable as error:
                self._decision = Decision(False, f"the log cannot be read: {error}")
            except Exception:
                # Learning must never end because of one fault.
                logger.exception("the learner failed, and goes on in %g s", FAULT_PAUSE_S)
                pause_s = FAULT_PAUSE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _tick(self) -> None:
        """Look whether it is time for a run, and if so carry it out."""
        self._changed.clear()
        if self._counting.stale:
            await self._count()
        if not (self._asked or self._look().start):
            return
        asked, self._asked = self._asked, None
        try:
            await self._count()  # a rating may have been taken back, which wakes nobody
            decision = self._look(asked)
            if decision.start:
                await self._run(decision.reason, asked)
                await self._swap.prune(self._keep)
            elif asked:
                _settle(asked, _not_started(decision))
        finally:
            if asked:
                _settle(asked, Unavailable("the run could not be started; see `burnish status`"))

    def _look(self, asked: _Asked | None = None) -> Decision:
        """Decide, and remember why and since when."""
        now = _now()
        route = self._swap.route
        if any(route.in_flight(version) for version in route.resident()):
            self._busy_at = now.timestamp()
        state = self._state(asked)
        self._decision = decide(state, self._policy, now)
        self._due_since = (self._due_since or now.timestamp()) if self._decision.due else None
        return self._decision

    async def _run(self, reason: str, asked: _Asked | None) -> None:
        """Carry one run out and record how it ended."""
        ready = self._counting.ready(refresh=bool(asked and asked.refresh))
        count = ready.good + ready.bad + ready.neutral
        self._active = Run(ids.run_id(), time.time(), None, "training", reason, None, count)
        try:
            await self._log.start_run(self._active)
            if asked:
                _settle(asked, self._active.id)
            plan = await self._cycle.plan(
                self._active.id,
                accept_one_sided=bool(asked and asked.one_sided),
                refresh=bool(asked and asked.refresh),
            )
            await self._remark(plan.note)
            await self._conclude(await self._cycle.run(plan, self._report))
        except asyncio.CancelledError:
            await self._end("interrupted", "burnish stopped")
            raise
        except (TrainingError, AdapterError, BurnishError, OSError) as error:
            logger.warning("training run %s failed: %s", self._active.id, error)
            await self._end("failed", str(error))
        except Exception as error:
            # A fault of ours in a run must not spread to the runs after it, nor to serving.
            logger.exception("training run %s failed", self._active.id)
            await self._end("failed", f"a fault in burnish: {type(error).__name__}: {error}")
        finally:
            self._active = self._due_since = None
            self.wake()

    async def _remark(self, note: str | None) -> None:
        """Say in the run's reason what is done otherwise than it was set."""
        assert self._active is not None  # only a run has remarks
        if note:
            logger.info("training run %s: %s", self._active.id, note)
            self._active = replace(self._active, reason=f"{self._active.reason}; {note}")
            await self._store(self._active)

    async def _report(self, stage: Literal["evaluating", "swapping"], version: int) -> None:
        assert self._active is not None  # only a run reports
        self._active = replace(self._active, status=stage, version=version)
        await self._store(self._active)

    async def _conclude(self, ended: Ended) -> None:
        assert self._active is not None
        self._concluded, self._failures, self._failed_at = self._active.id, 0, None
        logger.info(
            "training run %s: %s is %s: %s",
            self._active.id,
            version_label(ended.version),
            ended.status,
            ended.reason,
        )
        await self._store(
            replace(self._active, status=ended.status, reason=ended.reason, ended_at=time.time())
        )

    async def _end(self, status: Literal["failed", "interrupted"], reason: str) -> None:
        """Record a run that came to no verdict; its candidate, if it got that far, is given up."""
        assert self._active is not None
        self._failed()
        try:
            self._versions.give_up_unjudged(f"its run {status} before the gate decided: {reason}")
        except (AdapterError, OSError) as error:
            logger.error("the candidate of %s could not be rejected: %s", self._active.id, error)
        await self._store(replace(self._active, status=status, reason=reason, ended_at=time.time()))

    async def _store(self, run: Run) -> None:
        """Write down how a run stands; a log that cannot be written just now must not end it."""
        try:
            await self._log.update_run(run)
        except BurnishError as error:
            logger.error("the state of training run %s was not stored: %s", run.id, error)

    def _failed(self) -> None:
        self._failures += 1
        self._failed_at = time.time()

    async def _count(self) -> None:
        await self._counting.update(self._concluded)

    def _state(self, asked: _Asked | None = None) -> State:
        ready = self._counting.ready(refresh=bool(asked and asked.refresh))
        return State(
            new=ready.new,
            good=ready.good,
            bad=ready.bad,
            comments=ready.comments,
            pairs=ready.pairs,
            active=self._active.id if self._active else None,
            failures=self._failures,
            failed_at=self._failed_at,
            busy_at=self._busy_at,
            due_since=self._due_since,
            asked=asked is not None,
            one_sided=bool(asked and asked.one_sided),
            paused=self._paused,
        )


def _mark(path: Path, *, there: bool) -> None:
    if there:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    else:
        path.unlink(missing_ok=True)


def _settle(asked: _Asked, outcome: str | BurnishError) -> None:
    """Tell whoever asked, unless that has been done or nobody waits any more."""
    if asked.started.done():
        return
    if isinstance(outcome, str):
        asked.started.set_result(outcome)
    else:
        asked.started.set_exception(outcome)


def _not_started(decision: Decision) -> Conflict:
    return Conflict(f"no run was started: {decision.reason}", code="not_started")


def _now() -> datetime:
    return datetime.now().astimezone()
