"""Turns ratings into live versions while burnish runs.

One task decides and carries out one run at a time. A failure ends the run with a reason. Serving goes on, and the
ratings stay ready for the next run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from burnish.adapters.errors import AdapterError
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion
from burnish.adapters.registry import version_label
from burnish.learner.curve import Curve, curve_of
from burnish.learner.cycle import Cycle
from burnish.learner.machine import UNKNOWN, Meter, Surroundings
from burnish.learner.plan import AS_SET, RunOptions
from burnish.learner.rollouts import no_rollout
from burnish.learner.runs import RunRequest, Runs
from burnish.learner.scheduler import Decision, SchedulerState, decide, warnings
from burnish.learner.trainer import latest_step
from burnish.learner.versions import Promoted, Versions
from burnish.proxy.http.errors import BurnishError, Conflict, NotFound, Unavailable
from burnish.proxy.log import RatingCounts, RatingTally, ReadyCounts
from burnish.proxy.log.faults import in_words
from burnish.proxy.log.runs import Run
from burnish.training.errors import JobError, TrainingError
from burnish.training.job import JobDirectory, latest_prompts

logger = logging.getLogger(__name__)

# How often it looks at traffic, clock and back-off; a look costs microseconds.
TICK_S = 1.0
PAUSED = "paused"
"""No run starts by itself while this file is in the folder of jobs."""
# After a fault of ours; a shorter pause would fill the log.
FAULT_PAUSE_S = 30.0


class Learner:
    def __init__(self, cycle: Cycle, meter: Meter) -> None:
        self._cycle = cycle
        self._train = cycle.train
        self._planner = planner = cycle.planner
        self._tally = RatingTally(planner.rules)
        self._counts = RatingCounts(ReadyCounts(), ReadyCounts(), {})
        self._stale = True
        """Ratings or the live version may have changed since they were counted."""
        self._versions = Versions(cycle.registry, cycle.swap)
        self._runs = Runs(cycle, self._versions)
        self._request: RunRequest | None = None
        self._around = Surroundings(meter, planner.memory_needed)
        self._decision = Decision(False, "burnish has just started")
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_file = cycle.jobs / PAUSED
        self._proof_sought = BASE_VERSION

    async def start(self) -> None:
        """Work in the background until ``stop``, first on versions that a crash left unjudged. Raises AdapterError."""
        await self._prune()
        with suppress(Unavailable):  # a full disk; the next tick tries again
            await self._runs.recall()
        self._task = asyncio.get_running_loop().create_task(self._work(self._versions.unjudged()))

    async def stop(self) -> None:
        """Interrupt the current run and end its child process."""
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._request:
            self._request.started.cancel()

    @property
    def in_run(self) -> bool:
        return self._runs.active is not None

    @asynccontextmanager
    async def stopped(self, reason: str) -> AsyncIterator[str | None]:
        """Do nothing during the block; gives the run that was under way. Rejects it, and any version that waits."""
        run = self._runs.active
        if self._request:
            self._request.settle(Conflict(f"no run was started: {reason}", code="not_started"))
            self._request = None
        await self.stop()
        try:
            with suppress(Unavailable):  # then nothing else can be written either
                await self._runs.recall()
                await self._runs.drop_stopped(reason)
            self._versions.give_up_open(reason)
            yield run.id if run else None
        finally:
            await self.start()
            self.wake()

    def wake(self) -> None:
        """Count again, because ratings have changed."""
        self._stale = True
        self._changed.set()

    def status(self) -> dict[str, Any]:
        run = self._runs.active
        idle = "paused" if self._pause_file.exists() else "idle"
        waits, ready = self.waiting(), self._counts.ready
        prompts = latest_prompts(self._cycle.jobs)
        return {
            "state": run.status if run else idle if self._train.enabled else "off",
            "reason": run.reason if run else self._decision.reason,
            "run": self.shown(run) if run else None,
            "waiting": {"version": waits.number, "reason": waits.reason} if waits else None,
            "ready": ready._asdict() | {"new_comments": ready.new_comments},
            "left_out": {in_words(fault): count for fault, count in self._counts.left_out.items()},
            "prompts": prompts.model_dump() if prompts else None,
            "needed": {
                "new": self._train.min_ratings,
                "good": self._train.min_good,
                "bad": self._train.min_bad,
                "comments": self._train.min_comments,
            },
            "schedule": self._train.schedule,
            "failures": self._runs.failures,
        }

    def waiting(self) -> AdapterVersion | None:
        """Return the version that waits to be promoted, if there is one and it isn't about to go live by itself."""
        run = self._runs.active
        return None if run and run.status == "swapping" else self._versions.waiting()

    def shown(self, run: Run) -> dict[str, Any]:
        """Return a run as the API shows it: how far it is, the latest step, and the result of the trainer."""
        job = self.job(run.id)
        try:
            summary = job.result().model_dump(mode="json", exclude={"run_id"})
        except JobError:
            summary = None
        progress = self._cycle.progress(run.id)
        if progress and run.ended_at:
            progress = replace(progress, eta_s=None, run_eta_s=None)
        return asdict(run) | {
            "progress": progress and asdict(progress),
            "step": latest_step(job),
            "result": summary,
        }

    async def curve(self, run_id: str) -> Curve | None:
        """Return the curve of a run; None if it has made no step. Raises Unavailable."""
        return await asyncio.to_thread(curve_of, self.job(run_id)) or await self._cycle.log.curve(run_id)

    def job(self, run_id: str) -> JobDirectory:
        """Return the job directory of a run. Those of old runs were deleted."""
        return self._cycle.job(run_id)

    async def train_now(self, options: RunOptions = AS_SET, *, version: int | None = None) -> str:
        """Start a run regardless of counts and clock; return its ID. Raises Conflict, Unavailable.

        ``version``: train nothing, but judge this candidate.
        """
        request, decision = await self._requested(options, version)
        if not decision.start:
            raise _not_started(decision)
        if options.rollouts is not None and not await self._cycle.log.unlearnt_rollouts(options.rollouts):
            raise Conflict(f"no run was started: {no_rollout(options.rollouts)}", code="not_started")
        if self._request is None:
            self._request = request
            self._changed.set()
        return await asyncio.shield(self._request.started)

    async def judge_now(self, number: int) -> str:
        """Judge a candidate once more; return the ID of its run. Raises NotFound, Conflict, Unavailable."""
        await asyncio.to_thread(self._versions.check_candidate, number)
        return await self.train_now(version=number)

    async def warnings(self) -> list[str]:
        """Return what speaks against a run that the user asks for."""
        machine, needed_bytes = await self._around.at_once()
        return warnings(machine, needed_bytes, self._train)

    async def dry_run(self, options: RunOptions = AS_SET) -> dict[str, Any]:
        """Return what ``train_now`` would do, and the reason; changes nothing."""
        _, decision = await self._requested(options)
        plan = await self._planner.plan("run_", options)
        new = [choice for choice in plan.training if not choice.replayed]
        policies = self._planner.policies()
        return {
            "would_train": decision.start,
            "why": decision.reason,
            "by_itself": decide(self._state(), self._train, _now()).reason,
            "ready": self._counts.ready._asdict(),
            "trains_on": {
                "good": sum(choice.reward > 0 for choice in new),
                "bad": sum(choice.reward < 0 for choice in new),
            },
            "comments": sum(choice.comment is not None and choice.reward <= 0 for choice in new),
            "replayed": len(plan.training) - len(new),
            "left_out": plan.spec.left_out,
            "compared": sum(policies.trained(choice.rating.served) for choice in plan.training),
            "held_out": len(plan.held_out),
            "episodes": len(plan.episodes),
            "parent": plan.spec.parent_version,
            "objective": plan.spec.objective,
            "hyperparameters": plan.spec.hyperparameters.model_dump(mode="json"),
            "note": plan.note,
            "estimate": await self._planner.estimate(plan, self._cycle.jobs),
        }

    async def promote(self, number: int | None, reason: str, *, force: bool = False) -> Promoted:
        promoted = await self._versions.promote(number, reason, force=force)
        logger.info("%s is live: %s", version_label(promoted.version), reason)
        self.wake()  # the live version decides which ratings count as learnt
        return promoted

    async def rollback(self, to: int | None, reason: str) -> int:
        number = await self._versions.rollback(to, reason)
        logger.info("%s is live again: %s", version_label(number), reason)
        self.wake()
        return number

    async def forget(self) -> None:
        """Delete the texts of erased completions outside the log; see ``Cycle.forget``."""
        await self._cycle.forget(self._current)
        self._proof_sought = BASE_VERSION

    async def drop_erased(self) -> None:
        """The same after a retention. Raises OSError, Unavailable."""
        await self._cycle.drop_erased(self._current)

    @property
    def _current(self) -> str | None:
        return self._runs.active.id if self._runs.active else None

    async def pause(self, *, on: bool) -> None:
        """Stop or resume starting runs by itself, also after a restart. A current run continues. Raises Unavailable."""
        try:
            await asyncio.to_thread(_set_file, self._pause_file, there=on)
        except OSError as error:
            raise Unavailable(f"cannot write {self._pause_file}: {error.strerror or error}") from error
        logger.info("training is paused" if on else "training is no longer paused")
        self._around.forget()
        self._look()
        self.wake()

    async def _requested(
        self, options: RunOptions, version: int | None = None
    ) -> tuple[RunRequest, Decision]:
        await self._count()
        request = RunRequest(options, version, asyncio.get_running_loop().create_future())
        return request, decide(self._state(request), self._train, _now())

    async def _work(self, interrupted: Sequence[AdapterVersion]) -> None:
        try:
            await self._cycle.drop_erased(None)  # burnish may have been killed while it erased
        except (OSError, Unavailable) as error:
            logger.error("the jobs of earlier runs can't be searched for what was erased: %s", error)
        await self._judge_again(interrupted)
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
        self._changed.clear()
        if not self._runs.recalled:
            await self._runs.recall()
        if not self._request and (stopped := self._runs.stopped) and stopped.kept.by_user:
            self._request = RunRequest.again(stopped)
        if self._stale:
            await self._count()
        if not self._request:
            await self._look_around()
        if not (self._request or self._look().start):
            await self._prove_live()
            return
        request, self._request = self._request, None
        try:
            await self._count()  # a swap may have changed what counts as learnt without a call of wake()
            decision = self._look(request)
            if decision.start:
                await self._run(decision.reason, request)
                await self._prune()
            elif request:
                request.settle(_not_started(decision))
        finally:
            if request:
                request.settle(Unavailable("the run could not be started; see `burnish status`"))

    async def _prove_live(self) -> None:
        """See that the live version has a proof: earlier releases made none, and that of an erased user was deleted."""
        live = self._cycle.swap.route.live
        if live and live.version not in (BASE_VERSION, self._proof_sought):
            self._proof_sought = live.version
            with suppress(AdapterError):  # reconciling says what is wrong
                await self._cycle.swap.with_proof(self._cycle.registry.get(live.version))

    async def _look_around(self) -> None:
        """Read the machine if nothing else prevents a run."""
        if decide(replace(self._state(), machine=UNKNOWN), self._train, _now()).due:
            await self._around.look()
        else:
            self._around.forget()

    def _look(self, request: RunRequest | None = None) -> Decision:
        """Decide; store the reason and since when a run is due."""
        local_time, around = _now(), self._around
        route = self._cycle.swap.route
        if any(route.in_flight(version) for version in route.resident()):
            around.busy_at = local_time.timestamp()
        self._decision = decide(self._state(request), self._train, local_time)
        moment = local_time.timestamp()
        # The clock may have been set back since.
        around.due_since = min(around.due_since or moment, moment) if self._decision.due else None
        return self._decision

    async def _run(self, reason: str, request: RunRequest | None) -> None:
        options = request.options if request else AS_SET
        if request and request.version is not None:
            await self._judge(request.version, request)
            return
        counts = self._counts.all if options.refresh else self._counts.ready
        runs = self._runs
        async with self._recorded():
            count = counts.good + counts.bad + counts.neutral if options.rollouts is None else 0
            again = runs.stopped
            run = await runs.start(reason, count, options, by_user=request is not None)
            if request:
                request.settle(run.id)
            goes_on = again is not None and again.run.id == run.id
            plan, fate = await self._cycle.prepare(run.id, options, again=goes_on)
            for note in filter(None, (fate, plan.note)):
                await runs.add_note(note)
            await runs.conclude(await self._cycle.run(plan, runs.report))

    async def _judge(self, number: int, request: RunRequest) -> None:
        try:
            version = await asyncio.to_thread(self._cycle.registry.get, number)
            await self._runs.resume(version.manifest.run_id, number)
        except BurnishError as error:
            request.settle(error)
            return
        except (AdapterError, OSError) as error:
            request.settle(Conflict(f"v{number} can't be judged: {error}"))
            return
        request.settle(version.manifest.run_id)
        await self._conclude(version)

    async def _judge_again(self, interrupted: Sequence[AdapterVersion]) -> None:
        """Judge the candidates that burnish left without a verdict when it stopped, each once more."""
        for version in interrupted:
            try:
                await self._runs.resume(version.manifest.run_id, version.number)
            except NotFound as error:
                why = f"burnish was interrupted before the gate decided, and {error}"
                self._versions.give_up(version, why)
            except (AdapterError, BurnishError, OSError) as error:
                logger.error("v%d, which was interrupted, can't be judged: %s", version.number, error)
            else:
                await self._conclude(version)

    async def _conclude(self, version: AdapterVersion) -> None:
        async with self._recorded():
            await self._runs.conclude(await self._cycle.judge_again(version, self._runs.report))

    @asynccontextmanager
    async def _recorded(self) -> AsyncIterator[None]:
        """Record how the current run ends, if the block doesn't."""
        runs = self._runs
        try:
            yield
        except asyncio.CancelledError:
            await runs.end("interrupted")
            raise
        except (TrainingError, AdapterError, BurnishError, OSError) as error:
            logger.warning("a training run failed: %s", error)
            await runs.end("failed", str(error))
        except Exception as error:
            # A fault of ours in a run must not spread to the runs after it, nor to serving.
            logger.exception("a training run failed")
            await runs.end("failed", f"a fault in burnish: {type(error).__name__}: {error}")
        finally:
            runs.active = None
            self._around.due_since = None
            self.wake()

    async def _count(self) -> None:
        """Count changes, without reading text. Raises Unavailable."""
        self._stale = False
        try:
            learnt_ids = await asyncio.to_thread(self._planner.learnt)
            since = (self._runs.concluded or "").partition("_")[2]
            self._counts = await self._cycle.log.rating_counts(self._tally, learnt_ids, since)
        except BaseException:
            self._stale = True
            raise

    async def _prune(self) -> None:
        await self._cycle.swap.prune(self._train.keep_versions)

    def _state(self, request: RunRequest | None = None) -> SchedulerState:
        stopped = self._runs.stopped
        goes_on = stopped and (request is None or request.options == stopped.kept.options)
        return SchedulerState(
            self._counts.all if request and request.options.refresh else self._counts.ready,
            active=self._current,
            failures=self._runs.failures,
            failed_at=self._runs.failed_at,
            busy_at=self._around.busy_at,
            due_since=self._around.due_since,
            machine=self._around.machine,
            needed_bytes=self._around.needed_bytes,
            has_request=request is not None,
            one_sided=bool(request and (request.options.force or request.options.objective == "sft")),
            by_ratings=request is None or request.by_ratings,
            stopped=stopped.words if stopped and goes_on else None,
            paused=self._pause_file.exists(),
            untrainable=self._planner.untrainable,
        )


def _set_file(path: Path, *, there: bool) -> None:
    if there:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    else:
        path.unlink(missing_ok=True)


def _not_started(decision: Decision) -> Conflict:
    return Conflict(f"no run was started: {decision.reason}", code="not_started")


def _now() -> datetime:
    return datetime.now().astimezone()
