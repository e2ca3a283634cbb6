"""Plain questions that a run goes over beside its ratings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from bench.learning import general
from bench.learning.questions import PROMPTS
from burnish.gate import questions
from burnish.training.backends.torch_peft import TorchPeftBackend
from burnish.training.job import Hyperparameters
from burnish.training.lessons import ANSWERS, lessons, rehearsal
from burnish.training.loop import train
from tests.support.jobs import Base, brief_samples, run_of, write_job


@pytest.fixture(scope="module")
def bare(tiny_weights: Path) -> TorchPeftBackend:
    return TorchPeftBackend(tiny_weights, None, Hyperparameters(), seed=0)


def test_nothing_is_rehearsed_that_the_gate_or_the_bench_asks_for():
    asked = {question for question, _ in (*questions.FACTS, *general.FACTS)} | set(PROMPTS)
    assert not asked & {question for question, _ in ANSWERS}
    assert all(answer for _, answer in ANSWERS)


def test_the_bare_model_has_nothing_to_learn_from_it_and_no_metric_counts_it(bare: TorchPeftBackend):
    config = Hyperparameters()
    held = rehearsal(bare, config.max_tokens)
    assert len(held) == len(ANSWERS)
    alone = bare.step(held[:2], config, 0.0)
    assert alone["tokens"] == 0
    imitated = bare.step([replace(lesson, loss="sft") for lesson in held[:2]], config, 0.0)
    assert alone["grad_norm"] < imitated["grad_norm"] / 20, "what is left is rounding"


def test_a_limit_that_is_too_low_leaves_answers_out(bare: TorchPeftBackend):
    lengths = [len(reply.tokens.ids) for lesson in rehearsal(bare, 2048) for reply in lesson.replies]
    limit = sorted(lengths)[len(lengths) // 2]
    some = rehearsal(bare, limit)
    assert 0 < len(some) < len(ANSWERS)
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
    for batch in (rated, [*rated, *rehearsal(bare, config.max_tokens)[:2]]):
        found.append(bare.step(batch, config, 0.0))
        bare.restore(before)
    without, beside = found
    assert beside.pop("loss") != without.pop("loss")
    assert beside.pop("grad_norm") != without.pop("grad_norm")
    assert beside == pytest.approx(without)
