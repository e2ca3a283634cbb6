from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.system import durable
from burnish.training.errors import JobError
from burnish.training.job import JobDirectory, PolicyReply
from tests.support.jobs import NO_BASE, brief_samples, write_job


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return write_job(tmp_path / "job", NO_BASE, brief_samples(3, 1))


def rollout(text: str) -> PolicyReply:
    question = ({"content": text},)
    return PolicyReply(policy="candidate", prompt_id="1", messages=question, reply=text, finished=True)


def test_what_is_written_is_what_is_read(job: JobDirectory):
    assert job.samples() == brief_samples(3, 1)
    assert job.spec().base_model == "smollm2"
    replies = [rollout("a\u2028b\x85c\n"), rollout("b")]
    job.write_replies(replies)
    assert job.replies() == replies


@given(st.text())
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    job = JobDirectory(tmp_path_factory.getbasetemp() / "any")
    job.path.mkdir(exist_ok=True)
    job.write_replies([rollout(text)])
    assert job.replies() == [rollout(text)]


def test_files_are_private(job: JobDirectory):
    assert job.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in job.path.iterdir()} == {0o600}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run_id": 1}', b"\xff\xfe", b"null"])
def test_a_damaged_job_and_a_torn_line_of_samples_say_which_file(job: JobDirectory, content: bytes):
    (job.path / "job.json").write_bytes(content)
    with pytest.raises(JobError, match=r"job\.json"):
        job.spec()
    path = job.path / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(JobError, match=r"samples\.jsonl is damaged"):
        job.samples()


@pytest.mark.parametrize("name", ["spec", "samples", "replies", "result", "evaluation"])
def test_a_missing_file_is_named(tmp_path: Path, name: str):
    with pytest.raises(JobError, match="cannot read"):
        getattr(JobDirectory(tmp_path), name)()


def test_unknown_fields_are_refused(job: JobDirectory):
    for model in (job.spec(), job.samples()[0]):
        with pytest.raises(ValueError, match="surprise"):
            model.model_validate(model.model_dump() | {"surprise": 1})


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path):
    path = tmp_path / "f"
    durable.replace(path, "old")
    with pytest.raises(UnicodeEncodeError):
        durable.replace(path, "new \ud800")
    assert path.read_text() == "old"
