"""The stages of a run: a warm start on demonstrations, the objective, and imitation of successes. Knows no framework.

Each stage makes its lessons when it begins, with the policy as it is then. Most runs have a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.gate.rewards import RewardModel
from burnish.training.backends.base import Lesson
from burnish.training.dataset import LeftOut, Run
from burnish.training.episodes import FOR_EPISODES, episode_lessons
from burnish.training.errors import NotTrainable
from burnish.training.job import Episode, JobSpec, Sample
from burnish.training.lessons import check_teachable, imitation, lessons, logged
from burnish.training.policy_gradient import lessons_from, sampled
from burnish.training.rewards.of_a_run import RewardSource, rewarding

# A warm start may use up half of the distance that a run may go: the rest is the objective's.
WARM_SHARE = 0.5
IMITATION_EPOCHS = 2
# Rounds and stages draw from different dice, and batches of different stages are shuffled differently.
SEEDS_A_STAGE = 1000
FROM_AGENT = "given to an agent by its environment"


@dataclass(frozen=True, slots=True)
class Stage:
    epochs: int
    kl_stop: float
    learn: Callable[[Run], list[Lesson]]
    """Makes the lessons. Raises NotTrainable."""
    ends_run: bool = True
    """The run has gone far enough when this stage has. If not, the next stage follows."""


@dataclass(frozen=True, slots=True)
class Course:
    stages: tuple[Stage, ...]
    rewards: str | None
    """Where a policy gradient's rewards come from, in words."""
    imitated: frozenset[str] = frozenset()
    """The completions from which a stage of imitation learns."""


def course(spec: JobSpec, samples: Sequence[Sample], episodes: Sequence[Episode] = ()) -> Course:
    """Return the stages of a run. ``samples``: those that it may train on. ``episodes``: it learns from them alone.

    Raises NotTrainable when its samples can't teach.
    """
    if episodes:
        return Course(tuple(_of_episodes(spec, episodes)), FROM_AGENT)
    config, imitated, stages = spec.hyperparameters, set[str](), list[Stage]()
    if config.warm_start and (answers := demonstrations(samples)):
        imitated |= {sample.completion_id for sample in answers}
        learn = partial(imitation, samples=answers)
        stages.append(Stage(IMITATION_EPOCHS, WARM_SHARE * config.kl_stop, learn, ends_run=False))
    rewards = None
    if spec.objective in POLICY_GRADIENT:
        rewards = rewarding(samples, config.rewards)
        stages += _rounds(spec, samples, rewards)
    else:
        check_teachable(spec.objective, samples, config)
        learn = partial(lessons, samples=samples, taught=frozenset(imitated))
        stages.append(Stage(config.epochs, config.kl_stop, learn))
    if config.successes and (good := [sample for sample in samples if sample.reward > 0]):
        imitated |= {sample.completion_id for sample in good}
        stages.append(Stage(IMITATION_EPOCHS, config.kl_stop, partial(imitation, samples=good)))
    return Course(tuple(stages), rewards.words if rewards else None, frozenset(imitated))


def _of_episodes(spec: JobSpec, episodes: Sequence[Episode]) -> Iterator[Stage]:
    config, objective = spec.hyperparameters, spec.objective
    if objective not in FOR_EPISODES:
        raise NotTrainable(
            f"rewards of an agent are learnt by {', '.join(FOR_EPISODES)}, and not by {objective}"
        )
    yield Stage(config.epochs, config.kl_stop, partial(episode_lessons, episodes=episodes))
    if config.successes and objective in POLICY_GRADIENT:
        yield Stage(IMITATION_EPOCHS, config.kl_stop, partial(_succeeded, episodes=episodes))


def _succeeded(run: Run, episodes: Sequence[Episode]) -> list[Lesson]:
    spec = run.spec.model_copy(update={"objective": "sft"})
    return episode_lessons(replace(run, spec=spec, left_out=LeftOut()), episodes)


def demonstrations(samples: Sequence[Sample]) -> list[Sample]:
    """Return the answers to imitate: corrections, preferred answers, and good ones of another model or a person.

    If there are none, the answers rated good stand in for them.
    """
    answers = [
        sample.with_reply(sample.correction) if sample.correction else sample
        for sample in samples
        if sample.correction or sample.worse or (sample.reward > 0 and sample.behaviour_version is None)
    ]
    return answers or [sample for sample in samples if sample.reward > 0]


def _rounds(spec: JobSpec, samples: Sequence[Sample], rewards: RewardSource) -> Iterator[Stage]:
    config = spec.hyperparameters
    if rewards.model is None:
        check_teachable(spec.objective, samples, config)
        yield Stage(config.epochs, config.kl_stop, partial(logged, samples=samples))
        return
    for number in range(config.rounds):
        learn = partial(_round, samples=samples, model=rewards.model, number=number)
        yield Stage(config.epochs, config.kl_stop, learn)


def _round(run: Run, samples: Sequence[Sample], model: RewardModel, number: int) -> list[Lesson]:
    asking = replace(run, left_out=LeftOut()) if number else run  # the same prompts in each round
    return lessons_from(run, sampled(asking, samples, model, run.spec.seed + SEEDS_A_STAGE * (number + 1)))
