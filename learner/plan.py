"""What a run is asked to do, and its plan: from ratings or rollouts to the job of the trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StrictBool

from burnish.adapters.errors import IllegalTransition
from burnish.adapters.hosts.base import AdapterHost
from burnish.adapters.hosts.detect import Kind
from burnish.adapters.manifest import BASE_VERSION, AdapterVersion, learnt_by
from burnish.adapters.registry import Registry, version_label
from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.config.tables import TrainConfig
from burnish.gate.rewards import RatedReply, believed_preference_model
from burnish.learner import export
from burnish.learner.evidence import rated_replies
from burnish.learner.progress import estimate
from burnish.learner.rollouts import Logged, no_rollout, usable_rollouts
from burnish.proxy.json_http import Body
from burnish.proxy.log import Log, Rating
from burnish.proxy.log.faults import Rules
from burnish.proxy.plain import Line
from burnish.system.threads import cores
from burnish.training.device import main_memory, model_size
from burnish.training.errors import NotTrainable
from burnish.training.job import Episode, Hyperparameters, JobDirectory, JobSpec, ModelSize, Objective
from burnish.training.presets import choose, hyperparameters, reasons, teaches
from burnish.training.presets import one_sided as is_one_sided

# With ratings of one kind only the pull to the base model keeps the replies fluent.
ONE_SIDED_KL_BETA = 0.1
FOR_AGENTS: Objective = "rloo"
"""Learns from an agent's rewards if the settings name no policy gradient."""
# A trainer beside the server: half of the cores serve on.
CORES_SHARE = 2
MAX_TASK = 1000
"""Characters."""


class RunOptions(Body):
    """What the user asks of a run, beyond the settings: ``POST /burnish/train``."""

    dry_run: StrictBool = False
    force: StrictBool = False
    """Train on one-sided ratings too."""
    refresh: StrictBool = False
    """Train from the base model on all ratings, whatever the live version has learnt."""
    rlhf: StrictBool = False
    """Imitate demonstrations, learn a reward model from the ratings, then train against it."""
    objective: Objective | None = None
    """For this run, instead of ``train.objective``."""
    rollouts: Annotated[Line, Field(max_length=MAX_TASK, strict=True)] | None = None
    """The task whose rollouts teach, instead of ratings."""
    judge: StrictBool = True
    """False: leave the version unjudged, as a candidate."""


AS_SET = RunOptions()


class Horizon(NamedTuple):
    """What the job of a stopped run knows of."""

    feedback: str
    """The latest feedback."""
    rollouts: frozenset[str]


@dataclass(frozen=True, slots=True)
class UsableRatings:
    """All ratings that can be learnt from, including those that were, as far as the gate needs them."""

    completion_ids: tuple[str, ...]
    replies: tuple[RatedReply, ...]
    """The latest ones that say good or bad, earliest first: of these the preference model is made."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run, before anything is written."""

    spec: JobSpec
    incumbent: int
    """The live version, with which the candidate is compared: the parent, unless the run starts from another one."""
    usable_ratings: UsableRatings
    choices: tuple[export.ChosenRating, ...] = ()
    """The ratings of the job. Their texts are read when it is written."""
    held_out: tuple[Rating, ...] = ()
    """The gate judges by these."""
    episodes: tuple[Episode, ...] = ()
    """If there are some, the run learns from them alone."""
    judge: bool = True

    @property
    def note(self) -> str | None:
        """The settings that burnish chose or changed, with reasons."""
        return "; ".join(self.spec.notes) or None

    @property
    def training(self) -> list[export.ChosenRating]:
        return [choice for choice in self.choices if not choice.held_out]


@dataclass(eq=False, kw_only=True)
class Planner:
    """Plans runs on one base model; writes nothing."""

    log: Log
    registry: Registry
    host: AdapterHost
    train: TrainConfig
    rules: Rules
    base_weights: Path
    """What the engine serves."""
    weights_cache: Path
    engine: Kind = "other"
    untrainable: str | None = None
    """Why the model can't be trained, in words."""
    _learnt_cache: tuple[int, frozenset[str]] | None = field(default=None, init=False)

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
        took = [int(version.manifest.metrics.get("peak_rss_bytes", 0)) for version in self._versions()]
        if any(took):
            return max(took)
        return main_memory(self._size, Hyperparameters()) if self._size else None

    async def plan(
        self, run_id: str, options: RunOptions = AS_SET, horizon: Horizon | None = None
    ) -> RunPlan:
        """``horizon``: nothing that was rated or played after it. Raises NotTrainable, AdapterError, Unavailable."""
        ratings, usable_ratings = await self._ratings(horizon)
        if options.rollouts is not None:
            rollouts = await self.log.unlearnt_rollouts(options.rollouts)
            rollouts = [rollout for rollout in rollouts if horizon is None or rollout.id in horizon.rollouts]
            steps = await self.log.rollout_steps([rollout.id for rollout in rollouts])
            logged = Logged(rollouts, steps, await self.log.tokens(list(steps)))
            return await asyncio.to_thread(self._by_rollouts, run_id, usable_ratings, options, logged)
        choices, objective = await asyncio.to_thread(self._choices, ratings, usable_ratings, options)
        training = [choice.rating.completion_id for choice in choices if not choice.held_out]
        instructed = await self.log.all_have_system_messages(training)
        return await asyncio.to_thread(
            self._by_ratings,
            run_id,
            options,
            ratings,
            usable_ratings,
            choices=choices,
            objective=objective,
            instructed=instructed,
        )

    async def estimate(self, plan: RunPlan, jobs: Path) -> dict[str, Any]:
        names = [choice.rating.completion_id for choice in plan.training]
        longest = await self.log.longest_prompt(names)
        return await asyncio.to_thread(estimate, jobs, plan.spec, len(names), longest)

    async def plan_again(self, job: JobDirectory) -> RunPlan:
        """Return the plan of a run that ended before its verdict. Raises JobError, AdapterError, Unavailable."""
        ratings, usable_ratings = await self._ratings()
        return await asyncio.to_thread(self._interrupted, job, ratings, usable_ratings)

    def _interrupted(
        self, job: JobDirectory, ratings: Sequence[Rating], usable_ratings: UsableRatings
    ) -> RunPlan:
        spec, live = job.spec(), self.registry.live()
        incumbent = spec.incumbent_adapter or (None if spec.incumbent_is_base else spec.parent_adapter)
        if incumbent != self._adapter(live):
            raise IllegalTransition(f"{version_label(live)} went live meanwhile; train again")
        names = {sample.completion_id for sample in job.samples() if sample.held_out}
        held_out = tuple(rating for rating in ratings if rating.answer in names and not rating.fault)
        return RunPlan(spec, live, usable_ratings, held_out=held_out, episodes=tuple(job.episodes()))

    async def _ratings(self, horizon: Horizon | None = None) -> tuple[list[Rating], UsableRatings]:
        ratings = await self.log.ratings(self.rules)
        if horizon:
            ratings = [rating for rating in ratings if min(rating.feedback_ids) <= horizon.feedback]
        usable = [rating for rating in ratings if not rating.fault]
        latest = (rating for rating in reversed(usable) if rating.reward * rating.effective.weight != 0)
        replies = await self.log.rated(latest, rated_replies)
        names = tuple(rating.completion_id for rating in usable)
        return ratings, UsableRatings(names, tuple(reversed(replies)))

    def _by_rollouts(
        self, run_id: str, usable_ratings: UsableRatings, options: RunOptions, logged: Logged
    ) -> RunPlan:
        """Raises NotTrainable, AdapterError."""
        usable = usable_rollouts(logged, self.policies())
        if not usable.episodes:
            raise NotTrainable(no_rollout(options.rollouts))
        incumbent, objective = self.registry.live(), options.objective or self.train.objective
        if options.objective is None and objective not in POLICY_GRADIENT:
            objective = FOR_AGENTS
        settings, notes = self._hyperparameters(objective, for_agents=True)
        spec = self._spec(
            usable.parent,
            incumbent,
            [step.behaviour_version for episode in usable.episodes for step in episode.steps],
            run_id=run_id,
            objective=objective,
            hyperparameters=settings,
            notes=tuple(notes),
            left_out=dict(usable.left_out),
            task=options.rollouts,
        )
        return RunPlan(spec, incumbent, usable_ratings, episodes=usable.episodes, judge=options.judge)

    def _choices(
        self, ratings: Sequence[Rating], usable_ratings: UsableRatings, options: RunOptions
    ) -> tuple[list[export.ChosenRating], Objective]:
        """Return the ready and the replayed ratings, and the objective for them."""
        learnt_ids, policies = self._learnt_for(options), self.policies()
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

    def _learnt_for(self, options: RunOptions) -> frozenset[str]:
        return frozenset() if options.refresh else self.learnt()

    def _by_ratings(
        self,
        run_id: str,
        options: RunOptions,
        ratings: Sequence[Rating],
        usable_ratings: UsableRatings,
        *,
        choices: Sequence[export.ChosenRating],
        objective: Objective,
        instructed: bool,
    ) -> RunPlan:
        settings, notes = self._hyperparameters(
            objective,
            one_sided=options.force and is_one_sided(choices, objective),
            instructed=instructed,
            rlhf=options.rlhf,
        )
        if options.refresh:
            notes.append("trains on all ratings again, from the base model")
        incumbent = self.registry.live()
        spec = self._spec(
            BASE_VERSION if options.refresh else incumbent,
            incumbent,
            [choice.behaviour_version for choice in choices],
            run_id=run_id,
            objective=objective,
            hyperparameters=settings,
            notes=tuple(notes),
            left_out=export.left_out(ratings, self._learnt_for(options)),
        )
        held_out = tuple(choice.rating for choice in choices if choice.held_out)
        return RunPlan(spec, incumbent, usable_ratings, tuple(choices), held_out, judge=options.judge)

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
        limit = self.host.limits.max_rank
        if settings.rank > limit:
            notes.append(f"rank {settings.rank} lowered to {limit}, the limit of the engine")
            settings = settings.model_copy(update={"rank": limit})
        return settings, notes

    def _spec(self, parent: int, incumbent: int, behaviour: Iterable[int | None], **of_run: Any) -> JobSpec:
        """Return the job of a run. ``behaviour``: the versions that gave the replies; ``of_run``: its other fields."""
        paths = {version.number: str(version.path.absolute()) for version in self._usable()}
        return JobSpec(
            base_model=self.host.base_model,
            base_weights=str(self.base_weights.absolute()),
            base_digest=self.host.base_digest,
            weights_cache=str(self.weights_cache.absolute()),
            size=self._size,
            parent_adapter=self._adapter(parent),
            parent_version=parent,
            incumbent_adapter=self._adapter(incumbent) if incumbent != parent else None,
            incumbent_is_base=incumbent == BASE_VERSION,
            behaviour_adapters={
                number: paths[number] for number in sorted(filter(None, {*behaviour})) if number in paths
            },
            seed=self.train.seed,
            threads=self.train.threads or max(1, cores() // CORES_SHARE),
            device=self.train.device,
            quantize=self.train.quantize,
            **of_run,
        )

    def proof_spec(self, version: AdapterVersion, run_id: str) -> JobSpec:
        """Return the job that makes the proof of a version."""
        return self._spec(version.number, version.number, (), run_id=run_id)

    def policies(self) -> export.Policies:
        usable = [version.number for version in self._usable()]
        return export.Policies(self.host.base_digest, usable, self.engine)

    def _usable(self) -> list[AdapterVersion]:
        return [version for version in self._versions() if version.state != "pruned"]

    def _versions(self) -> list[AdapterVersion]:
        """Return the versions of this base model, some of them without weights."""
        digest = self.host.base_digest
        return [version for version in self.registry.versions() if version.manifest.base_digest == digest]

    @cached_property
    def _size(self) -> ModelSize | None:
        return model_size(self.base_weights)

    def _adapter(self, version: int) -> str | None:
        return None if version == BASE_VERSION else str(self.registry.get(version).path.absolute())
