"""PPO, RLOO, GRPO and GSPO: answers to one prompt are compared by their rewards. Knows no framework.

The answers are logged ones with their ratings, or the policy's own, drawn in the run and scored by a reward model. A
group is all answers to one prompt. A group of equal rewards teaches nothing: it is dropped and counted.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from statistics import fmean, pstdev

from burnish.gate.replies import last_question, sound, text_of
from burnish.gate.rewards import PlainReply, RewardModel
from burnish.training.backends.base import Lesson, LessonReply, Logps
from burnish.training.comments import room_for
from burnish.training.dataset import LeftOut, Run
from burnish.training.errors import NotTrainable
from burnish.training.job import Objective, Sample
from burnish.training.rendering import Rendered, Unrenderable, check_length
from burnish.training.strength import limited
from burnish.training.teachable import NOBODY_ASKED, not_text

SAMPLES = 4
"""Answers to each prompt in a round."""
ROUND_PROMPTS = 16
"""Drawn from all of the run. A laptop samples 64 answers of the small model in a minute."""
# Differences below it are rounding.
EQUAL_WITHIN = 1e-9

ALONE = "no second answer to the same prompt to compare with"
ALIKE = "all answers to the same prompt are equally good"
WITH_TOOLS = "tools at hand, so the model can't answer again by itself"


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    prompt: str
    """Equal for answers to the same prompt."""
    tokens: Rendered
    reward: float
    weight: float
    behaviour: Logps
    name: str | None = None
    """Of the logged completion; None for one of the policy's own."""


def prompt_of(sample: Sample) -> str:
    return json.dumps([sample.messages, sample.tools, sample.template], sort_keys=True)


def told_apart(samples: Sequence[Sample]) -> list[Sample]:
    """Return one sample for each answer that feedback says something about, with its reward.

    A correction and a preferred reply are worth 1, what they were preferred over −1, unless they were rated as well.
    """
    answers = []
    for sample in samples:
        pair = 1.0 if sample.worse else -1.0 if sample.correction else 0.0
        if reward := sample.reward or pair:
            answers.append(sample.model_copy(update={"reward": reward}))
        if sample.correction:
            answers.append(sample.with_reply(sample.correction, reward=1.0))
        answers += [sample.with_reply(reply, reward=-1.0) for reply in sample.worse]
    return answers


def lessons_from(run: Run, answers: Sequence[GradedAnswer]) -> list[Lesson]:
    """Return a lesson for each answer that can be compared. Raises NotTrainable when none can."""
    check_finite([answer.reward for answer in answers])
    objective = run.spec.objective
    groups = list(_comparable(answers, objective, run.left_out))
    if not groups:
        raise NotTrainable(
            f"{objective} found no two answers to compare: rate several answers to the same prompt differently, "
            "or rate more, so that a reward model can be learnt"
        )
    pulls = advantages(objective, [[answer.reward for answer in group] for group in groups])
    flat = list(chain.from_iterable(groups))
    reference = run.backend.logps([answer.tokens for answer in flat], "bare")
    lessons = []
    for answer, pull, referred in zip(flat, chain.from_iterable(pulls), reference, strict=True):
        reply = LessonReply(answer.tokens, pull, answer.weight, answer.behaviour, referred)
        lessons.append(Lesson(objective, (reply,), reward=answer.reward))
    return lessons


def check_finite(rewards: Iterable[float]) -> None:
    """Raises NotTrainable if a reward isn't a number."""
    if wrong := [reward for reward in rewards if not math.isfinite(reward)]:
        raise NotTrainable(
            f"{len(wrong)} rewards are no finite numbers (such as {wrong[0]}): mend the reward model, or set "
            'train.advanced.rewards = "ratings"'
        )


def advantages(objective: Objective, groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return an advantage for each reward; a group holds the rewards of the answers to one prompt.

    - rloo: ``A_i = r_i − mean_{j≠i} r_j``. Source: arXiv 2402.14740.
    - grpo, gspo: ``A_i = (r_i − mean) / std`` within the group. Source: arXiv 2402.03300.
    - ppo: ``A_i = (r_i − V) / std`` over the run, limited. V, the value of the prompt, is the mean reward of its other
      answers, or of all prompts' if there is none: a few dozen ratings can't train a value network.
    """
    if objective == "rloo":
        return [_above_others(group) for group in groups]
    if objective in ("grpo", "gspo"):
        return [[(reward - fmean(group)) / pstdev(group) for reward in group] for group in groups]
    everything = [reward for group in groups for reward in group]
    mean = fmean(everything)
    above = [_above_others(group) if len(group) > 1 else [group[0] - mean] for group in groups]
    spread = pstdev([difference for group in above for difference in group]) or 1.0
    return [[limited(difference / spread) for difference in group] for group in above]


def _above_others(group: Sequence[float]) -> list[float]:
    total, peers = math.fsum(group), len(group) - 1
    return [reward - (total - reward) / peers for reward in group]


def _comparable(
    answers: Sequence[GradedAnswer], objective: Objective, left_out: LeftOut
) -> Iterable[list[GradedAnswer]]:
    """Yield the groups whose rewards differ. PPO compares an answer without others with those to other prompts."""
    ordered = sorted(answers, key=lambda answer: answer.prompt)
    singles = []
    for _, group in groupby(ordered, key=lambda answer: answer.prompt):
        members = list(group)
        if len(members) == 1:
            singles += members
        elif differ([answer.reward for answer in members]):
            yield members
        else:
            _drop(members, ALIKE, left_out)
    if objective == "ppo" and differ([answer.reward for answer in singles]):
        yield from ([answer] for answer in singles)
    else:
        _drop(singles, ALONE, left_out)


def differ(rewards: Sequence[float]) -> bool:
    return bool(rewards) and max(rewards) - min(rewards) > EQUAL_WITHIN


def _drop(answers: Sequence[GradedAnswer], why: str, left_out: LeftOut) -> None:
    for answer in answers:
        left_out.add(why, answer.name)


def sampled(run: Run, samples: Sequence[Sample], model: RewardModel, seed: int) -> list[GradedAnswer]:
    """Let the policy under training answer the prompts again, and score its answers.

    Near-empty, repetitive and off-topic ones get the lowest score of all: a model that learnt from good and bad answers
    has never seen such.
    """
    backend = run.backend
    asking = [prompt for prompt in _prompts(run, samples, seed) for _ in range(SAMPLES)]
    longest = max((len(backend.renderer.plain(text_of(sample.reply))) for sample in samples), default=0)
    limits = [room_for(0, longest + 1)] * len(asking)  # cut ones teach little
    replies = backend.sample([ids for _, ids in asking], "trained", limits, seed, run.tries(seed))
    texts = [
        PlainReply(last_question(sample.messages), backend.renderer.text(reply.ids), reply.finished)
        for (sample, _), reply in zip(asking, replies, strict=True)
    ]
    scores: list[float] = model.scores(texts).tolist()
    check_finite(scores)
    lowest, answers = min(scores, default=0.0), []
    for (sample, ids), reply, text, score in zip(asking, replies, texts, scores, strict=True):
        reward = score if sound(text.text, text.question) else lowest
        answers.append(GradedAnswer(prompt_of(sample), Rendered(ids, reply.ids), reward, 1.0, reply.logps))
    return answers


def _prompts(run: Run, samples: Sequence[Sample], seed: int) -> list[tuple[Sample, tuple[int, ...]]]:
    """Choose prompts for a round, each with its tokens; those that can't be answered again are counted once a run."""
    prompts = []
    for sample in {prompt_of(sample): sample for sample in samples}.values():
        why = WITH_TOOLS if sample.tools else not_text(sample.messages, {})
        if not why and not last_question(sample.messages):
            why = NOBODY_ASKED
        try:
            if why:
                raise Unrenderable(why)
            ids = run.backend.renderer.opening(sample.messages, sample.template)
            check_length(len(ids), run.spec.hyperparameters.max_tokens)
        except Unrenderable as error:
            run.leave_out(f"the prompt of completion {sample.completion_id}", error, None)
            continue
        prompts.append((sample, tuple(ids)))
    return random.Random(seed).sample(prompts, min(len(prompts), ROUND_PROMPTS))
