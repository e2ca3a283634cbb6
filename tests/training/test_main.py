"""The command, as the proxy starts it: a real process, its exit code, and what it leaves in the directory."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from burnish.system.extras import how_to_install
from burnish.training.job import JobDirectory
from tests.support.jobs import Base, brief_samples, sample, write_job
from tests.training.learnt import COMMAND

# Imports take seconds on a busy machine.
LIMIT_S = 120.0


def run(step: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command, variables = [*COMMAND, step, str(directory)], os.environ | environment
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=LIMIT_S, check=False, env=variables, **options)


def reason(job: JobDirectory) -> dict[str, Any]:
    return json.loads((job.path / "error.json").read_text())


@pytest.fixture
def job(tmp_path: Path, tiny: Base) -> JobDirectory:
    return write_job(tmp_path / "job", tiny, brief_samples(8, 2))


def torch_that(raises: str, directory: Path) -> dict[str, str]:
    """A torch that fails in the given way, found before the real one."""
    directory.mkdir()
    (directory / "torch.py").write_text(f"raise {raises}\n")
    return {"PYTHONPATH": str(directory)}


def test_a_damaged_job_ends_with_2_and_one_clear_line(job: JobDirectory):
    (job.path / "job.json").write_text("{")
    ended = run("train", job.path)
    assert ended.returncode == 2
    assert reason(job)["error"] == "JobError"
    assert "job.json is damaged" in reason(job)["message"]
    assert ended.stderr.startswith("JobError: ")
    assert "Traceback" not in ended.stderr
    absent = run("train", job.path / "gone")
    assert (absent.returncode, "cannot read" in absent.stderr) == (2, True)
    assert not (job.path / "gone").exists()


def test_one_sided_ratings_end_with_2_before_anything_is_loaded(tmp_path: Path, tiny: Base):
    job = write_job(tmp_path / "job", tiny, [sample(n, good=False) for n in range(8)])
    ended = run("train", job.path, **torch_that("RuntimeError('loaded')", tmp_path / "fake"))
    assert (ended.returncode, reason(job)["error"]) == (2, "NotTrainable")
    assert "rate some answers good as well" in reason(job)["message"]
    assert not job.adapter.exists()


def test_evaluating_before_training_says_what_to_do(job: JobDirectory):
    job.write_replies([])
    assert run("evaluate", job.path).returncode == 2
    assert "train" in reason(job)["message"]


@pytest.mark.parametrize(
    ("raised", "reason_given"),
    [
        ("ModuleNotFoundError(\"No module named 'torch'\")", how_to_install("train")),
        ("MemoryError()", "not enough memory: lower micro_batch_tokens"),
        ('RuntimeError("can\'t allocate memory: 9 bytes")', "not enough memory: lower micro_batch_tokens"),
        ('RuntimeError("[malloc_or_wait] Unable to allocate 9 bytes.")', "not enough memory"),
        ("OSError(28, 'No space left on device')", "the disk is full: make room"),
    ],
)
def test_what_is_missing_is_named(job: JobDirectory, tmp_path: Path, raised: str, reason_given: str):
    assert run("train", job.path, **torch_that(raised, tmp_path / "fake")).returncode == 2
    assert reason_given in reason(job)["message"]


def test_a_fault_ends_with_1_and_a_traceback(job: JobDirectory, tmp_path: Path):
    ended = run("train", job.path, **torch_that("ZeroDivisionError('boom')", tmp_path / "fake"))
    assert ended.returncode == 1
    assert reason(job) == {"error": "ZeroDivisionError", "message": "boom"}
    assert "Traceback" in ended.stderr


def test_a_wrong_call_shows_the_usage(tmp_path: Path):
    ended = run("learn", tmp_path)
    assert ended.returncode == 2
    assert "usage: python -m burnish.training" in ended.stderr


def test_it_ends_when_its_parent_is_gone_and_gives_way_while_it_runs(job: JobDirectory):
    process = subprocess.Popen([*COMMAND, "train", str(job.path)], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + LIMIT_S
        while psutil.Process(process.pid).nice() < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert psutil.Process(process.pid).nice() == 10
        assert os.getsid(process.pid) == os.getsid(0)
        process.stdin.close()
        assert process.wait(10) == 3
    finally:
        process.kill()
        process.wait()
    assert not (job.path / "result.json").exists()
