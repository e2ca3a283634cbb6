from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.config.tables import TrainConfig
from burnish.learner.machine import Machine
from burnish.learner.scheduler import (
    MAX_BACK_OFF_S,
    PRESSURE_PATIENCE_S,
    Decision,
    SchedulerState,
    back_off_s,
    decide,
    in_window,
    warnings,
)
from burnish.proxy.log import ReadyCounts

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_S = NOON.timestamp()
EIGHT_HOURS_AGO_S, IN_A_YEAR_S = NOW_S - 8 * 3600, NOW_S + 365 * 86_400


def counted(new: int, good: int, bad: int, comments: int = 0, pairs: int = 0, **facts: Any) -> SchedulerState:
    return SchedulerState(ReadyCounts(new, good, bad, 0, comments, pairs), **facts)


ENOUGH = counted(new=32, good=12, bad=20)
NEEDING = replace(ENOUGH, needed_bytes=2_500_000_000)
GB = 10**9
UNPLUGGED = Machine(on_battery=True)
BUSY = Machine(load=0.93, free_bytes=8 * GB, total_bytes=16 * GB)
FULL = Machine(load=0.0, free_bytes=1 * GB, total_bytes=16 * GB)


def test_enough_ratings_and_quiet_start_a_run() -> None:
    reason = "32 new ratings (12 good and 20 bad ready)"
    assert decide(ENOUGH, TrainConfig(), NOON) == Decision(True, reason, due=True)


def test_the_reason_counts_comments_which_need_no_rating() -> None:
    commented = counted(new=20, good=4, bad=0, comments=16)
    reason = "20 new ratings (4 good and 0 bad ready, 16 with a comment)"
    assert decide(commented, TrainConfig(), NOON) == Decision(True, reason, due=True)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (counted(0, 0, 0), "no rating is ready: 0 of 16 comments"),
        (counted(32, 12, 20, untrainable="it is odd"), "this model can't learn: it is odd"),
        (counted(32, 12, 20, untrainable="it is odd", has_request=True), "can't learn: it is odd"),
        (counted(0, 0, 0, has_request=True, one_sided=True), "no rating is ready"),
        (counted(31, 12, 19), "waiting: 0 of 16 comments on answers that aren't good; or 1 more rating"),
        (counted(32, 7, 25), "0 of 16 comments on answers that aren't good; or 1 more good rating"),
        (counted(32, 29, 3), "; or 1 more bad rating"),
        (counted(5, 3, 2), "; or 27 more ratings, at least 5 good and 2 bad"),
        (counted(40, 40, 0), "0 of 16 comments on answers that aren't good; or 4 more bad ratings"),
        (counted(40, 0, 40), "; or 8 more good ratings"),
        (
            counted(2, 0, 0, comments=2),
            "waiting: 2 of 16 comments on answers that aren't good; or 30 more ratings",
        ),
        (
            counted(16, 0, 16, comments=15),
            "waiting: 15 of 16 comments on answers that aren't good; or 16 more ratings, at least 8 good",
        ),
        (counted(1, 1, 0, has_request=True), "ready are: 1 good, 0 bad, 0 comments"),
        (counted(32, 7, 3), "; or 1 more good rating and 1 more bad rating"),
        (counted(15, 0, 0, pairs=15), "waiting: 15 of 16 corrections or preferences; or ratings"),
        (counted(1, 0, 0, pairs=40), "waiting: 1 of 16 corrections or preferences"),
        (counted(40, 0, 40, pairs=40), "; or 8 more good ratings"),
        (
            counted(10, 0, 40, comments=40),
            "waiting: 10 of 16 comments on answers that aren't good; or 22 more ratings, at least 8 good",
        ),
        (replace(ENOUGH, active="run_7"), "run_7 is under way"),
        (replace(ENOUGH, failures=1, failed_at=NOW_S - 59), "the last run failed, next try in 1 s"),
        (replace(ENOUGH, failures=3, failed_at=NOW_S - 60), "the last 3 runs failed, next try in 180 s"),
        (replace(ENOUGH, busy_at=NOW_S), "waiting for a moment without requests"),
        (replace(ENOUGH, busy_at=NOW_S - 2.9), "waiting for a moment without requests"),
        (replace(ENOUGH, busy_at=NOW_S, due_since=NOW_S - 599), "waiting for a moment without requests"),
    ],
)
def test_what_stands_in_the_way(state: SchedulerState, reason: str) -> None:
    decision = decide(state, TrainConfig(), NOON)
    assert not decision.start
    assert reason in decision.reason


@pytest.mark.parametrize(
    "state",
    [
        counted(16, 0, 16, comments=16),
        counted(16, 0, 0, comments=16),
        counted(16, 0, 0, pairs=16),
        counted(16, 0, 0, comments=3, pairs=16),
        counted(16, 0, 0, comments=16, pairs=1),
        replace(ENOUGH, busy_at=NOW_S - 3),
        replace(ENOUGH, busy_at=NOW_S, due_since=NOW_S - 600),
        replace(ENOUGH, failures=1, failed_at=NOW_S - 60),
        replace(ENOUGH, failures=3, failed_at=NOW_S - 240),
        counted(32, 8, 4),
        counted(32, 100, 4),
        # The machine slept: in a back-off, in traffic, or under load.
        replace(ENOUGH, failures=9, failed_at=EIGHT_HOURS_AGO_S),
        replace(ENOUGH, busy_at=EIGHT_HOURS_AGO_S, due_since=EIGHT_HOURS_AGO_S),
        replace(ENOUGH, machine=BUSY, due_since=EIGHT_HOURS_AGO_S),
        # A clock that was set back makes nothing wait for ever.
        replace(ENOUGH, failures=1, failed_at=IN_A_YEAR_S),
        replace(ENOUGH, busy_at=IN_A_YEAR_S),
    ],
)
def test_what_no_longer_stands_in_the_way(state: SchedulerState) -> None:
    assert decide(state, TrainConfig(), NOON).start


def test_asking_skips_counts_traffic_window_and_back_off() -> None:
    some = counted(1, 1, 1, has_request=True, busy_at=NOW_S, failures=5, failed_at=NOW_S)
    for asked in (some, replace(some, ready=ReadyCounts(pairs=1))):
        for schedule in ("auto", "manual", "01:00-02:00"):
            assert decide(asked, TrainConfig(schedule=schedule), NOON) == Decision(True, "you asked for it")


@pytest.mark.parametrize(("good", "bad"), [(0, 3), (3, 0)])
def test_asking_does_not_skip_one_sidedness_unless_that_is_accepted(good: int, bad: int) -> None:
    asked = counted(3, good, bad, has_request=True)
    assert not decide(asked, TrainConfig(), NOON).start
    assert decide(replace(asked, one_sided=True), TrainConfig(), NOON).start


def test_a_run_that_is_asked_for_needs_few_comments_if_ratings_are_of_one_kind() -> None:
    asked = counted(3, 0, 1, comments=3, has_request=True)
    why = "or at least 4 comments on answers that aren't good; ready are: 0 good, 1 bad, 3 comments"
    assert decide(asked, TrainConfig(), NOON).reason.endswith(why)
    assert decide(replace(asked, ready=ReadyCounts(4, 0, 1, comments=4)), TrainConfig(), NOON).start


def test_due_is_what_only_waits_for_quiet() -> None:
    assert decide(replace(ENOUGH, busy_at=NOW_S), TrainConfig(), NOON).due
    assert not decide(counted(5, 3, 2), TrainConfig(), NOON).due
    assert not decide(replace(ENOUGH, failures=1, failed_at=NOW_S), TrainConfig(), NOON).due


@pytest.mark.parametrize(
    ("window", "clock", "inside"),
    [
        ("01:00-06:30", "01:00", True),
        ("01:00-06:30", "06:29:59", True),
        ("01:00-06:30", "06:30", False),
        ("01:00-06:30", "00:59", False),
        ("22:00-05:00", "23:00", True),
        ("22:00-05:00", "00:00", True),
        ("22:00-05:00", "04:59", True),
        ("22:00-05:00", "05:00", False),
        ("22:00-05:00", "12:00", False),
        ("00:00-00:00", "12:00", True),
    ],
)
def test_windows(window: str, clock: str, inside: bool) -> None:
    assert in_window(window, time.fromisoformat(clock)) is inside
    at = datetime.combine(NOON.date(), time.fromisoformat(clock), UTC)
    assert decide(ENOUGH, TrainConfig(schedule=window), at).start is inside


def test_back_off_doubles_up_to_a_bound() -> None:
    assert [back_off_s(n) for n in (0, 1, 2, 3)] == [0, 60, 120, 240]
    assert back_off_s(10_000) == MAX_BACK_OFF_S


# The machine

IN_AN_HOUR = ". It starts in 60 min at the latest"


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (UNPLUGGED, "mains power (train.on_battery: false)"),
        (BUSY, "other programs, which use 93% of the processor (train.max_load: 70%)" + IN_AN_HOUR),
        (FULL, "memory: a run takes about 2.5 GB, and 1.0 GB are free" + IN_AN_HOUR),
    ],
)
def test_a_machine_that_is_needed_otherwise(machine: Machine, reason: str) -> None:
    decision = decide(replace(NEEDING, machine=machine), TrainConfig(), NOON)
    assert not decision.start
    assert decision.reason.endswith(f"ready); waiting for {reason}. `burnish train` starts it now")


@pytest.mark.parametrize(
    ("machine", "settings"),
    [
        (UNPLUGGED, {"on_battery": True}),
        (BUSY, {"max_load": 0.95}),
        (replace(BUSY, load=None), {}),
        (replace(FULL, free_bytes=3 * GB), {}),
        (replace(FULL, free_bytes=None), {}),
        (replace(FULL, total_bytes=2 * GB), {}),  # it will never have that much, so the run itself says so
    ],
)
def test_a_machine_that_is_free_or_may_be_used(machine: Machine, settings: dict[str, float]) -> None:
    assert decide(replace(NEEDING, machine=machine), TrainConfig(**settings), NOON).start


def test_asking_skips_the_machine_with_a_warning() -> None:
    for machine in (UNPLUGGED, BUSY, FULL):
        assert decide(replace(NEEDING, machine=machine, has_request=True), TrainConfig(), NOON).start
    assert warnings(UNPLUGGED, None, TrainConfig()) == ["the machine runs on battery"]
    assert warnings(UNPLUGGED, None, TrainConfig(on_battery=True)) == []
    assert warnings(FULL, 2_500_000_000, TrainConfig()) == [
        "a run takes about 2.5 GB, and 1.0 GB are free: other programs may slow down, or the run may fail"
    ]


def starts_after(machine_at: Callable[[int], Machine], *, traffic: bool = False) -> int | None:
    """Return the minute in which a run starts on a machine that changes; None: not within a day."""
    due_since = None
    for minute in range(24 * 60):
        now = NOON + timedelta(minutes=minute)
        busy_at = now.timestamp() if traffic else None
        state = replace(NEEDING, machine=machine_at(minute), busy_at=busy_at, due_since=due_since)
        decision = decide(state, TrainConfig(), now)
        if decision.start:
            return minute
        due_since = (due_since or now.timestamp()) if decision.due else None
    return None


def test_constant_traffic_delays_a_run_by_ten_minutes_at_most() -> None:
    assert starts_after(lambda _: Machine(), traffic=True) == 10


def test_pressure_delays_a_run_by_an_hour_at_most_and_a_battery_for_ever() -> None:
    assert starts_after(lambda _: BUSY) == starts_after(lambda _: FULL) == 60
    assert starts_after(lambda minute: BUSY if minute % 2 else FULL, traffic=True) == 60
    assert starts_after(lambda minute: BUSY if minute < 20 else Machine(), traffic=True) == 20
    assert starts_after(lambda _: UNPLUGGED) is None
    # Plugged in after three hours, it is as patient as any time.
    assert starts_after(lambda minute: UNPLUGGED if minute < 180 else BUSY) == 240
    assert starts_after(lambda minute: UNPLUGGED if minute < 180 else Machine()) == 180


states = st.builds(
    counted,
    new=st.integers(0, 100),
    good=st.integers(0, 60),
    bad=st.integers(0, 60),
    active=st.sampled_from([None, "run_1"]),
    failures=st.integers(0, 5),
    failed_at=st.none() | st.floats(NOW_S - 1e5, NOW_S),
    busy_at=st.none() | st.floats(NOW_S - 100, NOW_S),
    due_since=st.none() | st.floats(NOW_S - 1000, NOW_S),
    has_request=st.booleans(),
    machine=st.builds(
        Machine,
        on_battery=st.booleans(),
        load=st.none() | st.floats(0, 1),
        free_bytes=st.none() | st.integers(0, 8 * GB),
        total_bytes=st.none() | st.integers(8 * GB, 16 * GB),
    ),
    needed_bytes=st.none() | st.integers(0, 20 * GB),
)


@given(state=states, schedule=st.sampled_from(["auto", "manual", "11:00-13:00", "23:00-01:00"]))
def test_never_on_one_sided_data_nor_beside_another_run(state: SchedulerState, schedule: str) -> None:
    decision = decide(state, TrainConfig(schedule=schedule), NOON)
    assert decision.reason
    if decision.start:
        assert state.ready.good
        assert state.ready.bad
        assert state.active is None
        assert state.has_request or (state.ready.new >= 32 and state.ready.good >= 8 and state.ready.bad >= 4)
        assert state.has_request or not state.machine.on_battery
    elif decision.due:
        patient = replace(state, due_since=NOW_S - PRESSURE_PATIENCE_S)
        assert decide(patient, TrainConfig(schedule=schedule), NOON).start
