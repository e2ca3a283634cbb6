"""Prompts whose next-token probabilities stay the base model's beside what a run learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from bench.learning import general
from bench.learning.exam import AT_LENGTH
from bench.learning.preferences import PREFERENCES
from bench.learning.questions import PROMPTS
from burnish.gate import questions
from burnish.training.anchors import FACTS, LONGEST, REQUESTS, against_comments, facts
from burnish.training.backends.base import Lesson, LessonReply
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.checkpoint import Checkpoint
from burnish.training.dataset import LeftOut
from burnish.training.job import Hyperparameters, Sample
from burnish.training.lessons import lessons
from burnish.training.loop import train
from tests.support.jobs import LONG, SHORT, TOPICS, Base, brief_samples, run_of, sample, write_job


@pytest.fixture(scope="module")
def bare(tiny_weights: Path) -> TorchPeftBackend:
    return TorchPeftBackend(tiny_weights, None, Hyperparameters(), seed=0)


@pytest.fixture(scope="module")
def small_model(weights: Path) -> TorchPeftBackend:
    """Not to be trained."""
    return TorchPeftBackend(weights, None, Hyperparameters(), seed=0)


def criticised_reply(number: int, reply: str) -> Sample:
    asked = ({"role": "user", "content": f"What is {TOPICS[number].lower()}?"},)
    said = {"role": "assistant", "content": reply}
    return sample(number, good=False, comment="not like this", messages=asked, reply=said)


def wanted(backend: TorchPeftBackend, criticised: Sample, reply: str) -> Lesson:
    """Return a lesson as it comes from a comment."""
    tokens = backend.renderer.conversation(
        criticised.messages, (), {"content": reply, "reasoning_content": ""}, True, 2048
    )
    (logps,) = backend.logps([tokens], "bare")
    return Lesson("mis_po", (LessonReply(tokens, 1.0, 1.0, logps, logps),))


def test_no_fact_is_held_that_the_gate_or_the_bench_asks_for():
    asked = {question for question, _ in (*questions.FACTS, *general.FACTS)} | set(PROMPTS)
    assert not asked & {question for question, _ in FACTS}
    assert all(answer for _, answer in FACTS)


def test_no_request_occurs_in_an_exam():
    exam = [AT_LENGTH, *PROMPTS, *(p.system or "" for p in PREFERENCES.values())]
    exam += [comment for preference in PREFERENCES.values() for comment in preference.comments]
    assert len(set(REQUESTS)) == 20
    for request in REQUESTS:
        wording = request.format("").strip(" :.").lower()
        assert not [text for text in exam if wording in text.lower()]


def requested(backend: TorchPeftBackend, criticised: str, better: str) -> list[str]:
    """Return the prompts that are held if comments on the one kind of reply explain the other."""
    topics = TOPICS[:3]  # twenty requests are scored on each
    samples = [criticised_reply(number, criticised.format(topic)) for number, topic in enumerate(topics)]
    learnt = [
        wanted(backend, sample, better.format(topic)) for sample, topic in zip(samples, topics, strict=True)
    ]
    anchors = against_comments(run_of(backend, objective="critique"), samples, learnt)
    assert all(anchor.rehearsed and len(anchor.replies[0].tokens.reply) <= LONGEST for anchor in anchors)
    return [backend.renderer.text(anchor.replies[0].tokens.prompt) for anchor in anchors]


def test_a_request_holds_if_it_asks_for_the_opposite_of_the_comment(small_model: TorchPeftBackend):
    too_long = requested(small_model, LONG, SHORT)
    assert any("Write an essay" in prompt for prompt in too_long)
    assert not any("In one word" in prompt for prompt in too_long)
    assert not any("Write an essay" in prompt for prompt in requested(small_model, SHORT, LONG))


def test_a_run_holds_its_anchors_and_counts_none_of_them(tmp_path: Path, tiny: Base, bare: TorchPeftBackend):
    samples = [criticised_reply(number, LONG.format(topic)) for number, topic in enumerate(TOPICS[:4])]
    learnt = [
        wanted(bare, sample, SHORT.format(topic)) for sample, topic in zip(samples, TOPICS, strict=False)
    ]
    anchors = facts(bare, 2048)[:4]
    held = [anchor.replies[0].tokens for anchor in anchors]
    before = bare.logps(held, "bare")
    moved = {}
    for rehearsed in (0, 4):
        config = Hyperparameters(epochs=4, batch_size=4, learning_rate=1e-2, kl_stop=9.0, rehearsed=rehearsed)
        job = write_job(
            tmp_path / str(rehearsed), tiny, samples, objective="critique", hyperparameters=config
        )
        # A tiny model would answer the comments with babble.
        Checkpoint(job).keep(learnt + anchors[:rehearsed], LeftOut(), 0, (0, 0))
        assert train(job).samples == len(learnt)
        after = bare.logps(held, job.adapter)
        moved[rehearsed] = fmean(
            abs(new - old)
            for now, then in zip(after, before, strict=True)
            for new, old in zip(now, then, strict=True)
        )
    assert moved[4] < 0.8 * moved[0]


def test_the_bare_model_has_nothing_to_learn_from_it_and_no_metric_counts_it(bare: TorchPeftBackend):
    config = Hyperparameters()
    held = facts(bare, config.max_tokens)
    assert len(held) == len(FACTS)
    alone = bare.step(held[:2], config, 0.0)
    assert alone["tokens"] == 0
    imitated = bare.step([replace(lesson, loss="sft") for lesson in held[:2]], config, 0.0)
    assert alone["grad_norm"] < imitated["grad_norm"] / 20, "what is left is rounding"


def test_a_limit_that_is_too_low_leaves_answers_out(bare: TorchPeftBackend):
    lengths = [len(reply.tokens.ids) for lesson in facts(bare, 2048) for reply in lesson.replies]
    limit = sorted(lengths)[len(lengths) // 2]
    some = facts(bare, limit)
    assert 0 < len(some) < len(FACTS)
    assert all(len(reply.tokens.ids) <= limit for lesson in some for reply in lesson.replies)


@pytest.mark.slow
def test_with_it_a_run_leaves_the_rest_of_the_model_where_it_was(tmp_path: Path, small: Base, weights: Path):
    bare = TorchPeftBackend(weights, None, Hyperparameters(), seed=0)
    moved = {}
    asked = [{"role": "user", "content": "What is the capital of Portugal?"}]
    reply = {"role": "assistant", "content": "The capital of Portugal is Lisbon."}
    other = bare.renderer.conversation(asked, (), reply, True, 2048)
    (before,) = bare.logps([other], "bare")
    for rehearsed in (0, 2):
        config = Hyperparameters(epochs=2, batch_size=4, learning_rate=2e-3, kl_stop=9.0, rehearsed=rehearsed)
        job = write_job(tmp_path / str(rehearsed), small, brief_samples(8, 0), hyperparameters=config)
        result = train(job)
        assert (result.samples, result.ratings) == (8, 8), "what is rehearsed is no rating"
        (after,) = bare.logps([other], job.adapter)
        moved[rehearsed] = fmean(abs(new - old) for new, old in zip(after, before, strict=True))
    assert moved[2] < moved[0] / 2


def test_metrics_are_those_of_what_was_rated(bare: TorchPeftBackend, tmp_path: Path):
    run = run_of(bare)
    rated, config = lessons(run, brief_samples(4, 0)), run.spec.hyperparameters
    before = tmp_path / "before"
    bare.checkpoint(before)
    found = []
    for batch in (rated, [*rated, *facts(bare, config.max_tokens)[:2]]):
        found.append(bare.step(batch, config, 0.0))
        bare.restore(before)
    without, beside = found
    assert beside.pop("loss") != without.pop("loss")
    assert beside.pop("grad_norm") != without.pop("grad_norm")
    assert beside == pytest.approx(without)
