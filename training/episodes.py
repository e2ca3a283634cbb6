"""Episodes of agents → lessons: credit for each step, compared within a group of attempts. Knows no framework.

A step is worth what came from then on: its own reward and the later ones, discounted, and the reward of the episode as
a whole, which comes with the last step. It is compared with the other attempts of its group at the same step. An
attempt that ended earlier counts with its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from burnish.config.hyperparameters import POLICY_GRADIENT
from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.compared import DIFFERENT
from burnish.training.dataset import LeftOut, Run
from burnish.training.errors import NotTrainable
from burnish.training.job import Episode, EpisodeStep, Hyperparameters, Objective
from burnish.training.lessons import scored_by_version
from burnish.training.policy_gradient import advantages, check_finite, differ
from burnish.training.rendering import Rendered, Renderer, Unrenderable
from burnish.training.teachable import unteachable

ALONE = "no second attempt of its group to compare with"
ALIKE = "all attempts of its group got the same reward"
MIDDLING = "no better and no worse than the other attempts at this step"
WORSE = "worse than the other attempts at this step, and so nothing to imitate"
FOR_EPISODES = (*POLICY_GRADIENT, "sft")
"""Objectives that learn from an agent's rewards. "sft" imitates the steps that went better than the others."""
MOST_WEIGHT = 3.0
"""Of a step that is imitated; the mean is 1."""


@dataclass(frozen=True, slots=True)
class ValuedStep:
    step: EpisodeStep
    worth: float
    advantage: float


class Attempt(NamedTuple):
    episode: Episode
    worths: Sequence[float]

    def worth(self, at: int) -> float:
        return self.worths[min(at, len(self.worths) - 1)]


def worths(episode: Episode, discount: float) -> list[float]:
    """Return what each step was worth: the rewards from then on, and that of the episode as a whole."""
    later, returns = episode.reward, []
    for step in reversed(episode.steps):
        returns.append(step.reward + later)
        later = discount * returns[-1]
    return returns[::-1]


def valued(
    episodes: Sequence[Episode], objective: Objective, config: Hyperparameters, left_out: LeftOut
) -> list[ValuedStep]:
    """Return the steps that teach something. Raises NotTrainable if a reward isn't a number."""
    attempts = [Attempt(episode, worths(episode, config.discount)) for episode in episodes if episode.steps]
    check_finite([worth for attempt in attempts for worth in attempt.worths])
    groups = list(_comparable(attempts, objective, left_out))
    places = [(group, at) for group in groups for at in range(max(len(attempt.worths) for attempt in group))]
    compared = [[attempt.worth(at) for attempt in group] for group, at in places]
    differing = [place for place, values in enumerate(compared) if differ(values) or len(values) == 1]
    pulls = dict(
        zip(
            differing,
            advantages(objective, [compared[place] for place in differing]),
            strict=True,
        )
    )
    steps = []
    for place, (group, at) in enumerate(places):
        for number, (episode, _) in enumerate(group):
            if at >= len(episode.steps):
                continue
            if place in pulls and pulls[place][number]:
                steps.append(ValuedStep(episode.steps[at], compared[place][number], pulls[place][number]))
            else:
                left_out.add(MIDDLING, episode.steps[at].completion_id)
    return steps


def _comparable(
    attempts: Iterable[Attempt], objective: Objective, left_out: LeftOut
) -> Iterator[list[Attempt]]:
    """Yield the groups of which something can be learnt; attempts of the others are counted, not steps.

    PPO compares an attempt without others with those of other groups.
    """
    by_group = sorted(attempts, key=lambda attempt: attempt.episode.group)
    for _, members in groupby(by_group, key=lambda attempt: attempt.episode.group):
        group = list(members)
        ways = [
            [attempt.worth(at) for attempt in group]
            for at in range(max(len(attempt.worths) for attempt in group))
        ]
        if len(group) == 1 and objective != "ppo":
            left_out.counts[ALONE] += 1
        elif len(group) > 1 and not any(map(differ, ways)):
            left_out.counts[ALIKE] += len(group)
        else:
            yield group


def episode_lessons(run: Run, episodes: Sequence[Episode]) -> list[Lesson]:
    """Return a lesson for each step that teaches. Raises NotTrainable, JobError.

    Its distance is measured from the policy at the start of the run, as in a trust region: an agent's task may need
    another form of answer than the base model's, and the gate looks at that distance elsewhere.
    """
    spec, backend, config = run.spec, run.backend, run.spec.hyperparameters
    imitates = spec.objective == "sft"
    steps = valued(episodes, "rloo" if imitates else spec.objective, config, run.left_out)
    pairs: list[tuple[ValuedStep, Rendered]] = []
    for credit in _better(steps, run.left_out) if imitates else steps:
        try:
            if credit.step.completion_id in run.different:
                raise Unrenderable(DIFFERENT)
            pairs.append((credit, tokens(credit.step, backend.renderer, config.max_tokens)))
        except Unrenderable as error:
            name = credit.step.completion_id
            run.leave_out(f"completion {name}", error, name)
    if not pairs:
        raise NotTrainable(
            "nothing can be compared: play each group several times, so that some attempts get more reward than others"
        )
    start = backend.logps([rendered for _, rendered in pairs], "trained")
    versions = [(rendered, credit.step.behaviour_version) for credit, rendered in pairs]
    behaviour = scored_by_version(run, versions, {spec.parent_version: start, None: start})
    lessons = []
    for (credit, rendered), behaved, started in zip(pairs, behaviour, start, strict=True):
        pull, weight = (1.0, credit.advantage) if imitates else (credit.advantage, 1.0)
        reply = LessonReply(rendered, pull, weight, behaved, started)
        lessons.append(Lesson(spec.objective, (reply,), reward=credit.worth))
    return lessons


def _better(steps: Sequence[ValuedStep], left_out: LeftOut) -> list[ValuedStep]:
    """Return the steps that went better than the others; their advantages become weights with a mean of about 1.

    Source: reward-weighted regression, Peters and Schaal 2007 (doi:10.1145/1273496.1273590), with a linear weight.
    """
    good = [credit for credit in steps if credit.advantage > 0]
    for credit in steps:
        if credit.advantage <= 0:
            left_out.add(WORSE, credit.step.completion_id)
    mean = fmean(credit.advantage for credit in good) if good else 1.0
    return [replace(credit, advantage=min(MOST_WEIGHT, credit.advantage / mean)) for credit in good]


def tokens(step: EpisodeStep, renderer: Renderer, max_tokens: int) -> Rendered:
    """Return a step as the engine saw it, else rendered anew. Raises Unrenderable."""
    if step.reply_ids and step.prompt_ids:
        return renderer.sampled(step.prompt_ids, step.reply_ids).within(max_tokens)
    if why := unteachable(step.messages, step.reply):
        raise Unrenderable(why)
    context = step.messages, step.tools
    return renderer.conversation(*context, step.reply, step.finished, max_tokens, template=step.template)


def mean_reward(episodes: Sequence[Episode]) -> float | None:
    """Return the mean of all that episodes were given; None if there are none."""
    totals = [episode.reward + sum(step.reward for step in episode.steps) for episode in episodes]
    return fmean(totals) if totals else None
