"""The curve of a run: what a chart shows of thousands of steps, and that it outlives the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.curve import MAX_POINTS, curve, curve_of
from burnish.proxy.ids import run_id
from burnish.training.job import JobDirectory
from tests.learner.conftest import Open


def step(number: int, **figures: Any) -> dict[str, Any]:
    return {"step": number, "loss": 1.0, "kl_per_token": 0.1, "good_shift": 0.3, "bad_shift": -0.1} | figures


@given(count=st.integers(1, 1500))
def test_it_ends_at_the_last_step_and_has_a_bounded_number_of_points(count: int) -> None:
    found = curve([step(number) for number in range(1, count + 1)]) or {}
    assert {len(points) for points in found.values()} == {len(found["step"])}
    assert len(found["step"]) <= MAX_POINTS
    assert found["step"][-1] == count
    assert found["step"] == sorted({step for step in found["step"] if step is not None})


def test_a_point_is_the_mean_of_its_steps_and_the_margin_is_good_less_bad() -> None:
    found = curve([step(number, loss=float(number % 2)) for number in range(2 * MAX_POINTS)]) or {}
    assert found["loss"] == [0.5] * MAX_POINTS
    assert found["margin"] == pytest.approx([0.4] * MAX_POINTS)


def test_what_a_step_lacks_is_a_gap() -> None:
    found = curve([step(1, clip_share=0.5, grad_norm=2.0), {"step": 2, "loss": float("nan"), "reward": 1.0}])
    assert found == {
        "step": [1, 2],
        "loss": [1.0, None],
        "kl_per_token": [0.1, None],
        "ratio_mean": [None, None],
        "clip_share": [0.5, None],
        "grad_norm": [2.0, None],
        "reward": [None, 1.0],
        "margin": [pytest.approx(0.4), None],
    }


def test_no_step_is_no_curve_and_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    job = JobDirectory(tmp_path)
    assert curve_of(job) is None
    job.metrics.write_text("")
    assert curve_of(job) is None
    job.metrics.write_text(json.dumps(step(1)) + "\n[]\n" + '{"step": 2, "lo')
    found = curve_of(job) or {}
    assert found["step"] == [1]


async def test_a_failed_run_keeps_its_curve_when_its_job_is_gone(open_world: Open, tmp_path: Path) -> None:
    world = await open_world(base_weights=tmp_path / "gone.gguf")
    await world.rated(1.0, 1.0, -1.0, -1.0)
    failed = await world.ended(await world.learner.train_now(), 60)
    assert (await world.http.get(f"/burnish/runs/{failed.id}")).json()["curve"] is None, "it made no step"
    points = curve([step(1), step(2)]) or {}
    await world.log.keep_curve(failed.id, points)
    assert (await world.http.get(f"/burnish/runs/{failed.id}")).json()["curve"] == points
    assert await world.log.curve(run_id()) is None
