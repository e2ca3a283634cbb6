"""What is measured of a candidate, on the real small model."""

from __future__ import annotations

from typing import Literal

import pytest

from burnish.training.evaluate import evaluate
from burnish.training.job import Evaluation, Hyperparameters, Rollout
from burnish.training.loop import train
from tests.support.jobs import LONG, SHORT, TOPICS, Base, brief_samples, sample, write_job

ANSWERS = {
    "Where do penguins live?": (
        "They are found in Antarctica and on the islands around it.",
        "It is a kind of soup.",
    ),
    "What is two plus two?": ("The result is four.", "They are red and yellow, and grow on trees."),
    "Who was Mozart?": ("He composed operas and symphonies in Vienna.", "You should water it once a week."),
    "What do bees make?": ("Honey, and wax.", "The capital is Paris."),
}


TOOLS = ({"type": "function", "function": {"name": "weather"}},)


def called(policy: Literal["candidate", "incumbent"], *, finished: bool) -> Rollout:
    """A reply that calls a tool, which the small model's chat template does not write."""
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    return Rollout(
        policy=policy, prompt_id="tool", messages=({"role": "user", "content": "Is it warm in Paris?"},),
        tools=TOOLS, reply="", tool_calls=(call,), finished=finished,
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory, small: Base) -> tuple[Evaluation, Evaluation]:
    """Of a candidate that has hardly learnt; its replies are apt, the incumbent's belong to no question.

    The second one is of tool calls only.
    """
    said = sample(1, good=False).model_copy(update={"comment": "too long, one short sentence please"})
    job = write_job(
        tmp_path_factory.mktemp("evaluated") / "job", small,
        [sample(0, good=True), said, *brief_samples(0, 2)],
        hyperparameters=Hyperparameters(epochs=1, batch_size=2),
    )  # fmt: skip
    train(job)
    rollouts = [
        Rollout(policy=policy, prompt_id=question, messages=({"role": "user", "content": question},),
                reply=reply, finished=True)
        for question, replies in ANSWERS.items()
        for policy, reply in zip(("candidate", "incumbent"), replies, strict=True)
    ] + [
        Rollout(policy=policy, prompt_id=topic, messages=({"role": "user", "content": f"What is {topic.lower()}?"},),
                reply=form.format(topic), finished=True)
        for topic in TOPICS[8:14]
        for policy, form in (("candidate", SHORT), ("incumbent", LONG))
    ]  # fmt: skip
    calls = [called(policy, finished=policy == "incumbent") for policy in ("candidate", "incumbent")]
    job.write_rollouts([*rollouts, *calls])
    evaluation = evaluate(job)
    job.write_rollouts(calls)
    return evaluation, evaluate(job)


@pytest.fixture(scope="module")
def evaluation(evaluations: tuple[Evaluation, Evaluation]) -> Evaluation:
    return evaluations[0]


def test_tool_calls_are_no_texts_to_be_scored(evaluations: tuple[Evaluation, Evaluation]) -> None:
    both, calls = evaluations
    assert "tool" not in {each.prompt_id for each in (*both.words, *both.related)}
    assert both.kl_per_token is not None
    assert (calls.kl_per_token, calls.words, calls.related) == (None, (), ())


def test_a_reply_is_likelier_under_its_own_question_than_under_others(evaluation: Evaluation) -> None:
    found = {(each.policy, each.prompt_id): each.pmi for each in evaluation.related}
    for question in ANSWERS:
        if ("candidate", question) in found:
            assert found["candidate", question] > max(0.4, found["incumbent", question])
    assert len(found) >= len(ANSWERS)


def test_replies_with_a_word_of_their_question_need_no_model(evaluation: Evaluation) -> None:
    assert {each.prompt_id for each in evaluation.related} <= ANSWERS.keys()


def test_what_was_said_in_words_finds_the_short_replies_better(evaluation: Evaluation) -> None:
    gains = [w.candidate_pmi - w.incumbent_pmi for w in evaluation.words if w.prompt_id in TOPICS]
    assert len(gains) == 6
    assert sum(gains) > 0
