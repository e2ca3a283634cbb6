"""What is measured of a candidate, most of it on the real small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.training.evaluate import evaluate
from burnish.training.job import Evaluation, JobDirectory
from burnish.training.loop import train
from tests.support.jobs import TOPICS, Base, sample, write_job
from tests.training.learnt import COMMENT, REPLIES, calls, rollouts

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def evaluation(learnt: JobDirectory) -> Evaluation:
    """Of replies of the candidate that are apt; those of the incumbent belong to no question, or are long."""
    return learnt.evaluation()


def test_tool_calls_are_no_texts_to_be_scored(tiny: Base, tmp_path: Path) -> None:
    said = sample(1, good=False, comment=COMMENT)
    job = write_job(tmp_path / "job", tiny, [sample(0, good=True), said])
    train(job)
    job.write_replies([*rollouts(), *calls()])
    both = evaluate(job)
    assert "tool" not in {reply.prompt_id for reply in both.words}
    assert "tool" not in {reply.prompt_id for reply in both.related}
    assert both.kl_per_token is not None
    assert both.words
    assert both.related
    job.write_replies(calls())
    alone = evaluate(job)
    assert (alone.kl_per_token, alone.words, alone.related) == (None, (), ())
    written = '{"name": "weather", "arguments": {"city": "Paris"}}'
    job.write_replies([each.model_copy(update={"tool_calls": (), "reply": written}) for each in calls()])
    assert evaluate(job).words == (), "a comment is about texts, and this is an unparsed call"


def test_a_reply_is_likelier_under_its_own_question_than_under_others(evaluation: Evaluation) -> None:
    found = {(each.policy, each.prompt_id): each.pmi for each in evaluation.related}
    for question in REPLIES:
        if ("candidate", question) in found:
            assert found["candidate", question] > max(0.4, found["incumbent", question])
    assert len(found) >= len(REPLIES)
    assert {question for _, question in found} <= REPLIES.keys(), "those with a word of it need no model"


def test_replies_of_the_trained_kind_have_become_likelier(evaluation: Evaluation) -> None:
    assert evaluation.kl_per_token is not None
    assert evaluation.kl_per_token > 0


def test_what_was_said_in_words_finds_the_short_replies_better(evaluation: Evaluation) -> None:
    gains = [w.candidate_pmi - w.incumbent_pmi for w in evaluation.words if w.prompt_id in TOPICS]
    assert len(gains) == 6
    assert sum(gains) > 0
