"""One training run: ready ratings → job → candidate → what the engine answers with it → gate → live, or why not."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from burnish.adapters import examples
from burnish.adapters.errors import AdapterError, NeedsRestart, Unproved
from burnish.adapters.manifest import AdapterVersion, Provenance
from burnish.adapters.registry import PASSED_AGAINST, version_label, waiting
from burnish.adapters.sleep import while_asleep
from burnish.adapters.swap import Swap
from burnish.gate import Evidence, Verdict, judge
from burnish.gate.evidence import Attempted
from burnish.learner import export, sampling
from burnish.learner.asked import as_asked
from burnish.learner.evidence import evidence
from burnish.learner.pairs import sampled_duels
from burnish.learner.plan import Horizon, Planner, RunOptions, RunPlan
from burnish.learner.progress import Durations, Progress, earlier_runs, progress
from burnish.learner.rollouts import attempts
from burnish.learner.stopped import erase, quoted
from burnish.learner.teaching import ENGINE_WAIT_S, answer_again
from burnish.learner.trainer import run_step
from burnish.proxy.log import Rating
from burnish.proxy.records import Completion, RatedCompletion, Tokens
from burnish.system.threads import in_one_thread
from burnish.training.comments import conditional
from burnish.training.errors import JobError, NotTrainable, TrainingError
from burnish.training.job import JobDirectory, JobSpec, TrainResult
from burnish.training.phases import Phases, read

logger = logging.getLogger(__name__)

# For looking into recent failures. Each holds an adapter: some 20 MB with the small model.
KEPT_JOBS = 10
MOST_UNRATED = 32
"""Unrated prompts of a run with a comment that has a condition."""
HELD_OUT_READ = 4 * sampling.MAX_PROMPTS
"""Held-out answers among which the gate looks for different prompts."""

FIRST_METRICS = (("loss", "loss"), ("KL", "kl_per_token"))
"""Metrics that a person sees at once, and their keys."""

INPUTS = {
    "another base model": {"base_model", "base_weights", "base_digest", "size"},
    "another version is live": {
        "parent_adapter", "parent_version", "incumbent_adapter", "incumbent_is_base", "behaviour_adapters",
    },
    "other settings": {"objective", "hyperparameters", "seed", "threads", "device", "quantize", "weights_cache"},
}  # fmt: skip
"""What a stopped run depends on besides ratings and rollouts: fields of its JobSpec."""
FEEDBACK = "its ratings or rollouts have changed"

Ending = Literal["live", "candidate", "rejected"]
Report = Callable[[Literal["evaluating", "swapping"], int], Awaitable[None]]
"""Called with the next stage and the version."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    status: Ending
    reason: str
    version: int


@dataclass(eq=False, kw_only=True)
class Cycle:
    planner: Planner
    swap: Swap
    jobs: Path
    """The folder of job directories."""
    gate: Callable[[Evidence], Verdict] = judge
    _erase_at_end: set[str] = field(default_factory=set, init=False)
    """Runs under way when a user was erased."""
    _trainer: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while the trainer runs: the machine has memory for one."""
    _earlier: Sequence[Durations] = field(default=(), init=False)
    """How long earlier runs like the current one took."""

    def __post_init__(self) -> None:
        self.log, self.registry, self.train = self.planner.log, self.planner.registry, self.planner.train

    def job(self, run_id: str) -> JobDirectory:
        """Return a run's job directory, which may be gone already."""
        return JobDirectory(self.jobs / run_id)

    def progress(self, run_id: str) -> Progress | None:
        """Return how far the current run is; None before its job is written."""
        marks = read(self.job(run_id).phases)
        return progress(marks, time.time(), self._earlier)

    async def forget(self, current: str | None) -> None:
        """Delete the texts of erased completions outside the log: jobs, proofs, and the examples of verdicts.

        ``current`` is the run under way, whose job is needed until its end. Raises OSError, Unavailable.
        """
        await asyncio.to_thread(self._forget_jobs, current)
        await asyncio.to_thread(self._forget_proofs)
        await self._forget_quotes()

    def _forget_jobs(self, current: str | None) -> None:
        for path in self.jobs.glob("run_*"):
            if path.name == current:
                self._erase_at_end.add(current)
            else:
                erase(path)

    async def drop_erased(self, current: str | None) -> None:
        """Delete the jobs with texts that the log no longer has; only the gate's replies if they alone have such.

        Raises OSError, Unavailable.
        """
        jobs = await asyncio.to_thread(lambda: [JobDirectory(path) for path in self.jobs.glob("run_*")])
        for job in jobs:
            if job.path.name == current:
                continue
            lesson_ids, prompt_ids = await asyncio.to_thread(quoted, job)
            stored = await self.log.existing(lesson_ids | prompt_ids)
            if lesson_ids - stored:
                logger.info(
                    "the job of %s is deleted: the log no longer has all that it quotes", job.path.name
                )
                await asyncio.to_thread(erase, job.path)
            elif prompt_ids - stored:
                job.rollouts.unlink()

    def _forget_proofs(self) -> None:
        """Take the ends of conversations out of the manifests; a version without them gets others."""
        for version in self.registry.versions():
            if version.manifest.proof:
                self.registry.set_proof(version.number, ())

    async def _forget_quotes(self) -> None:
        root = self.registry.root
        prompt_ids = await asyncio.to_thread(examples.prompts, root)
        quoted = {prompt_id for prompt_id in prompt_ids if not sampling.is_ours(prompt_id)}
        await asyncio.to_thread(examples.erase, root, quoted - await self.log.existing(quoted))

    def ended(self, run_id: str) -> None:
        """Delete the job of a run that was under way when a user was erased."""
        if run_id in self._erase_at_end:
            self._erase_at_end.discard(run_id)
            erase(self.job(run_id).path)
            self._forget_proofs()

    async def prepare(self, run_id: str, options: RunOptions, *, again: bool) -> tuple[RunPlan, str | None]:
        """Plan a run and write its job; return what became of the job that it had, in words, if it runs again.

        A stopped run goes on if all that it learns from is as it was; what was rated since waits for the next run.
        Raises TrainingError, AdapterError, Unavailable, OSError.
        """
        job = self.job(run_id)
        await asyncio.to_thread(self._make_room)
        changes = ["nothing was kept of it"]
        if again and (old := await asyncio.to_thread(_inputs, job)):
            try:
                plan = await self._planned(job, options, old.horizon)
                changes = await asyncio.to_thread(old.changes, job)
            except NotTrainable:
                changes = [FEEDBACK]
            if not changes:
                return plan, "goes on after a stop"
            await asyncio.to_thread(erase, job.path)
        plan = await self._planned(job, options)
        return plan, f"starts over after a stop: {', '.join(changes)}" if again else None

    async def _planned(
        self, job: JobDirectory, options: RunOptions, horizon: Horizon | None = None
    ) -> RunPlan:
        plan = await self.planner.plan(job.path.name, options, horizon)
        ratings = [choice.rating for choice in plan.choices]
        tokens = await self.log.tokens([rating.completion_id for rating in ratings])
        await self.log.rated(ratings, partial(self._write, job, plan, tokens))
        if plan.spec.objective == "critique" and any(conditional(choice.comment) for choice in plan.training):
            prompts = [
                export.unrated_prompt(completion, self.planner.engine)
                for completion in (await self._unlearnt(plan))[1::2]  # the gate asks the rest
            ]
            await asyncio.to_thread(job.write_unrated, prompts[:MOST_UNRATED])
        return plan

    async def run(self, plan: RunPlan, report: Report) -> Conclusion:
        """Carry a prepared plan out. Raises what ``prepare`` raises; the live version stays then."""
        job = self.job(plan.spec.run_id)
        await asyncio.to_thread(self._take_over, job)
        self._earlier = await asyncio.to_thread(earlier_runs, job)
        resumed = bool(read(job.phases))
        phases = Phases(job.phases)
        if not job.is_trained:
            await answer_again(job, self.swap, phases)
            phases.begin("loading")
            await self._run_step("train", job)
        version = await in_one_thread(self._register, job, plan)
        logger.info("%s is trained and stored: %s", version_label(version.number), _outcome(job.result()))
        if plan.episodes:
            await self.log.rollouts_learnt([episode.rollout for episode in plan.episodes], plan.spec.run_id)
        if plan.judge:
            conclusion = await self._decide(job, plan, version, report)
        else:
            number = version.number
            why = f"trained, and not judged, as you asked: `burnish adapters judge {number}` judges it"
            conclusion = await asyncio.to_thread(self._as_candidate, version.number, why, awaits="judgement")
        if not resumed:  # else nobody should learn from its times
            phases.begin("ended")
        return conclusion

    def _write(
        self,
        job: JobDirectory,
        plan: RunPlan,
        tokens: Mapping[str, Tokens],
        answers: Iterator[RatedCompletion],
    ) -> None:
        """Write a job. Raises OSError."""
        choices = {choice.rating.answer: choice for choice in plan.choices}
        policies = self.planner.policies()
        samples = (
            export.sample(answer, choices[answer.answer], policies, tokens.get(answer.completion.id))
            for answer in answers
        )
        job.write_job(plan.spec, samples, plan.episodes)

    def _as_candidate(self, number: int, reason: str, **details: Any) -> Conclusion:
        """Leave a version as a candidate."""
        self.registry.record(number, "candidate", reason, **details)
        return Conclusion("candidate", reason, number)

    async def judge_again(self, version: AdapterVersion, report: Report) -> Conclusion:
        """Judge a candidate whose judgement was interrupted. Raises what ``run`` raises."""
        job = self.job(version.manifest.run_id)
        plan = await self.planner.plan_again(job)
        Phases(job.phases).clear()
        self._earlier = await asyncio.to_thread(earlier_runs, job)
        return await self._decide(job, plan, version, report)

    async def _decide(
        self, job: JobDirectory, plan: RunPlan, version: AdapterVersion, report: Report
    ) -> Conclusion:
        await report("evaluating", version.number)
        phases = Phases(job.phases)
        try:
            try:
                verdict = await self._judge(job, plan, version, phases)
            except (NeedsRestart, Unproved) as error:
                # Another run would meet the same obstacle, so a person decides.
                again = "judge" if isinstance(error, Unproved) else "promote"
                why = f"trained, but not judged: {error}. Then: `burnish adapters {again} {version.number}`"
                return self._as_candidate(version.number, why, awaits="restart")
            details = verdict.model_dump(mode="json", exclude={"examples"})
            quotes = [example.model_dump(mode="json") for example in verdict.examples]
            await asyncio.to_thread(examples.keep, self.registry.root, version.number, quotes)
            await self._forget_quotes()  # those of users who were erased during the run
            if verdict.outcome == "rejected":
                self.registry.record(version.number, "rejected", verdict.reason, verdict=details)
                return Conclusion("rejected", verdict.reason, version.number)
            if verdict.outcome == "undecided":
                why = f"{verdict.reason} To use it all the same: `burnish adapters promote {version.number}`."
                return self._as_candidate(version.number, why, verdict=details)
            self._record_passed(version.number, plan, verdict.reason, details)
            if reason := self._obstacle(version.number, plan):
                return Conclusion("candidate", f"{verdict.reason} {reason}", version.number)
            await report("swapping", version.number)
            phases.begin("swapping")
            await self.swap.go_live(version, f"passed the gate: {verdict.reason}")
            return Conclusion("live", verdict.reason, version.number)
        finally:
            if self.registry.live() != version.number:
                self.swap.retire(version.number)

    async def with_proof(self, version: AdapterVersion) -> AdapterVersion:
        """Return a version with its proof: if it has none, the trainer makes it now, unless it can't or has work."""
        if version.manifest.proof or self.planner.untrainable or self._trainer.locked():
            return version
        job = self.job(f"proof_v{version.number}")
        try:
            await asyncio.to_thread(job.write_job, self.planner.proof_spec(version, job.path.name), [])
            await self._run_step("prove", job)
            await asyncio.to_thread(self.registry.set_proof, version.number, job.proof().proof)
            self.swap.forget_proofs()
            return self.registry.get(version.number)
        except (TrainingError, AdapterError, OSError) as error:
            logger.info("%s can only be proved weakly: %s", version_label(version.number), error)
            return version
        finally:
            await asyncio.to_thread(shutil.rmtree, job.path, ignore_errors=True)

    async def _run_step(self, step: Literal["train", "evaluate", "prove"], job: JobDirectory) -> None:
        """Run a step of the trainer. If it shares a GPU with an engine that can sleep, the engine sleeps meanwhile."""
        async with self._trainer:
            if self.train.device == "shared":
                await while_asleep(self.swap.host, self.swap.route, partial(run_step, step, job))
            else:
                await run_step(step, job)

    def _record_passed(self, number: int, plan: RunPlan, reason: str, verdict: dict[str, Any]) -> None:
        previous = waiting(self.registry)
        passed: dict[str, Any] = {"verdict": verdict, PASSED_AGAINST: plan.incumbent}
        why = f"better than {version_label(plan.incumbent)}: {reason}"
        self.registry.record(number, "candidate", why, **passed)
        if previous is not None and waiting(self.registry) == number:
            why = f"{version_label(number)} passed the gate later, and waits in its place"
            self.registry.record(previous, "candidate", why)

    def _obstacle(self, number: int, plan: RunPlan) -> str | None:
        """Return why a version that passed the gate can't go live by itself; None if it can."""
        if (live := self.registry.live()) != plan.incumbent:
            return (
                f"But {version_label(live)} went live while it was judged against {version_label(plan.incumbent)}. "
                f"To use it all the same: `burnish adapters promote {number}`."
            )
        if self.train.promote == "manual":
            return f"It waits for you: `burnish adapters promote {number}` or `/rl promote` makes it live."
        return None

    def _make_room(self) -> None:
        self.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(self.jobs.glob("run_*"))[:-KEPT_JOBS]:
            shutil.rmtree(old, ignore_errors=True)

    def _take_over(self, job: JobDirectory) -> None:
        """Take what an earlier run with the same inputs has: its checkpoint, and its teacher's replies."""
        if job.checkpoint.is_dir() or job.teacher.exists():
            return
        for path in sorted(self.jobs.glob("run_*"), reverse=True):
            old = JobDirectory(path)
            with suppress(JobError, OSError):  # a damaged job can't be continued
                has_some = old.checkpoint.is_dir() or old.teacher.exists()
                if path != job.path and has_some and old.inputs() == job.inputs():
                    if old.teacher.exists():
                        shutil.copy(old.teacher, job.teacher)
                    if old.checkpoint.is_dir():
                        old.checkpoint.rename(job.checkpoint)
                    return

    def _register(self, job: JobDirectory, plan: RunPlan) -> AdapterVersion:
        summary = job.result()
        return self.registry.register(
            job.adapter,
            Provenance(
                base_model=plan.spec.base_model,
                base_digest=plan.spec.base_digest,
                parent=plan.spec.parent_version,
                run_id=plan.spec.run_id,
                feedback_ids=_said(choice.rating for choice in plan.training if not choice.replayed),
                objective=plan.spec.objective,
                hyperparameters=plan.spec.hyperparameters.model_dump(mode="json"),
                metrics=_figures(summary) | {"notes": [*plan.spec.notes, *summary.notes]},
                held_out=_said(plan.held_out),
                unlearnt=summary.unlearnt,
                proof=summary.proof,
            ),
        )

    async def _learnt(self, recent: Sequence[Completion], plan: RunPlan) -> set[str]:
        """Return which of the latest completions have a context from which a version may have learnt."""
        names = [completion.id for completion in recent]
        return set(await self.log.in_contexts_of(names, plan.usable_ratings.completion_ids))

    async def _unlearnt(self, plan: RunPlan) -> list[Completion]:
        """Return the latest completions that teach nothing."""
        recent = await self.log.recent_prompts(sampling.RECENT, scrub=self.planner.rules.scrub)
        learnt_ids = await self._learnt(recent, plan)
        return [
            completion for completion in recent if completion.messages and completion.id not in learnt_ids
        ]

    async def _judge(
        self, job: JobDirectory, plan: RunPlan, version: AdapterVersion, phases: Phases
    ) -> Verdict:
        recent = await self.log.recent_prompts(sampling.RECENT, scrub=self.planner.rules.scrub)
        held_out = await self.log.rated(plan.held_out[:HELD_OUT_READ], list)
        learnt_ids = await self._learnt(recent, plan)
        learnt_ids |= {prompt.completion_id for prompt in await asyncio.to_thread(job.unrated)}
        engine = self.planner.engine
        prompts = sampling.prompts(
            [as_asked(answer.completion, engine) for answer in held_out],
            [as_asked(completion, engine) for completion in recent],
            learnt_ids,
        )
        phases.begin("staging")
        candidate = await self.swap.stage(version)
        await self.swap.route.wait_live(ENGINE_WAIT_S)
        # The incumbent answers the facts again, because it may have answered earlier on another engine. Two children
        # together take hardly longer than one.
        asking = [*prompts, *sampling.requests(prompts), *sampling.fact_prompts()]
        with self.swap.route.lease() as incumbent:
            counted = sampling.AnswerCounter(asking, phases).count
            sampled = await sampling.sample(asking, candidate, incumbent.endpoint, counted)
        answers = sampling.sorted_answers(sampled)
        await asyncio.to_thread(job.write_replies, answers.replies)
        versions = version.number, plan.incumbent
        await self.log.replace_sampled_duels(*versions, sampled_duels(prompts, answers.replies, *versions))
        phases.begin("scoring")
        logger.info(
            "%s and %s have answered %d prompts; their replies are scored",
            *(version_label(version.number), version_label(plan.incumbent), len(asking)),
        )
        await self._run_step("evaluate", job)
        phases.begin("judging")
        agent = await self._attempts(plan, version.number)
        measurements = evidence(job.evaluation(), answers, plan.usable_ratings.replies, agent)
        return await asyncio.to_thread(self.gate, measurements)

    async def _attempts(self, plan: RunPlan, candidate: int) -> tuple[Attempted, ...] | None:
        """Return what candidate and incumbent got on held-out seeds; None if no agent's rewards were learnt from."""
        if plan.spec.task is None:
            return None
        rollouts = await self.log.held_out_rollouts(plan.spec.task, (candidate, plan.incumbent))
        return attempts(rollouts, candidate, plan.incumbent)


class _Inputs(NamedTuple):
    """Those of a job that was stopped."""

    spec: JobSpec
    digest: str
    horizon: Horizon

    def changes(self, job: JobDirectory) -> list[str]:
        """Return what differs in the job as it is written now, in words. Raises JobError."""
        if job.inputs() == self.digest:
            return []
        spec = job.spec()
        changed = {name for name in JobSpec.model_fields if getattr(spec, name) != getattr(self.spec, name)}
        return [word for word, names in INPUTS.items() if changed & names] or [FEEDBACK]


def _inputs(job: JobDirectory) -> _Inputs | None:
    try:
        feedback = [name for sample in job.samples() for name in sample.feedback_ids]
        horizon = Horizon(max(feedback, default=""), frozenset(episode.rollout for episode in job.episodes()))
        return _Inputs(job.spec(), job.inputs(), horizon)
    except JobError:
        return None


def _said(ratings: Iterable[Rating]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for rating in ratings for name in rating.feedback_ids))


def _outcome(summary: TrainResult) -> str:
    metrics = (f"{name} {summary.metrics[key]:.3f}" for name, key in FIRST_METRICS if key in summary.metrics)
    early = f" ({summary.stopped_early})" if summary.stopped_early else ""
    steps = f"{summary.steps} steps{early}"
    return ", ".join((f"{summary.ratings} ratings", steps, *metrics, f"{summary.seconds:.0f} s"))


def _figures(summary: TrainResult) -> dict[str, Any]:
    own = summary.model_dump(mode="json", exclude={"run_id", "metrics", "unlearnt", "proof"})
    return summary.metrics | own
