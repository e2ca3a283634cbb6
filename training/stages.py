"""The stages of a run: a warm start on demonstrations, the objective, and imitation of successes. Knows no framework.

Each stage makes its lessons when it begins, with the policy as it is then. Most runs have a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.gate.rewards import RewardModel
from burnish.training.backends.base import Lesson, TrainerBackend
from burnish.training.dataset import LeftOut
from burnish.training.episodes import FOR_EPISODES, episode_lessons
from burnish.training.errors import NotTrainable
from burnish.training.job import Episode, JobDirectory, JobSpec, Sample
from burnish.training.lessons import check_teachable, imitation, lessons, logged_answers
from burnish.training.policy_gradient import lessons_from, sampled
from burnish.training.rewards.of_a_run import RewardSource, rewarding

# A warm start may use up half of the distance that a run may go: the rest is the objective's.
WARM_SHARE = 0.5
IMITATION_EPOCHS = 2
# Rounds and stages draw from different dice, and batches of different stages are shuffled differently.
SEEDS_A_STAGE = 1000
FROM_AGENT = "given to an agent by its environment"


@dataclass(frozen=True, slots=True)
class Task:
    """What a run is about."""

    job: JobDirectory
    spec: JobSpec
    samples: Sequence[Sample]
    """Those that it may train on."""
    episodes: Sequence[Episode] = ()
    """If there are some, the run learns from them alone."""


Learn = Callable[[TrainerBackend, LeftOut], list[Lesson]]


@dataclass(frozen=True, slots=True)
class Stage:
    epochs: int
    kl_stop: float
    learn: Learn
    """Makes the lessons. Raises NotTrainable."""
    ends_run: bool = True
    """The run has gone far enough when this stage has. If not, the next stage follows."""


@dataclass(frozen=True, slots=True)
class Course:
    """All stages of a run."""

    stages: tuple[Stage, ...]
    rewards: str | None
    """Where a policy gradient's rewards come from, in words."""
    imitated: frozenset[str] = frozenset()
    """The completions from which a stage of imitation learns."""


def course(task: Task) -> Course:
    """Return the stages of a run. Raises NotTrainable when its samples can't teach."""
    spec, samples, stages = task.spec, task.samples, []
    if task.episodes:
        return Course(tuple(_of_episodes(task)), FROM_AGENT)
    config, imitated = spec.hyperparameters, set[str]()
    if config.warm_start and (answers := demonstrations(samples)):
        imitated |= {sample.completion_id for sample in answers}
        learn = partial(imitation, spec, answers)
        stages.append(Stage(IMITATION_EPOCHS, WARM_SHARE * config.kl_stop, learn, ends_run=False))
    rewards = None
    if spec.objective in POLICY_GRADIENT:
        rewards = rewarding(samples, config.rewards)
        stages += _rounds(task, rewards)
    else:
        check_teachable(spec.objective, samples, config)
        learn = partial(_objective, task, frozenset(imitated))
        stages.append(Stage(config.epochs, config.kl_stop, learn))
    if config.successes and (good := [sample for sample in samples if sample.reward > 0]):
        imitated |= {sample.completion_id for sample in good}
        stages.append(Stage(IMITATION_EPOCHS, config.kl_stop, partial(imitation, spec, good)))
    return Course(tuple(stages), rewards.words if rewards else None, frozenset(imitated))


def _of_episodes(task: Task) -> Iterator[Stage]:
    config, objective = task.spec.hyperparameters, task.spec.objective
    if objective not in FOR_EPISODES:
        raise NotTrainable(
            f"rewards of an agent are learnt by {', '.join(FOR_EPISODES)}, and not by {objective}"
        )
    yield Stage(config.epochs, config.kl_stop, partial(episode_lessons, task.job, task.spec, task.episodes))
    if config.successes and objective in POLICY_GRADIENT:
        yield Stage(IMITATION_EPOCHS, config.kl_stop, partial(_succeeded, task))


def _succeeded(task: Task, backend: TrainerBackend, left_out: LeftOut) -> list[Lesson]:
    spec = task.spec.model_copy(update={"objective": "sft"})
    return episode_lessons(task.job, spec, task.episodes, backend, LeftOut())


def demonstrations(samples: Sequence[Sample]) -> list[Sample]:
    """Return the answers to imitate: corrections, preferred answers, and good ones of another model or a person.

    If there are none, the answers rated good stand in for them.
    """
    answers = list(_shown(samples))
    return answers or [sample for sample in samples if sample.reward > 0]


def _shown(samples: Sequence[Sample]) -> Iterator[Sample]:
    for sample in samples:
        if sample.correction:
            reply = {"role": "assistant", "content": sample.correction}
            changes = {"reply": reply, "finished": True, "behaviour_version": None}
            yield sample.model_copy(update=changes)
        elif sample.worse or (sample.reward > 0 and sample.behaviour_version is None):
            yield sample


def _objective(
    task: Task, imitated: Collection[str], backend: TrainerBackend, left_out: LeftOut
) -> list[Lesson]:
    return lessons(task.job, task.spec, task.samples, backend, left_out, taught=imitated)


def _rounds(task: Task, rewards: RewardSource) -> Iterator[Stage]:
    config = task.spec.hyperparameters
    if rewards.model is None:
        check_teachable(task.spec.objective, task.samples, config)
        yield Stage(config.epochs, config.kl_stop, partial(_logged, task))
        return
    for number in range(config.rounds):
        yield Stage(config.epochs, config.kl_stop, partial(_round, task, rewards.model, number))


def _logged(task: Task, backend: TrainerBackend, left_out: LeftOut) -> list[Lesson]:
    answers = logged_answers(task.job, task.spec, task.samples, backend, left_out)
    return lessons_from(answers, task.spec.objective, task.spec.hyperparameters, backend, left_out)


def _round(
    task: Task, model: RewardModel, number: int, backend: TrainerBackend, left_out: LeftOut
) -> list[Lesson]:
    config, seed = task.spec.hyperparameters, task.spec.seed + SEEDS_A_STAGE * (number + 1)
    unanswered = LeftOut() if number else left_out  # the same prompts in each round
    answers = sampled(task.samples, model, config, backend, left_out=unanswered, seed=seed)
    return lessons_from(answers, task.spec.objective, config, backend, left_out)
