"""The curve of a run: how loss, distance and margin moved step by step, thinned to what a chart can show. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from statistics import fmean
from typing import Any

from burnish.training.job import JobDirectory

# A chart is some 600 pixels wide; more points than that can't be seen, and each update sends all of them.
MAX_POINTS = 200

Curve = dict[str, list[float | None]]
"""``step``, ``FIGURES`` and ``margin``, all of one length. A point is the mean of its steps."""
FIGURES = ("loss", "kl_per_token", "ratio_mean", "clip_share", "grad_norm", "reward")
"""As in ``metrics.jsonl``. Only steps of a policy gradient have a reward."""


def curve_of(job: JobDirectory) -> Curve | None:
    """Return the curve that a job has written so far; None before its first step, or if the job was deleted."""
    lines = []
    with suppress(OSError), job.metrics.open("rb") as file:
        for line in file:
            with suppress(ValueError):  # the last line may be incomplete
                lines.append(json.loads(line))
    return curve([line for line in lines if isinstance(line, dict) and "step" in line])


def curve(steps: Sequence[Mapping[str, Any]]) -> Curve | None:
    if not steps:
        return None
    size = -(-len(steps) // MAX_POINTS)
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    return {
        "step": [float(group[-1]["step"]) for group in groups],
        **{name: [_mean([step.get(name) for step in group]) for group in groups] for name in FIGURES},
        "margin": [_mean([_margin(step) for step in group]) for group in groups],
    }


def _margin(step: Mapping[str, Any]) -> float | None:
    """Return by how much good replies became likelier than bad ones, in nats per token."""
    good, bad = step.get("good_shift"), step.get("bad_shift")
    return None if good is None or bad is None else good - bad


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [number for number in values if number is not None and isfinite(number)]
    return fmean(numbers) if numbers else None
