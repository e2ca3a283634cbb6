"""How long a run still takes, by a clock that the tests set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.learner.progress import (
    USUAL,
    Durations,
    Progress,
    durations,
    earlier_runs,
    estimate,
    progress,
    rest_s,
)
from burnish.training.job import Hyperparameters, JobDirectory, JobSpec, ModelSize
from burnish.training.phases import Mark, Phases

EARLIER = [{"loading": 10.0, "preparing": 20.0, "training": 60.0, "sampling": 30.0, "judging": 2.0}]
units = st.floats(0.01, 1000)


def counted(unit_s: float, done: int, total: int, start: int = 0) -> list[Mark]:
    return [Mark("training", (each - start) * unit_s, each, total) for each in range(start, done + 1)]


@given(unit_s=units, done=st.integers(1, 50), left=st.integers(0, 50), start=st.integers(0, 20))
def test_a_steady_rate_is_continued(unit_s: float, done: int, left: int, start: int) -> None:
    marks = counted(unit_s, start + done, start + done + left, start)
    assert rest_s(marks, done * unit_s) == pytest.approx(left * unit_s)
    if left:
        assert rest_s(marks, (done + 0.5) * unit_s) == pytest.approx((left - 0.5) * unit_s)


@given(
    unit_s=units,
    done=st.integers(1, 20),
    left=st.integers(1, 20),
    waits=st.lists(units, min_size=2, max_size=8),
)
def test_an_estimate_grows_at_a_standstill(unit_s: float, done: int, left: int, waits: list[float]) -> None:
    marks = counted(unit_s, done, done + left)
    estimates = [rest_s(marks, (done + 1) * unit_s + wait) for wait in sorted(waits)]
    late = [estimate for estimate in estimates if estimate is not None]
    assert (len(late), min(late) >= 0) == (len(waits), True)
    assert late == sorted(late), "a unit that takes longer than the others slows the rate"


def estimates(marks: list[Mark], now_s: float, earlier: list[Durations]) -> tuple[float | None, float | None]:
    """Return how long the phase and the run still take."""
    shown = progress(marks, now_s, earlier)
    return shown.eta_s, shown.run_eta_s


@pytest.mark.parametrize(("begin", "steps"), [(2.0, 4), (900.0, 36)], ids=["a quick start", "a slow start"])
def test_a_first_run_is_guessed_by_the_pace_of_its_training(begin: float, steps: int) -> None:
    """One that trains twice as long as usual takes twice as long after that; how long it prepared tells nothing."""
    step_s = 2 * USUAL["training"] / steps
    marks = [Mark("loading", 0), *(Mark("preparing", begin * i / 9, i, 9) for i in range(10))]
    early = progress(marks, begin, [])
    assert early and (early.step, early.run_eta_s, early.guessed) == (2, None, False)
    marks += [Mark("training", begin + step * step_s, step, steps) for step in range(2)]
    with_comments = progress([Mark("answering", -9.0, 0, 64), *marks], begin + step_s, [])
    assert with_comments and (with_comments.step, with_comments.steps) == (4, 10)
    at_first = progress(marks[:-1], begin + step_s / 2, [])
    assert at_first and at_first.run_eta_s is None, "no step has told the pace"
    shown = progress(marks, begin + step_s, [])
    assert shown and (shown.step, shown.steps, shown.guessed) == (3, 9, True)
    assert shown.run_eta_s == pytest.approx(2 * sum(USUAL.values()) - step_s)
    trained = begin + 2 * USUAL["training"]
    marks += [
        Mark("training", trained, steps, steps),
        Mark("staging", trained),
        Mark("sampling", trained, 0, 8),
    ]
    later = progress(marks, trained + 60, [])
    assert later and later.run_eta_s == pytest.approx(
        2 * sum(USUAL[name] for name in ("sampling", "facts", "scoring", "judging", "swapping")) - 60
    )


def test_a_first_run_ends_later_than_the_counter_of_a_part() -> None:
    """Scoring counts answers, and works before and after that."""
    marks = [Mark("training", 0, 0, 4), Mark("training", USUAL["training"], 4, 4)]
    began = USUAL["training"] + 1
    marks += [Mark("scoring", began), Mark("scoring", began + 9, 0, 96), Mark("scoring", began + 99, 96, 96)]
    rest_s = USUAL["judging"] + USUAL["swapping"]
    for late in ([], [Mark("scoring", began + 99)]):
        shown = progress([*marks, *late], began + 99, [])
        pace = began / USUAL["training"]
        assert shown and shown.run_eta_s == pytest.approx(pace * (USUAL["scoring"] + rest_s) - 99)


def test_a_run_that_has_ended_is_at_its_last_step() -> None:
    marks = [Mark("loading", 0), Mark("training", 4, 8, 8), Mark("ended", 9)]
    shown = progress(marks, 9, [])
    assert shown and shown.step == 3


def test_a_version_that_is_judged_again_is_guessed_by_what_it_does() -> None:
    usual = USUAL["staging"] + USUAL["sampling"]
    marks = [Mark("staging", 0), Mark("sampling", USUAL["staging"], 0, 2), Mark("sampling", usual / 2, 1, 2)]
    shown = progress(marks, usual / 2, [])
    assert shown and shown.run_eta_s is not None
    assert (shown.step, shown.guessed) == (5, True)
    assert (
        0 < shown.run_eta_s < usual + sum(USUAL[name] for name in ("facts", "scoring", "judging", "swapping"))
    )
    earlier = progress(marks, usual / 2, EARLIER)
    assert earlier and not earlier.guessed


def test_nothing_counted_and_no_earlier_run_is_no_estimate() -> None:
    assert progress([], 5, EARLIER) is None
    assert estimates([Mark("loading", 0)], 5, []) == (None, None)
    for marks in ([Mark("training", 0, 0, 8)], [Mark("training", 0, 3, 8)]):
        assert estimates(marks, 5, []) == (None, None)


def test_earlier_runs_tell_how_long_uncounted_and_later_phases_take() -> None:
    loading = [Mark("loading", 100)]
    assert estimates(loading, 104, EARLIER) == (6.0, 6.0 + 20 + 60 + 30 + 2)
    assert estimates(loading, 150, EARLIER) == (None, 112.0), "nobody knows how long it will be late"


def test_the_own_rate_counts_more_than_earlier_runs() -> None:
    marks = [Mark("preparing", 0), *(Mark("training", 10 + 2 * done, done, 8) for done in range(5))]
    shown = progress(marks, 18, EARLIER)
    assert shown == Progress("training", 10, 4, 8, 8.0, 8.0 + 30 + 2, step=3)


def test_a_counter_of_a_part_tells_less_than_the_usual_duration() -> None:
    part = [Mark("preparing", 0), Mark("preparing", 1, 0, 4), Mark("preparing", 2, 3, 4)]
    assert estimates(part, 2, [])[0] == pytest.approx(1 / 3)
    assert estimates(part, 2, EARLIER)[0] == 18.0


def test_a_run_without_an_end_has_no_durations() -> None:
    marks = [Mark("loading", 0), Mark("training", 4, 0, 2), Mark("training", 9, 2, 2)]
    assert durations(marks) == {}
    assert durations([*marks, Mark("ended", 12)]) == {"loading": 4, "training": 8}
    assert durations([]) == {}


def test_a_phase_that_a_run_comes_back_to_lasts_as_long_as_all_its_times() -> None:
    phases = [("preparing", 0), ("training", 3), ("preparing", 10), ("training", 12), ("ended", 20)]
    assert durations([Mark(phase, at) for phase, at in phases]) == {"preparing": 5, "training": 15}


def test_earlier_runs_on_the_same_model_count_those_of_the_objective_first(tmp_path: Path) -> None:
    def job(name: str, objective: str = "kto", digest: str = "a", last: str = "judging") -> JobDirectory:
        made = JobDirectory(tmp_path / name)
        spec = {"run_id": name, "objective": objective, "base_digest": digest, "base_model": "m"}
        made.write_job(JobSpec.model_validate(spec | {"base_weights": "w", "weights_cache": "c"}), [])
        for phase in ("loading", last, "ended"):
            Phases(made.phases).begin(phase)  # type: ignore[arg-type]
        return made

    now = job("run_9")
    assert earlier_runs(now) == []
    job("run_1", digest="b")
    job("run_2", last="training")
    assert earlier_runs(now) == []
    job("run_3", "dpo")
    assert len(earlier_runs(now)) == 1
    job("run_4"), job("run_5")
    assert len(earlier_runs(now)) == 2
    assert estimate(tmp_path, now.spec(), 48, 4000)["by"] == "earlier runs"


def test_a_first_run_takes_longer_the_larger_the_model_and_the_longer_the_prompts(tmp_path: Path) -> None:
    def first_s(parameters: int, prompt_tokens: int, **settings: Any) -> float:
        spec = JobSpec(
            run_id="run_1", base_model="m", base_weights="w", base_digest="a", weights_cache="c",
            size=ModelSize(hidden=576, layers=30, parameters=parameters),
            hyperparameters=Hyperparameters(epochs=6, **settings),
        )  # fmt: skip
        found = estimate(tmp_path, spec, 48, prompt_tokens)
        assert found["by"].startswith("the model's size")
        return float(found["seconds"])

    small = 134_500_000
    assert first_s(small, 0) == pytest.approx(300)
    assert first_s(2 * small, 0) == pytest.approx(600)
    assert 10 * 60 < first_s(small, 4000) < 25 * 60
    assert first_s(small, 9000, max_tokens=2000) == first_s(small, 2000), "longer ones are left out"
