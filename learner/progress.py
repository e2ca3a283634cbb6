"""How far a run is, and how much longer it takes, by the phases that it and earlier runs wrote down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import get_args

from burnish.training.errors import JobError
from burnish.training.job import JobDirectory
from burnish.training.phases import Mark, Phase, read

ORDER: tuple[str, ...] = get_args(Phase)
ENDED = ORDER[-1]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run, as the API shows it."""

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


Durations = dict[str, float]
"""How long each phase of a run took, in seconds."""


def durations(marks: Sequence[Mark]) -> Durations:
    """Return the durations of a run; empty unless it came to its end."""
    if not marks or marks[-1].phase != ENDED:
        return {}
    began = [next(stretch) for _, stretch in groupby(marks, key=_phase)]
    found: Durations = {}
    for mark, after in pairwise(began):  # a run of several stages comes back to a phase
        found[mark.phase] = found.get(mark.phase, 0.0) + max(0.0, after.at - mark.at)
    return found


def progress(marks: Sequence[Mark], now: float, earlier: Sequence[Durations]) -> Progress | None:
    """Return the state of a run by its marks so far; None before the first one."""
    stretches = [list(stretch) for phase, stretch in groupby(marks, key=_phase) if phase in ORDER[:-1]]
    if not stretches:
        return None
    current = stretches[-1]
    begin, last = current[0], current[-1]
    counters = [list(counted) for _, counted in groupby(current, key=lambda mark: mark.total)]
    rest = rest_s(counters[-1], now)
    if rest is None or len(counters) > 1:  # the counter is only of a part
        usual = _usual(last.phase, earlier)
        if usual is not None:
            due = usual - (now - begin.at)
            rest = due if rest is None else max(rest, due)
    eta_s = rest if rest is not None and rest >= 0 else None  # below 0: it takes longer than usual
    return Progress(last.phase, begin.at, last.done, last.total, eta_s, _whole(last.phase, rest, earlier))


def _whole(phase: str, rest: float | None, earlier: Sequence[Durations]) -> float | None:
    if rest is None or not earlier:
        return None
    later = ORDER[ORDER.index(phase) + 1 :]
    return max(0.0, rest) + sum(_usual(each, earlier) or 0.0 for each in later)


def _usual(phase: str, earlier: Sequence[Durations]) -> float | None:
    known = [each[phase] for each in earlier if phase in each]
    return median(known) if known else None


def _phase(mark: Mark) -> str:
    return mark.phase


def rest_s(marks: Sequence[Mark], now: float) -> float | None:
    """Return how long the rest takes, by the rate so far; None if nothing has been counted yet.

    A unit that takes longer than the others so far slows the rate.
    """
    first, last = marks[0], marks[-1]
    made = last.done - first.done
    if last.total is None or made <= 0:
        return None
    left, since = last.total - last.done, max(0.0, now - last.at)
    unit_s = (last.at - first.at) / made
    if left <= 0:
        return 0.0
    if since <= unit_s:
        return left * unit_s - since
    return (left - 1) * (last.at + since - first.at) / (made + 1)


def earlier_runs(job: JobDirectory) -> list[Durations]:
    """Return the durations of earlier runs to a verdict on the same base model, of this objective if there are any.

    Raises JobError.
    """
    alike: list[Durations] = []
    others: list[Durations] = []
    spec = job.spec()
    for path in job.path.parent.glob("run_*"):
        old = JobDirectory(path)
        found = durations(read(old.phases)) if path != job.path else {}
        with suppress(JobError):
            if "judging" in found and (its := old.spec()).base_digest == spec.base_digest:
                (alike if its.objective == spec.objective else others).append(found)
    return alike or others
