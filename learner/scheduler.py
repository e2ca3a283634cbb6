"""Decides when to train, from counts, clock, traffic, the machine and earlier failures. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, time

from burnish.config.tables import TrainConfig
from burnish.learner.machine import UNKNOWN, Machine
from burnish.proxy.log import ReadyCounts
from burnish.training.presets import MIN_COMMENTS

# After a failure: a minute, two, four, … A broken set-up must neither spin nor wait for days.
BACK_OFF_S = 60.0
MAX_BACK_OFF_S = 6 * 3600.0
# Training starts after this time without a request …
QUIET_S = 3.0
# … but under constant traffic it waits no longer than this.
PATIENCE_S = 600.0
# Other programs and a lack of memory delay it longer: the trainer has a low priority, and most systems can swap.
PRESSURE_PATIENCE_S = 3600.0
START_ANYWAY = "`burnish train` starts it now"
PAIRS = ("correction or preference", "corrections or preferences")


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The facts for a decision. Times are seconds since the epoch."""

    ready: ReadyCounts
    """Ratings that the live version hasn't learnt."""
    active: str | None = None
    """The run that is under way."""
    failures: int = 0
    """Runs that failed in a row, the latest first."""
    failed_at: float | None = None
    """When the latest of them ended."""
    busy_at: float | None = None
    """When a request was last in flight; None = never."""
    due_since: float | None = None
    """Since when only traffic, other programs or a lack of memory have prevented a run."""
    machine: Machine = UNKNOWN
    needed_bytes: int | None = None
    """The memory that a run takes."""
    has_request: bool = False
    """The user asked for a run now."""
    one_sided: bool = False
    """The user accepts one-sided data."""
    by_ratings: bool = True
    """Whether the run that is asked for learns from ratings."""
    stopped: str | None = None
    """How far a run came that the end of burnish stopped, in words: it goes on."""
    paused: bool = False
    """The user wants no run that starts by itself."""
    untrainable: str | None = None
    """Why the model can't be trained, in words."""

    @property
    def paired(self) -> bool:
        """Whether there are corrections or preferences, but no good or bad ratings. They are enough to train on."""
        return bool(self.ready.pairs) and not self.ready.good and not self.ready.bad


@dataclass(frozen=True, slots=True)
class Decision:
    start: bool
    reason: str
    due: bool = False
    """Only traffic, other programs or a lack of memory prevent the run, if anything does."""


def decide(state: SchedulerState, train: TrainConfig, local_time: datetime) -> Decision:
    """Decide whether a run starts now. ``local_time`` has its zone."""
    if obstacle := _never(state, train):
        return Decision(False, obstacle)
    if state.has_request:
        one_sided = None if state.stopped else _one_sided(state)
        return Decision(False, one_sided) if one_sided else Decision(True, "you asked for it")
    goes_on = f"the run that {state.stopped} goes on"
    if obstacle := _not_yet(state, train, local_time):
        return Decision(False, f"{obstacle}. Then {goes_on}" if state.stopped else obstacle)
    reason = goes_on if state.stopped else _ready(state)
    if state.machine.on_battery and not train.on_battery:
        return Decision(False, f"{reason}; waiting for mains power (train.on_battery: false). {START_ANYWAY}")
    if obstacle := _pressure(state, train, local_time.timestamp()):
        return Decision(False, f"{reason}; {obstacle}", due=True)
    return Decision(True, reason, due=True)


def _ready(state: SchedulerState) -> str:
    ready = state.ready
    if state.paired:
        return f"{_counted(ready.comments, 'comment')} and {_counted(ready.pairs, *PAIRS)} ready"
    commented = f", {ready.comments} with a comment" if ready.comments else ""
    return f"{_counted(ready.new, 'new rating')} ({ready.good} good and {ready.bad} bad ready{commented})"


def warnings(machine: Machine, needed_bytes: int | None, train: TrainConfig) -> list[str]:
    """Return what a run that the user asks for ignores."""
    lines = []
    if machine.on_battery and not train.on_battery:
        lines.append("the machine runs on battery")
    if lack := _lack_of_memory(machine, needed_bytes):
        lines.append(f"{lack}: other programs may slow down, or the run may fail")
    return lines


def _pressure(state: SchedulerState, train: TrainConfig, moment: float) -> str | None:
    """Return what a run waits for, but not for ever."""
    # A clock that was set back must not make it wait longer.
    waited = max(0.0, moment - state.due_since) if state.due_since is not None else 0.0
    if waited < PRESSURE_PATIENCE_S:
        latest = (
            f"It starts in {math.ceil((PRESSURE_PATIENCE_S - waited) / 60)} min at the latest. {START_ANYWAY}"
        )
        if lack := _lack_of_memory(state.machine, state.needed_bytes):
            return f"waiting for memory: {lack}. {latest}"
        load = None if state.stopped else state.machine.load  # it has waited for that once
        if load is not None and load > train.max_load:
            return (
                f"waiting for other programs, which use {load:.0%} of the processor "
                f"(train.max_load: {train.max_load:.0%}). {latest}"
            )
    quiet_for = QUIET_S if state.busy_at is None else moment - state.busy_at
    if 0 <= quiet_for < QUIET_S and waited < PATIENCE_S:
        return "waiting for a moment without requests"
    return None


def _lack_of_memory(machine: Machine, needed_bytes: int | None) -> str | None:
    """Return both figures if a run takes more memory than is free; not if waiting wouldn't help, because no machine
    of this size has that much.
    """
    if needed_bytes is None or machine.free_bytes is None or machine.total_bytes is None:
        return None
    if not machine.free_bytes < needed_bytes <= machine.total_bytes:
        return None
    return f"a run takes about {needed_bytes / 1e9:.1f} GB, and {machine.free_bytes / 1e9:.1f} GB are free"


def _never(state: SchedulerState, train: TrainConfig) -> str | None:
    """Return why not even the user can start a run."""
    ready = state.ready
    if not train.enabled:
        return "training is switched off (--no-train, or enabled = false under [train])"
    if state.untrainable:
        return f"this model can't learn: {state.untrainable}"
    if state.active:
        return f"{state.active} is under way. To watch it: burnish watch"
    if state.paired or state.stopped or not state.by_ratings:
        return None  # of a stopped run, its plan says what is missing
    if not ready.good and not ready.bad and not ready.comments:
        return (
            f"no rating is ready: 0 of {train.min_comments} comments; say what is wrong with answers, "
            "or rate some good and some bad"
        )
    return None


def _one_sided(state: SchedulerState) -> str | None:
    """Return what ratings of one kind lack; a run that the user asks for starts with fewer comments than others."""
    ready = state.ready
    if state.paired or not state.by_ratings or state.one_sided or (ready.good and ready.bad):
        return None
    if ready.comments >= MIN_COMMENTS:
        return None
    least = f"training needs good and bad ratings, or at least {MIN_COMMENTS} comments on answers that aren't good"
    there = f"{ready.good} good, {ready.bad} bad, {_counted(ready.comments, 'comment')}"
    return f"{least}; ready are: {there}"


def _not_yet(state: SchedulerState, train: TrainConfig, local_time: datetime) -> str | None:
    """Return why a run doesn't start by itself."""
    if state.paused:
        return "training is paused: `burnish resume` goes on, `burnish train` starts one run"
    if train.schedule == "manual":
        return "the schedule is manual: start a run with `burnish train`"
    if not state.stopped and (lack := _too_few(state, train)):
        return lack
    if train.schedule != "auto" and not in_window(train.schedule, local_time.time()):
        return f"waiting for the hours in which training is allowed, {train.schedule}"
    pause_s = back_off_s(state.failures)
    wait = 0.0 if state.failed_at is None else state.failed_at + pause_s - local_time.timestamp()
    if not state.stopped and 0 < wait <= pause_s:  # longer: the clock was set back
        failed = "run" if state.failures == 1 else f"{state.failures} runs"
        return f"the last {failed} failed, next try in {wait:.0f} s"
    return None


def _too_few(state: SchedulerState, train: TrainConfig) -> str | None:
    """Return which feedback a run still waits for."""
    ready = state.ready
    if state.paired:
        worded = min(ready.new, max(ready.comments, ready.pairs))
        if worded < train.min_comments:
            return f"waiting: {worded} of {train.min_comments} corrections or preferences; or ratings"
    elif ready.new_comments < train.min_comments and (missing := _missing(state, train)):
        comments = f"{ready.new_comments} of {train.min_comments} comments on answers that aren't good"
        return f"waiting: {comments}; or {missing}"
    return None


def _missing(state: SchedulerState, train: TrainConfig) -> str:
    """Return which ratings are missing, or ""."""
    ready = state.ready
    good, bad = max(0, train.min_good - ready.good), max(0, train.min_bad - ready.bad)
    kinds = [(lack, kind) for lack, kind in ((good, "good"), (bad, "bad")) if lack]
    if train.min_ratings - ready.new > good + bad:
        least = " and ".join(f"{lack} {kind}" for lack, kind in kinds)
        return _more(train.min_ratings - ready.new, "rating") + (f", at least {least}" if least else "")
    return " and ".join(_more(lack, f"{kind} rating") for lack, kind in kinds)


def _more(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count} more {singular if count == 1 else plural or singular + 's'}"


def _counted(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def back_off_s(failures: int) -> float:
    """Return the pause after failures in a row. It doubles up to a limit."""
    if failures < 1:
        return 0.0
    return min(BACK_OFF_S * 2.0 ** min(failures - 1, 32), MAX_BACK_OFF_S)


def in_window(window: str, clock: time) -> bool:
    """``window``: "HH:MM-HH:MM", without its end. It may pass midnight; two equal times mean all day."""
    begin, end = (time.fromisoformat(part) for part in window.split("-"))
    if begin < end:
        return begin <= clock < end
    return clock >= begin or clock < end
