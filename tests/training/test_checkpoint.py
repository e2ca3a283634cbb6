"""What a checkpoint keeps of a job; going on from one, with a kill in between, is tested with the loop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.training.backends.base import Distribution, Lesson, LessonReply
from burnish.training.checkpoint import Checkpoint
from burnish.training.dataset import LeftOut
from burnish.training.job import Hyperparameters, JobDirectory
from burnish.training.rendering import Rendered
from tests.support.jobs import NO_BASE, brief_samples, write_job

texts = st.text(max_size=9)
floats = st.floats(allow_nan=False, allow_infinity=False)
ids = st.lists(st.integers(0, 2**18), min_size=1, max_size=4).map(tuple)
logps = st.lists(floats, max_size=4).map(tuple)
rows = st.lists(logps, max_size=3).map(tuple)
teachers = st.none() | st.builds(Distribution, st.lists(ids, max_size=3).map(tuple), rows)
replies = st.builds(LessonReply, st.builds(Rendered, ids, ids), floats, floats, logps, logps, teachers)
losses = st.sampled_from(["mis_po", "dpo", "distil"])
lessons = st.lists(st.builds(Lesson, losses, st.tuples(replies)), max_size=4)


def job(path: Path, count: int = 4, **changes: Any) -> JobDirectory:
    return write_job(path, NO_BASE, brief_samples(count, 0), **changes)


@settings(max_examples=30)
@given(
    lessons, st.dictionaries(texts, st.integers(1, 9), max_size=3), st.dictionaries(texts, texts, max_size=3)
)
def test_lessons_come_back_bit_for_bit(made: list[Lesson], counts: dict[str, int], answers: dict[str, str]):
    left_out = LeftOut(Counter(counts), answers)
    with TemporaryDirectory() as directory:
        kept = job(Path(directory) / "job")
        Checkpoint(kept).keep(made, left_out)
        counted = LeftOut(Counter({"of the job itself": 1}))
        assert Checkpoint(kept).lessons(counted) == made
        assert counted == left_out


def test_what_other_inputs_left_is_not_there(tmp_path: Path):
    first = job(tmp_path / "job")
    Checkpoint(first).keep([], LeftOut())
    assert Checkpoint(first).lessons(LeftOut()) == []
    for changes in ({"count": 5}, {"seed": 1}, {"hyperparameters": Hyperparameters(learning_rate=1e-5)}):
        assert Checkpoint(job(tmp_path / "job", **changes)).lessons(LeftOut()) is None
    again = job(tmp_path / "job", run_id="run_2")
    assert Checkpoint(again).lessons(LeftOut()) == [], "the run's name decides nothing"
    (again.checkpoint / "lessons.json").write_text('{"inputs": ')
    assert Checkpoint(again).lessons(LeftOut()) is None
