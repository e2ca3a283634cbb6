"""How far a run is, and how much longer it takes, by the phases that it and earlier runs wrote down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, get_args

from burnish.training.errors import JobError
from burnish.training.job import JobDirectory, JobSpec
from burnish.training.phases import Mark, Phase, read

ORDER: tuple[str, ...] = get_args(Phase)
LAST_PHASE = ORDER[-1]
STEPS = len(ORDER) - 2
"""The first phase is of runs on comments alone, and the last one is the end."""


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str
    started_at: float
    """When the phase began; seconds since the epoch."""
    done: int
    total: int | None
    """None if there is nothing to count."""
    eta_s: float | None
    """Until the phase ends, by its own rate, else by earlier runs or this one's pace; None: unknown."""
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
    "training": 836.0,
    "staging": 14.0,
    "sampling": 326.0,
    "facts": 142.0,
    "scoring": 226.0,
    "judging": 1.0,
    "swapping": 1.0,
}
"""Seconds, the means of two runs on 16 comments, small model, two busy cores. Only their proportions count. The phases
before them tell nothing: together they took 1.7 and .15 times as long as ``sampling``."""
PACED = ("training", "sampling")
"""Phases that tell how long the others take: they last long, and their counter is of all that they do."""

# The first run of the small model on two quiet cores (docs/measurements.md), and what a step takes for each token with
# which prompts begin (docs/decisions.md). A larger model takes longer in proportion.
SMALL_PARAMETERS, FIRST_RUN_S, PROMPT_TOKEN_S = 134.5e6, 300.0, 6e-3


def durations(marks: Sequence[Mark]) -> Durations:
    """Return the durations of a run; empty unless it came to its end."""
    if not marks or marks[-1].phase != LAST_PHASE:
        return {}
    began = [next(stretch) for _, stretch in groupby(marks, key=attrgetter("phase"))]
    phase_s: Durations = {}
    for mark, next_mark in pairwise(began):  # a run of several stages comes back to a phase
        phase_s[mark.phase] = phase_s.get(mark.phase, 0.0) + max(0.0, next_mark.at - mark.at)
    return phase_s


def progress(marks: Sequence[Mark], time_s: float, earlier: Sequence[Durations]) -> Progress | None:
    """Return the state of a run by its marks so far; None before the first one."""
    stretches = [
        list(stretch) for phase, stretch in groupby(marks, key=attrgetter("phase")) if phase in ORDER[:-1]
    ]
    if not stretches:
        return None
    current = stretches[-1]
    begin, last = current[0], current[-1]
    counters = [list(counted) for _, counted in groupby(current, key=attrgetter("total"))]
    remaining_s = rest_s(counters[-1], time_s)
    durations = earlier or _first_run(stretches, time_s, remaining_s)
    usual = _usual(last.phase, durations)
    if usual is not None and (remaining_s is None or len(counters) > 1):  # the counter is only of a part
        due = usual - (time_s - begin.at)
        remaining_s = due if remaining_s is None else max(remaining_s, due)
    with_comments = stretches[0][0].phase == ORDER[0]
    is_late = remaining_s is not None and remaining_s < 0  # it takes longer than usual
    eta_s = None if is_late else remaining_s
    return Progress(
        phase=last.phase,
        started_at=begin.at,
        done=last.done,
        total=last.total,
        eta_s=eta_s,
        run_eta_s=_whole(last.phase, remaining_s, durations),
        step=ORDER.index(last.phase) + with_comments,
        steps=STEPS + with_comments,
        guessed=bool(durations) and not earlier,
    )


def _first_run(
    stretches: Sequence[Sequence[Mark]], time_s: float, remaining_s: float | None
) -> list[Durations]:
    """Return how long the phases of a first run may take, by its pace; nothing until a phase has told it."""
    began = [(stretch[0].phase, stretch[0].at) for stretch in stretches]
    ends = [at for _, at in began[1:]]
    if remaining_s is not None:
        ends.append(time_s + max(0.0, remaining_s))
    paced = [(phase, end - at) for (phase, at), end in zip(began, ends, strict=False) if phase in PACED]
    if not paced:
        return []
    pace = sum(seconds for _, seconds in paced) / sum(USUAL[phase] for phase in {phase for phase, _ in paced})
    return [{phase: pace * seconds for phase, seconds in USUAL.items()}]


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


def earlier_runs(job: JobDirectory, spec: JobSpec | None = None) -> list[Durations]:
    """Return the durations of earlier runs to a verdict on the same base model, of this objective if there are any.

    ``spec``: of a job that isn't written yet. Raises JobError.
    """
    alike: list[Durations] = []
    different: list[Durations] = []
    spec = spec or job.spec()
    for path in job.path.parent.glob("run_*"):
        old = JobDirectory(path)
        phase_s = durations(read(old.phases)) if path != job.path else {}
        with suppress(JobError):
            if "judging" in phase_s and (its := old.spec()).base_digest == spec.base_digest:
                (alike if its.objective == spec.objective else different).append(phase_s)
    return alike or different


def estimate(jobs: Path, spec: JobSpec, replies: int, prompt_tokens: int) -> dict[str, Any]:
    """Return how long a run takes in seconds, if that is known, by what, and the tokens of the longest prompt."""
    seconds, by = None, None
    if earlier := earlier_runs(JobDirectory(jobs / spec.run_id), spec):
        seconds, by = median(sum(phase_s.values()) for phase_s in earlier), "earlier runs"
    elif spec.size:
        config = spec.hyperparameters
        steps = config.epochs * ceil(replies / config.batch_size)
        prompts_s = steps * min(prompt_tokens, config.max_tokens) * PROMPT_TOKEN_S
        seconds = spec.size.parameters / SMALL_PARAMETERS * (FIRST_RUN_S + prompts_s)
        by = "the model's size, for two CPU cores"
    return {"seconds": seconds, "by": by, "longest_prompt": prompt_tokens}
