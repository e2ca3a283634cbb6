"""The tables, computed from the files of answers alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from bench.conventions.answers import Answer
from bench.conventions.catalogue import CONVENTIONS, Convention
from bench.conventions.code import first_block
from bench.conventions.questions import Question
from bench.conventions.sandbox import runs
from bench.conventions.sweep import Sweep
from burnish.gate.check import GateLimits
from burnish.gate.intervals import Interval, mean_gain

COUNTS_FROM = 0.3
"""Gain of the sentence from which a candidate counts."""
ENOUGH = 48
"""With fewer answers that verdict is open, and has a question mark."""
SWEEP_HEADER = [
    "convention",
    "n",
    "base",
    "sentence",
    "gain",
    "95 %",
    "runs, base",
    "runs, sentence",
    "counts",
]
NOTHING = "–"


class Pair(NamedTuple):
    """The base's and the sentence's answer to a question."""

    question: Question
    base: Answer
    sentence: Answer


def works(question: Question, text: str) -> bool:
    """Return whether the answer's code does what it should; without code it doesn't."""
    block = first_block(text)
    return block is not None and runs(block.code, question.function, question.assertions)


def sweep_rows(sweep: Sweep) -> list[list[str]]:
    """Return a row for each candidate of which anything was asked, those that count first, by their gain."""
    rows = []
    for convention in CONVENTIONS:
        if pairs := answered(sweep, convention):
            gain = gain_of(convention, pairs)
            counts = gain.estimate >= COUNTS_FROM
            rows.append(
                ((not counts, -gain.estimate), [convention.name, *_figures(convention, pairs, gain, counts)])
            )
    return [row for _, row in sorted(rows, key=lambda ranked: ranked[0])]


def answered(sweep: Sweep, convention: Convention) -> list[Pair]:
    """Return the questions to which both columns have an answer."""
    pairs = []
    for place in range(sweep.count):
        question, *requests = sweep.pair(convention, place)
        base, sentence = map(sweep.answers.get, requests)
        if base and sentence:
            pairs.append(Pair(question, base, sentence))
    return pairs


def gain_of(convention: Convention, pairs: Sequence[Pair]) -> Interval:
    """Return the gain of the sentence; its interval is over questions, whose answers are no independent draws."""
    gains: dict[str, list[float]] = {}
    for question, base, sentence in pairs:
        gain = float(convention.check(sentence.text)) - float(convention.check(base.text))
        gains.setdefault(question.key, []).append(gain)
    return paired(list(map(fmean, gains.values())))


def paired(gains: Sequence[float]) -> Interval:
    """Return the mean of paired gains of shares with its interval, which is all that can be for a single one."""
    if len(gains) < 2:
        return Interval(-1.0, fmean(gains), 1.0)
    interval = mean_gain(gains, GateLimits())
    return Interval(max(-1.0, interval.lower), interval.estimate, min(1.0, interval.upper))


def _figures(convention: Convention, pairs: Sequence[Pair], gain: Interval, counts: bool) -> list[str]:
    return [
        str(len(pairs)),
        share(convention.check(pair.base.text) for pair in pairs),
        share(convention.check(pair.sentence.text) for pair in pairs),
        f"{gain.estimate:+.2f}",
        f"{gain.lower:+.2f} to {gain.upper:+.2f}",
        share(works(pair.question, pair.base.text) for pair in pairs),
        share(works(pair.question, pair.sentence.text) for pair in pairs),
        ("yes" if counts else "no") + ("" if len(pairs) >= ENOUGH else "?"),
    ]


def share(marks: Iterable[bool]) -> str:
    shares = list(marks)
    return f"{fmean(shares):.2f}" if shares else NOTHING
