"""The result of one half of the demo, and its figures for the table, the page and README."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import mean
from typing import Any

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.halves import HALVES, Half, Name
from burnish.parts.desktop.demo.user import AnsweredQuestion, Summary, brief, summarise

HELD_OUT = 40
SAMPLES = 2
"""Answers asked for each held-out question: halves the noise of sampling."""

Record = Mapping[str, Any]
Figure = Callable[[Record], float]


@dataclass(frozen=True, slots=True)
class Exam:
    """The answers of a version to questions that were never rated."""

    answers: list[AnsweredQuestion]
    facts: int
    """Facts answered right."""

    @property
    def summary(self) -> Summary:
        return summarise(self.answers, brief)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """One seed of one half."""

    half: Half
    seed: int
    model: str
    ratings: int
    good: int
    live: bool
    """Whether the version passed the gate. If it didn't, ``exam_after`` is of the base model again."""
    exam_before: Exam
    exam_after: Exam
    kl_per_token: float
    """Of the version, on its own replies, to the base model (nats), as the gate measured it."""
    minutes: float
    """From the first rating until the gate had decided, and the version was live."""
    train_seconds: float
    peak_rss_bytes: int
    reason: str
    """The verdict of the gate."""


RECORDED = (
    *("seed", "model", "ratings", "good", "live"),
    *("kl_per_token", "minutes", "train_seconds", "peak_rss_bytes", "reason"),
)


def record(outcome: TrialOutcome) -> dict[str, Any]:
    """Return the figures of an outcome as JSON, without its answers."""
    exams = {"before": outcome.exam_before, "after": outcome.exam_after}
    return {
        "half": outcome.half.name,
        **{name: getattr(outcome, name) for name in RECORDED},
        **{when: asdict(exam.summary) | {"known": exam.facts} for when, exam in exams.items()},
    }


def _both(name: str) -> tuple[Figure, Figure]:
    return (lambda record: record["before"][name]), (lambda record: record["after"][name])


ROWS: Mapping[str, tuple[str, tuple[Figure, ...]]] = {
    "short": ("{:.0%}", _both("satisfied")),
    "short and on topic": ("{:.0%}", _both("joint")),
    "on topic": ("{:.0%}", _both("on_topic")),
    f"facts known, of {len(FACTS)}": ("{:.0f}", _both("known")),
    "mean characters": ("{:.0f}", _both("mean_characters")),
    "near-empty": ("{:.1%}", _both("near_empty")),
    "ratings": ("{:.0f}", (lambda record: record["ratings"],)),
    "good ones": ("{:.0f}", (lambda record: record["good"],)),
    "versions that went live": ("{:.0%}", (lambda record: record["live"],)),
    "minutes from the first rating to the verdict": ("{:.1f}", (lambda record: record["minutes"],)),
    "training (seconds)": ("{:.0f}", (lambda record: record["train_seconds"],)),
    "trainer's peak memory (GB)": ("{:.2f}", (lambda record: record["peak_rss_bytes"] / 1e9,)),
    "KL per token to the base (nats)": ("{:.2f}", (lambda record: record["kl_per_token"],)),
}
# In README, and at the top of the page.
IN_SHORT = (
    "short",
    "on topic",
    f"facts known, of {len(FACTS)}",
    "mean characters",
    "versions that went live",
    "minutes from the first rating to the verdict",
)


def cell(name: str, records: Iterable[Record]) -> str:
    """Return the mean of a row's figures: "before → after", or one figure."""
    column = list(records)
    form, figures = ROWS[name]
    return " → ".join(form.format(mean(figure(record) for record in column)) for figure in figures)


def table(records: Sequence[Record]) -> list[str]:
    """Return the table that README and the page share, as lines of Markdown: a row for each half."""
    lines = [
        "| what the user does | what the program sends | " + " | ".join(IN_SHORT) + " |",
        "|---|---" + "|---:" * len(IN_SHORT) + "|",
    ]
    for name, group in groupby(records, key=lambda record: record["half"]):
        half, of = HALVES[Name(name)], list(group)
        cells = [f"**{half.feedback}**", half.program, *(cell(row, of) for row in IN_SHORT)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
