"""From rollouts to what a run learns from, and to what the gate compares. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from burnish.adapters.manifest import BASE_VERSION
from burnish.gate.evidence import Attempted
from burnish.learner.asked import TEMPLATE, as_asked
from burnish.learner.export import Policies, prompt_read
from burnish.proxy.log.faults import FAULTS
from burnish.proxy.log.rollouts import Rollout
from burnish.proxy.records import Completion, Tokens
from burnish.proxy.surfaces.ends import finished
from burnish.training.job import Episode, EpisodeStep

EMPTY = "no step of it can be learnt from"


@dataclass(frozen=True, slots=True)
class UsableRollouts:
    episodes: tuple[Episode, ...]
    left_out: Mapping[str, int]
    """How many steps, and whole rollouts, can't be learnt from, by reason."""
    parent: int
    """The version that most of them were played with, from which training goes on."""


class Logged(NamedTuple):
    rollouts: Sequence[Rollout]
    steps: Mapping[str, Completion]
    """By ID, with their contexts."""
    tokens: Mapping[str, Tokens]
    """As the engine saw them; of some steps there may be none."""


def usable_rollouts(logged: Logged, policies: Policies) -> UsableRollouts:
    left_out: Counter[str] = Counter()
    episodes = []
    for rollout in logged.rollouts:
        steps = _steps(rollout, logged, policies, left_out)
        if steps:
            whole = sum(reward.value for reward in rollout.rewards if reward.completion_id is None)
            group = "" if rollout.group is None else f"group {rollout.group}"
            episodes.append(Episode(rollout=rollout.id, group=group, reward=whole, steps=tuple(steps)))
        else:
            left_out[EMPTY] += 1
    versions = Counter(
        step.behaviour_version
        for episode in episodes
        for step in episode.steps
        if step.behaviour_version is not None
    )
    parent = versions.most_common(1)[0][0] if versions else BASE_VERSION
    return UsableRollouts(tuple(episodes), dict(left_out), parent)


def no_rollout(task: str | None) -> str:
    return (
        f"no rollout of the task {task!r} is ready: it must have asked the model, got a reward and ended, and no "
        "run may have learnt from it yet. GET /v1/rollouts lists them"
    )


def _steps(rollout: Rollout, logged: Logged, policies: Policies, left_out: Counter[str]) -> list[EpisodeStep]:
    rewards = {reward.completion_id: reward.value for reward in rollout.rewards}  # one of each step
    steps, carried = [], 0.0
    for step in rollout.steps:
        completion = logged.steps.get(step.completion_id)
        carried += rewards.get(step.completion_id, 0.0)
        if completion is None or completion.fault or completion.reply is None:
            why = FAULTS[completion.fault] if completion and completion.fault else FAULTS["no_text"]
            left_out[why] += 1
            continue
        captured = logged.tokens.get(completion.id)
        asked = as_asked(completion, policies.engine)
        assert asked.reply is not None  # as above
        steps.append(
            EpisodeStep(
                completion_id=completion.id,
                messages=asked.messages,
                tools=tuple(asked.params.get("tools") or ()),
                template=asked.params[TEMPLATE],
                read=None if captured and captured.prompt else prompt_read(completion, policies, None),
                reply=asked.reply,
                finished=finished(completion.ended.finish_reason, completion.params),
                behaviour_version=policies.behind(
                    completion.served, instructed=completion.instructions is not None
                ),
                reward=carried,
                prompt_ids=captured.prompt if captured else (),
                reply_ids=captured.reply if captured else (),
            )
        )
        carried = 0.0
    if steps and carried:  # of a last step that can't be learnt from
        steps[-1] = steps[-1].model_copy(update={"reward": steps[-1].reward + carried})
    return steps


def attempts(held_out: Sequence[Rollout], candidate: int, incumbent: int) -> tuple[Attempted, ...]:
    """Return what both versions got on the same held-out seeds; of several attempts at one seed the mean.

    Without group and seed nobody knows which attempts belong together.
    """
    rewards: dict[tuple[str | None, int | None], dict[int, list[float]]] = {}
    for rollout in held_out:
        place = rollout.group, rollout.seed
        if place != (None, None) and rollout.version is not None and rollout.reward is not None:
            rewards.setdefault(place, {}).setdefault(rollout.version, []).append(rollout.reward)
    return tuple(
        Attempted(fmean(by_version[candidate]), fmean(by_version[incumbent]))
        for by_version in rewards.values()
        if candidate in by_version and incumbent in by_version
    )
