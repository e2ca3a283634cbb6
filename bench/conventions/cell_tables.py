"""The tables of the cells, computed from their files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from bench.conventions.answers import Answer
from bench.conventions.catalogue import BY_NAME
from bench.conventions.cells import COLUMNS, CONVENTION_NAMES, TRAINED, UNTRAINED, Cell
from bench.conventions.scope import OUT_OF_SCOPE, ROWS, ExamQuestion, Row
from bench.conventions.tables import NOTHING, paired, share, works
from burnish.gate.intervals import Interval

SCOPE_HEADER = ["column", *ROWS, "out of scope", "runs", "n in scope"]
COST_HEADER = [
    "column",
    "prompt tokens",
    "reply tokens",
    "first token, cold, s",
    "cached, s",
    "end, cold, s",
    "cached, s",
]
LASTING_HEADER = ["order", "convention", "when learnt", "after one more", "after two more"]
GAIN_HEADER = ["convention", "cells", "base", "sentence", "burnish", "of the sentence's gain"]
CHANGE_HEADER = ["all cells", "n", "base", "burnish", "change", "95 %"]
DOSE_HEADER = ["convention", "comments", "in scope", "gain", "95 %", "n"]
TOGETHER_HEADER = ["order", *(column for column in COLUMNS if column != "instructions"), "n"]

Rows = list[list[str]]


def scope_rows(cell: Cell) -> Rows:
    """Return a row for each column that was asked about the cell's convention."""
    return [[column, *_scope(cell, column)] for column in COLUMNS if cell.answers(column)]


def _scope(cell: Cell, column: str) -> list[str]:
    marks = {row: _marks(cell, column, row) for row in ROWS}
    inside = [(part, answer) for part, answer in _answered(cell, column) if part.row == "in scope"]
    return [
        *(share(marks[row]) for row in ROWS),
        share(mark for row in OUT_OF_SCOPE for mark in marks[row]),
        share(works(part.question, answer.text) for part, answer in inside),
        str(len(inside)),
    ]


def _answered(cell: Cell, column: str, name: str | None = None) -> list[tuple[ExamQuestion, Answer]]:
    """Return the exam's questions about a convention, by default the cell's, and their answers."""
    answers = cell.answers(column)
    return [
        (part, answers[part.key])
        for part in cell.questions(column)
        if part.convention.name == (name or cell.name) and part.key in answers
    ]


def _marks(cell: Cell, column: str, row: Row, name: str | None = None) -> list[bool]:
    return [part.passed(answer.text) for part, answer in _answered(cell, column, name) if part.row == row]


def cost_rows(cell: Cell) -> Rows:
    """Return what a column costs, by the questions that are asked one after the other."""
    return [[column, *_cost(cell.answers(column))] for column in COLUMNS if cell.answers(column)]


def _cost(answers: Mapping[str, Answer]) -> list[str]:
    def mean(figure: Callable[[Answer], float | None], name: str = "", digits: int = 1) -> str:
        timed = [answer for key, answer in answers.items() if key.startswith(f"timing/{name}")]
        figures = [number for answer in timed if (number := figure(answer)) is not None]
        return f"{fmean(figures):.{digits}f}" if figures else NOTHING

    return [
        mean(lambda answer: answer.prompt_tokens, digits=0),
        mean(lambda answer: answer.completion_tokens, digits=0),
        *(mean(lambda answer: answer.first_s, name) for name in ("cold", "cached")),
        *(mean(lambda answer: answer.whole_s, name) for name in ("cold", "cached")),
    ]


def lasting_rows(cells: Sequence[Cell]) -> Rows:
    """Return how often a convention is kept when it is learnt, and after others were taught."""
    rows = []
    for order in sorted({cell.order for cell in cells}):
        course = sorted((cell for cell in cells if cell.order == order), key=lambda cell: len(cell.sequence))
        for place, cell in enumerate(course):
            shares = [share(_marks(later, TRAINED[0], "in scope", cell.name)) for later in course[place:]]
            rows.append([str(order), cell.name, *shares, *[NOTHING] * (len(CONVENTION_NAMES) - len(shares))])
    return rows


def gain_rows(cells: Sequence[Cell]) -> Rows:
    """Return what burnish gains in scope, as a part of the sentence's gain, over the cells of each convention."""
    rows = []
    for name in CONVENTION_NAMES:
        own = [cell for cell in cells if cell.name == name and _marks(cell, TRAINED[0], "in scope")]
        if not own:
            continue
        base, sentence = (_kept(own[0], column) for column in UNTRAINED[:2])
        taught = {
            key: fmean(_kept(cell, TRAINED[0])[key] for cell in own) for key in _kept(own[0], TRAINED[0])
        }
        keys = sorted(base.keys() & sentence.keys() & taught.keys())
        gain = paired([taught[key] - base[key] for key in keys])
        whole = fmean(sentence[key] - base[key] for key in keys)
        part = (
            f"{gain.estimate / whole:.2f} ({gain.lower / whole:.2f} to {gain.upper / whole:.2f})"
            if whole > 0
            else NOTHING
        )
        means = [f"{fmean(column[key] for key in keys):.2f}" for column in (base, sentence, taught)]
        rows.append([name, str(len(own)), *means, part])
    return rows


class Dosage(NamedTuple):
    """The share in scope after a number of comments."""

    name: str
    comments: int
    level: float
    gain: Interval
    """Over the base, by pairs of answers."""
    pairs: int


def dosages(cells: Sequence[Cell]) -> list[Dosage]:
    """Return what each of some cells gains that begin with the base model."""
    results = []
    for cell in sorted(cells, key=lambda cell: (cell.name, cell.size.comments)):
        base, taught = (_kept(cell, column) for column in (UNTRAINED[0], TRAINED[0]))
        if keys := sorted(base.keys() & taught.keys()):
            gain = paired([taught[key] - base[key] for key in keys])
            level = fmean(taught[key] for key in keys)
            results.append(Dosage(cell.name, cell.size.comments, level, gain, len(keys)))
    return results


def dose_rows(results: Sequence[Dosage]) -> Rows:
    return [
        [
            name,
            str(comments),
            f"{level:.2f}",
            f"{gain.estimate:+.2f}",
            f"{gain.lower:+.2f} to {gain.upper:+.2f}",
            str(pairs),
        ]
        for name, comments, level, gain, pairs in results
    ]


def level(cell: Cell, column: str) -> float | None:
    """Return how often a column keeps the cell's convention in scope; None: nothing was asked."""
    kept = _kept(cell, column)
    return fmean(kept.values()) if kept else None


def change_rows(cells: Sequence[Cell]) -> Rows:
    """Return what burnish changes out of scope and in the code that runs, over all cells, by pairs of answers."""
    columns = [(dict(_answered(cell, UNTRAINED[0])), dict(_answered(cell, TRAINED[0]))) for cell in cells]
    pairs = [(part, base[part], taught[part]) for base, taught in columns for part in base if part in taught]
    marks = {
        "out of scope": [
            (part.passed(base.text), part.passed(taught.text))
            for part, base, taught in pairs
            if part.row in OUT_OF_SCOPE
        ],
        "runs": [
            (works(part.question, base.text), works(part.question, taught.text))
            for part, base, taught in pairs
            if part.row == "in scope"
        ],
    }
    rows = []
    for name, both in marks.items():
        if both:
            change = paired([float(taught) - float(base) for base, taught in both])
            interval = f"{change.lower:+.2f} to {change.upper:+.2f}"
            shares = (share(base for base, _ in both), share(taught for _, taught in both))
            rows.append([name, str(len(both)), *shares, f"{change.estimate:+.2f}", interval])
    return rows


def _kept(cell: Cell, column: str) -> dict[str, float]:
    """Return by question in scope whether the convention is kept."""
    return {
        part.key: float(part.passed(answer.text))
        for part, answer in _answered(cell, column)
        if part.row == "in scope"
    }


def together_rows(cells: Sequence[Cell]) -> Rows:
    """Return how often all three conventions are kept at once, in the last cell of each order."""
    rows = []
    for cell in cells:
        if questions := cell.together():
            keys = [f"together/{question.key}" for question in questions]
            marks = {
                column: [
                    all(BY_NAME[name].check(answers[key].text) for name in CONVENTION_NAMES)
                    for key in keys
                    if key in answers
                ]
                for column in COLUMNS
                if column != "instructions"
                for answers in [cell.answers(column)]
            }
            rows.append([str(cell.order), *map(share, marks.values()), str(len(keys))])
    return rows
