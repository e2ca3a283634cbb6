"""One training run: ready ratings → job → candidate → what the engine answers with it → gate → live, or why not."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from burnish.adapters import examples
from burnish.adapters.errors import IllegalTransition, NeedsRestart
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, Provenance, learnt_by
from burnish.adapters.registry import Registry, version_label
from burnish.adapters.sleep import while_asleep
from burnish.adapters.swap import Swap
from burnish.adapters.waiting import PASSED_AGAINST, waiting
from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.config.tables import TrainConfig
from burnish.gate import Evidence, Verdict, judge
from burnish.gate.evidence import Attempted
from burnish.gate.rewards import believed_preference_model
from burnish.learner import export, sampling
from burnish.learner.evidence import evidence, rated_replies
from burnish.learner.pairs import kept_pairs
from burnish.learner.plan import AS_SET, RunOptions, RunPlan, UsableRatings
from burnish.learner.progress import Durations, Progress, earlier_runs, progress
from burnish.learner.rollouts import Logged, attempts, no_rollout, usable_rollouts
from burnish.learner.trainer import run_step
from burnish.proxy.log import Log, Rating
from burnish.proxy.records import RatedCompletion
from burnish.system.threads import cores, in_one_thread
from burnish.training.device import main_memory, model_size
from burnish.training.errors import JobError, NotTrainable
from burnish.training.job import (
    Hyperparameters,
    JobDirectory,
    JobSpec,
    ModelSize,
    Objective,
    TrainResult,
)
from burnish.training.phases import Phases, read
from burnish.training.presets import choose, hyperparameters, reasons, teaches
from burnish.training.presets import one_sided as is_one_sided

logger = logging.getLogger(__name__)

# For looking into recent failures. Each holds an adapter: some 20 MB with the small model.
KEPT_JOBS = 10
# With ratings of one kind only the pull to the base model keeps the replies fluent.
ONE_SIDED_KL_BETA = 0.1
FOR_AGENTS: Objective = "rloo"
"""Learns from an agent's rewards if the settings name no policy gradient."""
# A trainer beside the server: half of the cores serve on.
CORES_SHARE = 2
HELD_OUT_READ = 4 * sampling.MAX_PROMPTS
"""Held-out answers among which the gate looks for different prompts."""
# An engine that died comes back in two seconds; a busy machine takes longer.
ENGINE_WAIT_S = 60.0

FIRST_METRICS = (("loss", "loss"), ("KL", "kl_per_token"))
"""Metrics that a person sees at once, and their keys."""

Ending = Literal["live", "candidate", "rejected"]
Report = Callable[[Literal["evaluating", "swapping"], int], Awaitable[None]]
"""Called with the next stage and the version."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of a run that came to a verdict."""

    status: Ending
    reason: str
    version: int


@dataclass(eq=False, kw_only=True)
class Cycle:
    """Plans runs and carries them out."""

    log: Log
    registry: Registry
    swap: Swap
    train: TrainConfig
    scrub: bool
    """``log.scrub``."""
    teachers: Collection[str] = ()
    """The further upstreams whose answers teach."""
    base_weights: Path
    """What the engine serves."""
    weights_cache: Path
    jobs: Path
    """The folder of job directories."""
    untrainable: str | None = None
    """Why the model can't be trained, in words."""
    gate: Callable[[Evidence], Verdict] = judge
    _learnt_cache: tuple[int, frozenset[str]] | None = field(default=None, init=False)
    _erase_at_end: set[str] = field(default_factory=set, init=False)
    """Runs under way when a user was erased."""
    _earlier: Sequence[Durations] = field(default=(), init=False)
    """How long earlier runs like the current one took."""

    def job(self, run_id: str) -> JobDirectory:
        """Return a run's job directory, which may be gone already."""
        return JobDirectory(self.jobs / run_id)

    def progress(self, run_id: str) -> Progress | None:
        """Return how far the current run is; None before its job is written."""
        return progress(read(self.job(run_id).phases), time.time(), self._earlier)

    async def forget(self, current: str | None) -> None:
        """Delete the texts of erased completions outside the log: all jobs, and the examples of verdicts.

        ``current`` is the run under way, whose job is needed until its end. Raises OSError, Unavailable.
        """
        await asyncio.to_thread(self._forget_jobs, current)
        await self._forget_quotes()

    def _forget_jobs(self, current: str | None) -> None:
        for path in self.jobs.glob("run_*"):
            if path.name == current:
                self._erase_at_end.add(current)
            else:
                shutil.rmtree(path)

    async def _forget_quotes(self) -> None:
        root = self.registry.root
        prompt_ids = await asyncio.to_thread(examples.prompts, root)
        quoted = {prompt_id for prompt_id in prompt_ids if not sampling.is_ours(prompt_id)}
        await asyncio.to_thread(examples.erase, root, quoted - await self.log.existing(quoted))

    async def _keep(self, version: int, quotes: Sequence[dict[str, Any]], kind: examples.Kind) -> None:
        """Write replies beside their version, less those of users who were erased during the run."""
        await asyncio.to_thread(examples.keep, self.registry.root, version, quotes, kind)
        await self._forget_quotes()

    def ended(self, run_id: str) -> None:
        """Delete the job of a run that was under way when a user was erased."""
        if run_id in self._erase_at_end:
            self._erase_at_end.discard(run_id)
            shutil.rmtree(self.job(run_id).path, ignore_errors=True)

    def learnt(self) -> frozenset[str]:
        """Return the feedback ids that the live version has learnt from, the same object while it is live."""
        live = self.registry.live()
        if self._learnt_cache is None or self._learnt_cache[0] != live:
            manifests = {version.number: version.manifest for version in self.registry.versions()}
            self._learnt_cache = live, learnt_by(live, manifests)
        return self._learnt_cache[1]

    def memory_needed(self) -> int | None:
        """Return the bytes that a run takes: the most that one took, else an estimate; None if nothing is known.

        Reads files. Raises CorruptAdapter.
        """
        if self.train.memory_gb is not None:
            return round(self.train.memory_gb * 1e9)
        took = [
            int(version.manifest.metrics.get("peak_rss_bytes", 0))
            for version in self.registry.versions()
            if version.manifest.base_digest == self.swap.host.base_digest
        ]
        if any(took):
            return max(took)
        return main_memory(self._size, Hyperparameters()) if self._size else None

    async def plan(self, run_id: str, options: RunOptions = AS_SET) -> RunPlan:
        """Plan a run; writes nothing. Raises AdapterError, Unavailable."""
        ratings = await self._ratings()
        usable_ratings = await self._usable_ratings(ratings)
        if options.rollouts is not None:
            rollouts = await self.log.unlearnt_rollouts(options.rollouts)
            steps = await self.log.rollout_steps([rollout.id for rollout in rollouts])
            logged = Logged(rollouts, steps, await self.log.tokens(list(steps)))
            return await asyncio.to_thread(self._plan_rollouts, run_id, usable_ratings, options, logged)
        choices, objective = await asyncio.to_thread(self._choices, ratings, usable_ratings, options)
        training = [choice.rating.completion_id for choice in choices if not choice.held_out]
        instructed = await self.log.all_have_system_messages(training)
        return await asyncio.to_thread(
            self._plan,
            run_id,
            ratings,
            usable_ratings,
            options,
            choices=choices,
            objective=objective,
            instructed=instructed,
        )

    def _plan_rollouts(
        self,
        run_id: str,
        usable_ratings: UsableRatings,
        options: RunOptions,
        logged: Logged,
    ) -> RunPlan:
        """Raises NotTrainable, AdapterError."""
        versions = self._usable()
        usable = usable_rollouts(logged, export.Policies(self.swap.host.base_digest, versions))
        if not usable.episodes:
            raise NotTrainable(no_rollout(options.rollouts))
        incumbent, objective = self.registry.live(), options.objective or self.train.objective
        if options.objective is None and objective not in POLICY_GRADIENT:
            objective = FOR_AGENTS
        settings, notes = self._hyperparameters(objective, for_agents=True)
        steps = (step for episode in usable.episodes for step in episode.steps)
        behaviour = {step.behaviour_version for step in steps} - {None, 0}
        spec = self._spec(
            run_id=run_id,
            objective=objective,
            parent_adapter=self._adapter(usable.parent),
            parent_version=usable.parent,
            incumbent_adapter=self._adapter(incumbent) if incumbent != usable.parent else None,
            incumbent_is_base=incumbent == BASE_VERSION,
            behaviour_adapters={n: str(versions[n].path.absolute()) for n in sorted(filter(None, behaviour))},
            hyperparameters=settings,
            notes=tuple(notes),
            left_out=dict(usable.left_out),
            task=options.rollouts,
        )
        return RunPlan(
            run_id,
            usable.parent,
            incumbent,
            spec,
            usable_ratings,
            episodes=usable.episodes,
            judge=options.judge,
        )

    def _usable(self) -> dict[int, AdapterVersion]:
        """Return the versions of this base model that have weights, by number."""
        return {
            version.number: version
            for version in self.registry.versions()
            if version.manifest.base_digest == self.swap.host.base_digest and version.state != "pruned"
        }

    def _plan(
        self,
        run_id: str,
        ratings: Sequence[Rating],
        usable_ratings: UsableRatings,
        options: RunOptions,
        *,
        choices: Sequence[export.ChosenRating],
        objective: Objective,
        instructed: bool,
    ) -> RunPlan:
        incumbent = self.registry.live()
        versions = self._usable()
        settings, notes = self._hyperparameters(
            objective,
            one_sided=options.force and is_one_sided(choices, objective),
            instructed=instructed,
            rlhf=options.rlhf,
        )
        if options.refresh:
            notes.append("trains on all ratings again, from the base model")
        parent = BASE_VERSION if options.refresh else incumbent
        behaviour = {choice.behaviour_version for choice in choices if choice.behaviour_version in versions}
        spec = self._spec(
            run_id=run_id,
            objective=objective,
            parent_adapter=self._adapter(parent),
            parent_version=parent,
            incumbent_adapter=self._adapter(incumbent) if incumbent != parent else None,
            behaviour_adapters={n: str(versions[n].path.absolute()) for n in sorted(filter(None, behaviour))},
            hyperparameters=settings,
            notes=tuple(notes),
            left_out=export.left_out(ratings, self._learnt_for(options)),
        )
        held_out = tuple(choice.rating for choice in choices if choice.held_out)
        return RunPlan(
            run_id, parent, incumbent, spec, usable_ratings, tuple(choices), held_out, judge=options.judge
        )

    def _learnt_for(self, options: RunOptions) -> Collection[str]:
        return frozenset() if options.refresh else self.learnt()

    def _choices(
        self, ratings: Sequence[Rating], usable_ratings: UsableRatings, options: RunOptions
    ) -> tuple[list[export.ChosenRating], Objective]:
        """Return the ready and the replayed ratings, and the objective for them."""
        learnt_ids = self._learnt_for(options)
        policies = export.Policies(self.swap.host.base_digest, self._usable())
        learnable = believed_preference_model(usable_ratings.replies) is not None
        choices = export.chosen(ratings, learnt_ids, policies, learnable=learnable)
        objective = options.objective or self.train.objective
        if objective == "auto":
            objective = choose(choices)
        if options.rlhf and objective not in POLICY_GRADIENT:
            objective = "ppo"
        new = sum(teaches(choice, objective) for choice in choices if not choice.held_out)
        choices += export.replayed(ratings, learnt_ids, policies, objective, round(new * self.train.replay))
        return choices, objective

    def _spec(self, **of_run: Any) -> JobSpec:
        """Return the job of a run: these fields, and those that are the same for all runs."""
        return JobSpec(
            base_model=self.swap.host.base_model,
            base_weights=str(self.base_weights.absolute()),
            base_digest=self.swap.host.base_digest,
            weights_cache=str(self.weights_cache.absolute()),
            size=self._size,
            seed=self.train.seed,
            threads=self.train.threads or max(1, cores() // CORES_SHARE),
            device=self.train.device,
            quantize=self.train.quantize,
            **of_run,
        )

    @cached_property
    def _size(self) -> ModelSize | None:
        return model_size(self.base_weights)

    def _adapter(self, version: int) -> str | None:
        return None if version == BASE_VERSION else str(self.registry.get(version).path.absolute())

    async def run(self, plan: RunPlan, report: Report) -> Conclusion:
        """Carry a plan out. Raises TrainingError, AdapterError, BurnishError, OSError; the live version stays then."""
        job = self.job(plan.run_id)
        await asyncio.to_thread(self._make_room)
        await self.log.rated([choice.rating for choice in plan.choices], partial(_write, job, plan))
        await asyncio.to_thread(self._take_over, job)
        self._earlier = await asyncio.to_thread(earlier_runs, job)
        Phases(job.phases).begin("loading")
        await self._run_step("train", job)
        version = await in_one_thread(self._register, job, plan)
        logger.info("%s is trained and stored: %s", version_label(version.number), _outcome(job.result()))
        if plan.episodes:
            await self.log.rollouts_learnt([episode.rollout for episode in plan.episodes], plan.run_id)
        conclusion = await (self._decide(job, plan, version, report) if plan.judge else self._put_by(version))
        Phases(job.phases).begin("ended")
        return conclusion

    async def _put_by(self, version: AdapterVersion) -> Conclusion:
        """Leave a candidate unjudged, as the user wants."""
        number = version.number
        why = f"trained, and not judged, as you asked: `burnish adapters judge {number}` judges it"
        await asyncio.to_thread(self.registry.record, number, "candidate", why, awaits="judgement")
        return Conclusion("candidate", why, number)

    async def _ratings(self) -> list[Rating]:
        return await self.log.ratings(
            self.train.rater_weights,
            next_turns=self.train.next_turn,
            scrub=self.scrub,
            teachers=self.teachers,
        )

    async def _usable_ratings(self, ratings: Sequence[Rating]) -> UsableRatings:
        usable = [rating for rating in ratings if not rating.fault]
        latest = (rating for rating in reversed(usable) if rating.reward * rating.effective.weight != 0)
        replies = await self.log.rated(latest, rated_replies)
        return UsableRatings(tuple(rating.completion_id for rating in usable), tuple(reversed(replies)))

    async def judge_again(self, version: AdapterVersion, report: Report) -> Conclusion:
        """Judge a candidate whose judgement was interrupted. Raises what ``run`` raises."""
        job = self.job(version.manifest.run_id)
        ratings = await self._ratings()
        usable_ratings = await self._usable_ratings(ratings)
        plan = await asyncio.to_thread(self._plan_of, job, version, ratings, usable_ratings)
        Phases(job.phases).clear()
        self._earlier = await asyncio.to_thread(earlier_runs, job)
        return await self._decide(job, plan, version, report)

    def _plan_of(
        self,
        job: JobDirectory,
        version: AdapterVersion,
        ratings: Sequence[Rating],
        usable_ratings: UsableRatings,
    ) -> RunPlan:
        """Return the plan of a run that ended before its verdict. Raises JobError, AdapterError."""
        spec, live = job.spec(), self.registry.live()
        incumbent = spec.incumbent_adapter or (None if spec.incumbent_is_base else spec.parent_adapter)
        if incumbent != self._adapter(live):
            raise IllegalTransition(f"{version_label(live)} went live meanwhile; train again")
        names = {sample.completion_id for sample in job.samples() if sample.held_out}
        held_out = tuple(rating for rating in ratings if rating.answer in names and not rating.fault)
        parent, episodes = version.manifest.parent, tuple(job.episodes())
        return RunPlan(spec.run_id, parent, live, spec, usable_ratings, held_out=held_out, episodes=episodes)

    async def _decide(
        self, job: JobDirectory, plan: RunPlan, version: AdapterVersion, report: Report
    ) -> Conclusion:
        """Judge a candidate; if it passes, make it live."""
        await report("evaluating", version.number)
        phases = Phases(job.phases)
        try:
            try:
                verdict = await self._judge(job, plan, version, phases)
            except NeedsRestart as error:
                # Another run would meet the same obstacle, so a person decides.
                why = f"trained, but not judged: {error}; `burnish adapters promote {version.number}` makes it live"
                self.registry.record(version.number, "candidate", why, awaits="restart")
                return Conclusion("candidate", why, version.number)
            details = verdict.model_dump(mode="json", exclude={"examples"})
            quotes = [example.model_dump(mode="json") for example in verdict.examples]
            await self._keep(version.number, quotes, "examples")
            if verdict.outcome == "rejected":
                self.registry.record(version.number, "rejected", verdict.reason, verdict=details)
                return Conclusion("rejected", verdict.reason, version.number)
            if verdict.outcome == "undecided":
                why = f"{verdict.reason} To use it all the same: `burnish adapters promote {version.number}`."
                self.registry.record(version.number, "candidate", why, verdict=details)
                return Conclusion("candidate", why, version.number)
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

    async def _run_step(self, step: Literal["train", "evaluate"], job: JobDirectory) -> None:
        """Run a step of the trainer. If it shares a GPU with an engine that can sleep, the engine sleeps meanwhile."""
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

    def _hyperparameters(
        self,
        objective: Objective,
        *,
        one_sided: bool = False,
        instructed: bool = True,
        rlhf: bool = False,
        for_agents: bool = False,
    ) -> tuple[Hyperparameters, list[str]]:
        """Return the settings of a run within the limits of the engine, and notes on what burnish chose or changed."""
        own = self.train.overrides()
        if one_sided:
            own.setdefault("kl_beta", ONE_SIDED_KL_BETA)
        if rlhf:
            own = {"rewards": "model"} | own | {"warm_start": True}
        settings = hyperparameters(
            self.train.preset, objective, self._size, instructed=instructed, played=for_agents, **own
        )
        notes = reasons(self._size, settings, own)
        if rlhf:
            notes.append(
                f"imitates demonstrations, then learns by {objective} from what a reward model likes"
            )
        limit = self.swap.host.limits.max_rank
        if settings.rank > limit:
            notes.append(f"rank {settings.rank} lowered to {limit}, the limit of the engine")
            settings = settings.model_copy(update={"rank": limit})
        return settings, notes

    def _make_room(self) -> None:
        self.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(self.jobs.glob("run_*"))[: -KEPT_JOBS + 1]:
            shutil.rmtree(old, ignore_errors=True)

    def _take_over(self, job: JobDirectory) -> None:
        """Continue from the checkpoint of an earlier run with the same inputs."""
        for path in sorted(self.jobs.glob("run_*"), reverse=True):
            old = JobDirectory(path)
            with suppress(JobError, OSError):  # a damaged job can't be continued
                if path != job.path and old.checkpoint.is_dir() and old.inputs() == job.inputs():
                    old.checkpoint.rename(job.checkpoint)
                    return

    def _register(self, job: JobDirectory, plan: RunPlan) -> AdapterVersion:
        summary = job.result()
        return self.registry.register(
            job.adapter,
            Provenance(
                base_model=plan.spec.base_model,
                base_digest=plan.spec.base_digest,
                parent=plan.parent,
                run_id=plan.run_id,
                feedback_ids=_said(choice.rating for choice in plan.training if not choice.replayed),
                objective=plan.spec.objective,
                hyperparameters=plan.spec.hyperparameters.model_dump(mode="json"),
                metrics=_figures(summary) | {"notes": list(plan.spec.notes)},
                held_out=_said(plan.held_out),
                unlearnt=summary.unlearnt,
            ),
        )

    async def _judge(
        self, job: JobDirectory, plan: RunPlan, version: AdapterVersion, phases: Phases
    ) -> Verdict:
        recent = await self.log.recent_prompts(sampling.RECENT, scrub=self.scrub)
        held_out = await self.log.rated(plan.held_out[:HELD_OUT_READ], list)
        learnt_ids = await self.log.in_contexts_of(
            [completion.id for completion in recent], plan.usable_ratings.completion_ids
        )
        prompts = sampling.prompts([answer.completion for answer in held_out], recent, learnt_ids)
        phases.begin("staging")
        candidate = await self.swap.stage(version)
        await self.swap.route.wait_live(ENGINE_WAIT_S)
        # The incumbent answers the facts again, because it may have answered earlier on another engine. Two children
        # together take hardly longer than one.
        asking = [*prompts, *sampling.fact_prompts()]
        with self.swap.route.lease() as incumbent:
            counted = sampling.AnswerCounter(asking, phases).count
            facts, replies = sampling.known(
                await sampling.sample(asking, candidate, incumbent.endpoint, counted)
            )
        await asyncio.to_thread(job.write_replies, replies)
        await self._keep(
            version.number, kept_pairs(prompts, replies, plan.incumbent, version.number), "pairs"
        )
        phases.begin("scoring")
        logger.info(
            "%s and %s have answered %d prompts; their replies are scored",
            *(version_label(version.number), version_label(plan.incumbent), len(asking)),
        )
        await self._run_step("evaluate", job)
        phases.begin("judging")
        agent = await self._attempts(plan, version.number)
        measurements = evidence(job.evaluation(), replies, facts, plan.usable_ratings.replies, agent)
        return await asyncio.to_thread(self.gate, measurements)

    async def _attempts(self, plan: RunPlan, candidate: int) -> tuple[Attempted, ...] | None:
        """Return what candidate and incumbent got on held-out seeds; None if no agent's rewards were learnt from."""
        if plan.spec.task is None:
            return None
        rollouts = await self.log.held_out_rollouts(plan.spec.task, (candidate, plan.incumbent))
        return attempts(rollouts, candidate, plan.incumbent)


def _write(job: JobDirectory, plan: RunPlan, answers: Iterator[RatedCompletion]) -> None:
    """Write a job. Raises OSError."""
    choices = {choice.rating.answer: choice for choice in plan.choices}
    job.write_job(
        plan.spec, (export.sample(answer, choices[answer.answer]) for answer in answers), plan.episodes
    )


def _said(ratings: Iterable[Rating]) -> tuple[str, ...]:
    """Return the IDs of the feedback, each once."""
    return tuple(dict.fromkeys(name for rating in ratings for name in rating.feedback_ids))


def _outcome(summary: TrainResult) -> str:
    metrics = (f"{name} {summary.metrics[key]:.3f}" for name, key in FIRST_METRICS if key in summary.metrics)
    early = f" ({summary.stopped_early})" if summary.stopped_early else ""
    steps = f"{summary.steps} steps{early}"
    return ", ".join((f"{summary.ratings} ratings", steps, *metrics, f"{summary.seconds:.0f} s"))


def _figures(summary: TrainResult) -> dict[str, Any]:
    own = summary.model_dump(mode="json", exclude={"run_id", "metrics", "unlearnt"})
    return summary.metrics | own
