"""Answers, groups, advantages and rewards of the policy gradients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from burnish.gate.replies import last_question
from burnish.gate.rewards import PlainReply
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.dataset import LeftOut
from burnish.training.errors import NotTrainable
from burnish.training.job import Sample
from burnish.training.policy_gradient import (
    ALIKE,
    ALONE,
    SAMPLES,
    WITH_TOOLS,
    GradedAnswer,
    advantages,
    lessons_from,
    sampled,
    told_apart,
)
from burnish.training.rewards.of_a_run import rewarding
from burnish.training.strength import ADVANTAGE_LIMIT
from tests.support.jobs import LONG, SHORT, TOPICS, context, run_of, sample

rewards = st.floats(-1, 1).map(lambda r: round(r, 2))
unequal = st.lists(rewards, min_size=2, max_size=6).filter(lambda group: max(group) > min(group))
groups = st.lists(unequal, min_size=1, max_size=5)


def test_leaving_one_out_by_hand() -> None:
    assert advantages("rloo", [[1.0, 0.0, -1.0]]) == [[1.5, 0.0, -1.5]]


def test_a_group_is_standardised_by_hand() -> None:
    # Mean 0, deviation sqrt(2/3).
    assert advantages("grpo", [[1.0, 0.0, -1.0]]) == [pytest.approx([math.sqrt(1.5), 0.0, -math.sqrt(1.5)])]


def test_ppo_compares_an_answer_with_the_others_to_its_prompt_else_with_all() -> None:
    # Values: 0 and 1 for the pair, the mean of all, 1/4, for the two single ones; the deviation of all four is common.
    above = [[1.0, -1.0], [0.75], [-1.25]]
    spread = pstdev([1.0, -1.0, 0.75, -1.25])
    found = advantages("ppo", [[1.0, 0.0], [1.0], [-1.0]])
    assert found == [pytest.approx([each / spread for each in group]) for group in above]
    assert advantages("ppo", [[1.0], *([[-1.0]] * 31)])[0] == [3.0], "one good one among many is limited"


@given(groups, st.sampled_from(["rloo", "grpo", "gspo", "ppo"]), st.floats(-1, 1))
@example([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.12]], "ppo", 0.0)
def test_advantages_of_a_group_cancel_and_keep_the_order_of_rewards(
    rewards: list[list[float]], objective: str, shift: float
) -> None:
    found = advantages(objective, rewards)
    shifted = advantages(objective, [[each + shift for each in group] for group in rewards])
    for group, pulls, again in zip(rewards, found, shifted, strict=True):
        if max(map(abs, pulls)) < ADVANTAGE_LIMIT:  # what the limit cuts off, the others don't balance
            assert fmean(pulls) == pytest.approx(0, abs=1e-9)
        assert pulls == pytest.approx(again, abs=1e-6), "a constant baseline cancels out"
        order = sorted(range(len(group)), key=lambda place: group[place])
        assert [pulls[place] for place in order] == pytest.approx(sorted(pulls), abs=1e-9)


def answer(prompt: str, reward: float, backend: TorchPeftBackend, name: str | None = None) -> GradedAnswer:
    reply = {"role": "assistant", "content": SHORT.format(TOPICS[0])}
    tokens = backend.renderer.conversation(context(TOPICS[0]), (), reply, True, 2048)
    (logps,) = backend.logps([tokens], "bare")
    return GradedAnswer(prompt, tokens, reward, 1.0, logps, name)


def test_equal_and_single_answers_are_dropped_and_counted(backend: TorchPeftBackend) -> None:
    answers = [
        answer("a", 1.0, backend, "a1"), answer("a", -1.0, backend, "a2"), answer("b", 1.0, backend, "b1"),
        answer("b", 1.0, backend, "b2"), answer("c", -1.0, backend, "c1"),
    ]  # fmt: skip
    left_out = LeftOut()
    found = lessons_from(run_of(backend, left_out, objective="grpo"), answers)
    facts = [(lesson.loss, lesson.good, lesson.reward) for lesson in found]
    assert facts == [("grpo", True, 1.0), ("grpo", False, -1.0)]
    assert left_out.counts == {ALIKE: 2, ALONE: 1}
    assert left_out.answers == {"b1": ALIKE, "b2": ALIKE, "c1": ALONE}
    with pytest.raises(NotTrainable, match="no two answers to compare"):
        lessons_from(run_of(backend, objective="rloo"), answers[2:])


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_rewards_that_are_no_numbers_are_refused(backend: TorchPeftBackend, reward: float) -> None:
    answers = [answer("a", 1.0, backend), answer("a", reward, backend)]
    with pytest.raises(NotTrainable, match="1 rewards are no finite numbers"):
        lessons_from(run_of(backend, objective="ppo"), answers)


def test_corrections_and_preferences_make_groups() -> None:
    rated = sample(0, good=True)
    worse = ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"})
    corrected = sample(1, good=False, correction="c", reward=0.0)
    preferred = sample(2, good=True, worse=worse, reward=0.0)
    found = told_apart([rated, corrected, preferred, sample(3, good=True, reward=0.0)])
    assert [(each.completion_id, each.reward, each.behaviour_version) for each in found] == [
        ("cmpl_0", 1.0, 0), ("cmpl_1", -1.0, 0), ("cmpl_1", 1.0, None), ("cmpl_2", 1.0, 0),
        ("cmpl_2", -1.0, None), ("cmpl_2", -1.0, None),
    ]  # fmt: skip


class Longest:
    def scores(self, replies: Sequence[PlainReply]) -> NDArray[np.float64]:
        return np.array([float(len(each.text)) for each in replies])


def test_the_policy_answers_each_prompt_several_times(backend: TorchPeftBackend) -> None:
    tooled = sample(2, good=True, tools=({"type": "function"},))
    samples: list[Sample] = [sample(0, good=True), sample(0, good=False), sample(1, good=True), tooled]
    left_out = LeftOut()
    found = sampled(run_of(backend, left_out), samples, Longest(), seed=0)
    assert [*Counter(answer.prompt for answer in found).values()] == [SAMPLES, SAMPLES]
    assert left_out.counts == {WITH_TOOLS: 1}
    scored = backend.logps([each.tokens for each in found], "trained")
    for each, logps in zip(found, scored, strict=True):
        assert each.behaviour == pytest.approx(logps, abs=0.1), "as the policy that drew it scores it"


def test_a_reward_model_that_gives_nan_is_refused(backend: TorchPeftBackend) -> None:
    class Broken:
        def scores(self, replies: Sequence[PlainReply]) -> NDArray[np.float64]:
            return np.full(len(replies), math.nan)

    with pytest.raises(NotTrainable, match="such as nan"):
        sampled(run_of(backend), [sample(0, good=True)], Broken(), seed=0)


def rated(count: int, *, mixed: bool = False) -> list[Sample]:
    found = []
    for number in range(count):
        form = LONG if number % 4 > 1 and mixed else SHORT if number % 2 == 0 else LONG
        reply = {"role": "assistant", "content": form.format(number)}
        found.append(sample(number, good=number % 2 == 0, reply=reply))
    return found


def test_the_reward_model_is_learnt_from_ratings_if_it_can_be_believed() -> None:
    believed = rewarding(rated(40), "auto")
    texts = [SHORT.format("Rain"), LONG.format("Rain")]
    replies = [PlainReply(last_question(context("Rain")), text, True) for text in texts]
    short, long = believed.model.scores(replies)
    assert short > long
    assert "reward model of" in believed.words
    assert rewarding(rated(40), "ratings").model is None
    for few in (rated(20), rated(40, mixed=True)):
        assert rewarding(few, "auto").model is None


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (rated(20), "needs 32 rated answers"),
        (rated(80)[::2], "40 good and 0 bad"),
        (rated(40, mixed=True), "too few to be believed"),
    ],
)
def test_a_reward_model_that_is_demanded_and_cannot_be_is_an_error(samples: list[Sample], why: str) -> None:
    with pytest.raises(NotTrainable, match=why):
        rewarding(samples, "model")
