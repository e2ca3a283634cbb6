"""Whole jobs, most of them on the tiny model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from burnish.adapters.weights_file import check_adapter
from burnish.training.errors import Diverged, JobError, NotTrainable
from burnish.training.evaluate import evaluate
from burnish.training.job import Evaluation, Hyperparameters, JobDirectory
from burnish.training.loop import train
from tests.support.jobs import NO_BASE, Base, brief_samples, sample, write_job
from tests.training.learnt import COMMAND, rollouts

MEMORY_LIMIT = 2_500_000_000


@pytest.fixture
def make(tmp_path: Path, tiny: Base):
    def make(samples, name: str = "job", base: Base = tiny, **changes) -> JobDirectory:
        return write_job(tmp_path / name, base, samples, **changes)

    return make


def margin(evaluation: Evaluation, policy: str) -> float:
    """How much likelier the good held-out replies are than the bad ones, nats per token."""
    scores = {True: [], False: []}
    for score in evaluation.held_out:
        scores[score.reward > 0].append(getattr(score, f"{policy}_logp"))
    return sum(scores[True]) / len(scores[True]) - sum(scores[False]) / len(scores[False])


def test_a_small_job_leaves_an_adapter_live_metrics_and_a_result(make):
    job = make(brief_samples(4, 2))
    result = train(job)
    assert (result.samples, result.good, result.bad, result.steps, result.stopped_early) == (4, 2, 2, 1, None)
    assert result == job.result()
    check_adapter(job.adapter)
    assert {path.stat().st_mode & 0o777 for path in job.adapter.iterdir()} == {0o600}
    assert job.adapter.stat().st_mode & 0o777 == 0o700
    (line,) = _metrics(job)
    assert [line[name] for name in ("step", "steps", "epoch", "epochs")] == [1, 1, 1, 1]
    named = {"loss", "tokens", "kl_per_token", "grad_norm", "seconds", "good_shift", "in_band_share"}
    assert named <= line.keys()
    assert str(job.path) not in (job.adapter / "adapter_config.json").read_text()


def test_held_out_samples_are_not_trained_on_and_a_job_can_be_run_again(make):
    contents = []
    for name, held_out_good in (("a", True), ("b", False)):
        job = make([*brief_samples(4, 0), sample(9, good=held_out_good, held_out=True)], name)
        train(job)
        contents.append(_weights(job))
    assert contents[0] == contents[1]
    (job.adapter / "leftover").write_text("of a run that was killed")
    train(job)
    assert _weights(job) == contents[0]
    assert not (job.adapter / "leftover").exists()


def test_too_far_from_the_reference_it_stops_early_and_says_so(make):
    eager = Hyperparameters(epochs=5, batch_size=4, learning_rate=3e-3, kl_stop=0.01)
    result = train(make(brief_samples(4, 0), hyperparameters=eager))
    assert result.steps < 5
    assert "kl_stop is 0.01" in (result.stopped_early or "")


def test_a_diverging_run_leaves_no_adapter(make):
    # A reply that is rated so heavily that the loss overflows.
    job = make([sample(0, good=True, weight=1e308), sample(1, good=False)])
    job.adapter.mkdir()
    with pytest.raises(Diverged):
        train(job)
    assert not job.adapter.exists()
    assert not (job.path / "result.json").exists()


@pytest.mark.parametrize("loss", ["bco:loss", "forms:published", "forms:rival", "forms:reinforce"])
def test_a_loss_of_somebody_elses_is_loaded_by_its_import_path(make, loss: str):
    job = make(brief_samples(4, 0), objective=f"bench.learning.losses.{loss}")
    assert train(job).steps == 1
    check_adapter(job.adapter)


def test_a_loss_that_cannot_be_imported_is_named_before_anything_is_loaded(make):
    job = make(brief_samples(4, 0), base=NO_BASE, objective="no.such.room:loss")
    with pytest.raises(JobError, match=r"cannot load the objective 'no\.such\.room:loss'.*PYTHONPATH"):
        train(job)


def test_a_version_without_its_adapter_is_a_damaged_job(make):
    job = make([sample(0, good=True, version=7), sample(1, good=False)])
    with pytest.raises(JobError, match="version 7 generated a sample"):
        train(job)


def test_only_unusable_replies_are_not_trainable(make):
    cut = sample(1, good=False, reply={"role": "assistant", "content": ""}, finished=False)
    with pytest.raises(NotTrainable, match=r"one-sided.* \(left out: 1 × the reply is empty\)"):
        train(make([sample(0, good=True), cut]))


def test_a_second_round_starts_from_the_first_and_scores_each_reply_by_its_own_version(make):
    held = sample(9, good=True, held_out=True)
    settings = Hyperparameters(learning_rate=3e-3, batch_size=4)
    first = make([*brief_samples(4, 0), held], "first", hyperparameters=settings)
    train(first)
    first.write_replies([])
    versions = enumerate((0, 0, 1, 1, None, None))
    samples = [sample(n, good=n % 2 == 0, version=version) for n, version in versions]
    earlier = {"parent_adapter": str(first.adapter), "behaviour_adapters": {1: str(first.adapter)}}
    once = Hyperparameters(epochs=1, batch_size=6)
    second = make([*samples, held], "second", hyperparameters=once, **earlier)
    result = train(second)
    # The policy starts as version 1: in band are its replies and the foreign ones, not those of the bare model.
    assert result.metrics["in_band_share"] <= 4 / 6
    assert result.metrics["kl_per_token"] > 0.001
    second.write_replies(rollouts())
    [before], [after] = (evaluate(job).held_out for job in (first, second))
    assert before.candidate_logp == after.incumbent_logp != before.incumbent_logp
    check_adapter(second.adapter)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twelve_ratings_teach_it_what_was_liked_within_the_memory_limit(learnt: JobDirectory):
    result, evaluation = learnt.result(), learnt.evaluation()
    assert (result.good, result.bad) == (6, 6)
    assert margin(evaluation, "candidate") > margin(evaluation, "incumbent") + 0.1
    assert {score.conversation_id for score in evaluation.held_out} == {f"conv_{n}" for n in range(12, 16)}
    assert abs(evaluation.general_loss - evaluation.general_loss_reference) < 0.1
    assert 0 < evaluation.weight_change < 0.01
    assert max(result.peak_rss_bytes, evaluation.peak_rss_bytes) < MEMORY_LIMIT
    check_adapter(learnt.adapter)


def test_the_memory_of_the_parent_is_not_counted():
    held = b"x" * 400_000_000
    script = "from burnish.training.loop import peak_rss_bytes; print(peak_rss_bytes())"
    said = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    assert 5_000_000 < int(said.stdout) < len(held)


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_no_half_adapter(make):
    job = make(brief_samples(8, 0), hyperparameters=Hyperparameters(epochs=1, batch_size=4))
    for ready in (lambda: True, lambda: _lines(job) >= 2):
        _kill_when(job, ready)
        if (job.path / "result.json").exists():
            job.result()
        if job.adapter.exists():
            check_adapter(job.adapter)
    train(job)
    check_adapter(job.adapter)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_the_middle_it_goes_on_and_comes_to_the_same(make, tmp_path: Path):
    settings = {"hyperparameters": Hyperparameters(epochs=3, batch_size=4, kl_stop=9.0)}
    whole, killed = (make(brief_samples(4, 0), name, **settings) for name in ("whole", "killed"))
    train(whole)
    _kill_when(killed, lambda: _lines(killed) >= 1 and (killed.checkpoint / "progress.json").exists())
    assert not killed.adapter.exists(), "it had two more steps to go"
    made = len(json.loads((killed.checkpoint / "progress.json").read_text())["steps"])
    assert made >= 1
    shutil.copytree(killed.path, tmp_path / "torn")
    before = _seconds(killed)
    train(killed)
    assert _seconds(killed)[:made] == before[:made], "these were not made again"

    torn = JobDirectory(tmp_path / "torn")
    for state in torn.checkpoint.glob("state-*"):
        state.write_bytes(b"torn")
    train(torn)
    assert _seconds(torn)[0] != before[0], "nothing to go on from"

    for job in (killed, torn):
        assert [line["step"] for line in _metrics(job)] == [1, 2, 3]
        assert job.result().metrics == whole.result().metrics
        assert _weights(job) == _weights(whole)
        assert not job.checkpoint.exists()


def _kill_when(job: JobDirectory, ready: Callable[[], bool]) -> None:
    """Train until then, or to the end if that comes first; kill -9."""
    with subprocess.Popen([*COMMAND, "train", str(job.path)], stdin=subprocess.PIPE) as process:
        while process.poll() is None and not ready():
            time.sleep(0.02)
        process.kill()


def _weights(job: JobDirectory) -> bytes:
    return (job.adapter / "adapter_model.safetensors").read_bytes()


def _metrics(job: JobDirectory) -> list[dict[str, float]]:
    return [json.loads(line) for line in job.metrics.read_text().splitlines()]


def _seconds(job: JobDirectory) -> list[float]:
    return [line["seconds"] for line in _metrics(job)]


def _lines(job: JobDirectory) -> int:
    return len(job.metrics.read_text().splitlines()) if job.metrics.exists() else 0
