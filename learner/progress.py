"""How far a run is, and how much longer it takes, by the phases that it and earlier runs wrote down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import median
from typing import get_args

from burnish.training.errors import JobError
from burnish.training.job import JobDirectory
from burnish.training.phases import Mark, Phase, read

ORDER: tuple[str, ...] = get_args(Phase)
LAST_PHASE = ORDER[-1]
STEPS = len(ORDER) - 1
"""The last phase is the end."""


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str
    started_at: float
    """When the phase began; seconds since the epoch."""
    done: int
    total: int | None
    """None if there is nothing to count."""
    eta_s: float | None
    """Until the phase ends, by its own rate, else by earlier runs; None: unknown."""
    run_eta_s: float | None
    """Until the run ends, with the other phases as long as in earlier runs; None: unknown."""
    step: int
    """The number of the phase, from 1 to ``steps``."""
    steps: int = STEPS
    guessed: bool = False
    """There is no earlier run: ``run_eta_s`` is by this one's pace, and by how runs usually divide."""


Durations = dict[str, float]
"""How long each phase of a run took, in seconds."""

USUAL: Durations = {
    "loading": 135.0,
    "preparing": 284.0,
    "training": 688.0,
    "staging": 7.0,
    "sampling": 246.0,
    "facts": 55.0,
    "scoring": 185.0,
    "judging": 1.0,
    "swapping": 1.0,
}
"""Seconds of one run on 16 comments, small model, two busy cores. Only their proportions count, and are rough."""
USUAL_PREPARING_S = 10.0
"""Of a run without comments, which asks the model for nothing then."""


def durations(marks: Sequence[Mark]) -> Durations:
    """Return the durations of a run; empty unless it came to its end."""
    if not marks or marks[-1].phase != LAST_PHASE:
        return {}
    began = [next(stretch) for _, stretch in groupby(marks, key=attrgetter("phase"))]
    phase_s: Durations = {}
    for mark, next_mark in pairwise(began):  # a run of several stages comes back to a phase
        phase_s[mark.phase] = phase_s.get(mark.phase, 0.0) + max(0.0, next_mark.at - mark.at)
    return phase_s


def progress(
    marks: Sequence[Mark], time_s: float, earlier: Sequence[Durations], *, comments: bool = False
) -> Progress | None:
    """Return the state of a run by its marks so far; None before the first one. ``comments``: it learns from some."""
    stretches = [
        list(stretch) for phase, stretch in groupby(marks, key=attrgetter("phase")) if phase in ORDER[:-1]
    ]
    if not stretches:
        return None
    current = stretches[-1]
    begin, last = current[0], current[-1]
    counters = [list(counted) for _, counted in groupby(current, key=attrgetter("total"))]
    remaining_s = rest_s(counters[-1], time_s)
    if remaining_s is None or len(counters) > 1:  # the counter is only of a part
        usual = _usual(last.phase, earlier)
        if usual is not None:
            due = usual - (time_s - begin.at)
            remaining_s = due if remaining_s is None else max(remaining_s, due)
    is_late = remaining_s is not None and remaining_s < 0  # it takes longer than usual
    eta_s = None if is_late else remaining_s
    known = earlier
    if not known and last.phase != ORDER[0]:
        remaining_s = remaining_s or 0.0  # what isn't counted may end at once
        known = [_first_run(marks, time_s + max(0.0, remaining_s), comments=comments)]
    return Progress(
        phase=last.phase,
        started_at=begin.at,
        done=last.done,
        total=last.total,
        eta_s=eta_s,
        run_eta_s=_whole(last.phase, remaining_s, known),
        step=ORDER.index(last.phase) + 1,
        guessed=bool(known) and not earlier,
    )


def _first_run(marks: Sequence[Mark], phase_ends_at: float, *, comments: bool) -> Durations:
    """Return how long the phases of a first run may take, by its pace so far."""
    usual = USUAL if comments else USUAL | {"preparing": USUAL_PREPARING_S}
    pace = (phase_ends_at - marks[0].at) / sum(
        usual.get(phase, 0.0) for phase in {mark.phase for mark in marks}
    )
    return {phase: pace * seconds for phase, seconds in usual.items()}


def _whole(phase: str, remaining_s: float | None, earlier: Sequence[Durations]) -> float | None:
    if remaining_s is None or not earlier:
        return None
    later = ORDER[ORDER.index(phase) + 1 :]
    return max(0.0, remaining_s) + sum(_usual(later_phase, earlier) or 0.0 for later_phase in later)


def _usual(phase: str, earlier: Sequence[Durations]) -> float | None:
    seconds = [run[phase] for run in earlier if phase in run]
    return median(seconds) if seconds else None


def rest_s(marks: Sequence[Mark], time_s: float) -> float | None:
    """Return how long the rest takes, by the rate so far; None if nothing has been counted yet.

    A unit that takes longer than the others so far slows the rate.
    """
    first, last = marks[0], marks[-1]
    count = last.done - first.done
    if last.total is None or count <= 0:
        return None
    remaining, since = last.total - last.done, max(0.0, time_s - last.at)
    unit_s = (last.at - first.at) / count
    if remaining <= 0:
        return 0.0
    if since <= unit_s:
        return remaining * unit_s - since
    return (remaining - 1) * (last.at + since - first.at) / (count + 1)


def earlier_runs(job: JobDirectory) -> list[Durations]:
    """Return the durations of earlier runs to a verdict on the same base model, of this objective if there are any.

    Raises JobError.
    """
    alike: list[Durations] = []
    different: list[Durations] = []
    spec = job.spec()
    for path in job.path.parent.glob("run_*"):
        old = JobDirectory(path)
        phase_s = durations(read(old.phases)) if path != job.path else {}
        with suppress(JobError):
            if "judging" in phase_s and (its := old.spec()).base_digest == spec.base_digest:
                (alike if its.objective == spec.objective else different).append(phase_s)
    return alike or different
