"""How much does the best of N please, when the preference model chooses, and where does it turn?

``python -m bench.rewards.best_of POOL [--seeds N]``: for each wish of ``bench.rewards.wishes`` the model learns from
thumbs on half of the questions, and chooses among the replies to the others. Prints the share of replies that please,
the share that could (a perfect choice), and how often the chosen reply pleases and the first doesn't, and the reverse.
Larger N choose among replies to any question, so only their trend counts. Exits 1 if the best of four from 64 thumbs
pleases less than .15 oftener than one reply, or if a score is slow.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from bench.rewards import pool
from bench.rewards.pool import Reply
from bench.rewards.preference_model import halves, learnable, rated
from bench.rewards.wishes import WISHES, Rule
from burnish.gate.rewards import PlainReply, PreferenceModel, fit_preference_model

THUMBS = (32, 64)
OWN = (1, 2, 4, 8)
"""Choices among replies to the question."""
ANY = (16, 32, 64, 128)
"""Choices among replies to any question."""
GAIN_OF_FOUR = 0.15
MOST_MS = 20.0
WRONG = (0.0, 0.2)
"""Share of wrong thumbs."""


class Chosen(NamedTuple):
    """Shares of questions."""

    pleases: float
    could: float
    """One of the replies at hand pleases."""
    won: float
    """The chosen reply pleases, and the first one doesn't."""
    lost: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pool", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    sys.exit(not holds(given.pool, given.seeds))


def holds(path: Path, seeds: int, out: Path | None = None) -> bool:
    """Measure and print; return whether both limits are kept. ``out``: JSON of what pleases, by thumbs and N."""
    questions = [own for own in pool.read(path).values() if len(own) >= max(OWN)]
    print(f"{len(questions)} questions with {max(OWN)} replies each, {seeds} seeds, {len(WISHES)} wishes\n")
    found = {(count, wrong): table(questions, count, wrong, seeds) for count in THUMBS for wrong in WRONG}
    if out:
        rows = [[*key, size, *each] for key, sizes in found.items() for size, each in sizes.items()]
        out.write_text(json.dumps(rows))
    took = milliseconds(questions)
    print(f"one score: {took:.2f} ms (limit {MOST_MS:.0f})")
    pleases = {size: each.pleases for size, each in found[64, 0.0].items()}
    return pleases[4] - pleases[1] >= GAIN_OF_FOUR and took <= MOST_MS


def table(questions: Sequence[Sequence[Reply]], count: int, wrong: float, seeds: int) -> dict[int, Chosen]:
    """Print a row for each N; returns the means over wishes and seeds."""
    rows = [
        row
        for wish, rule in WISHES.items()
        for seed in range(seeds)
        if (row := chosen(questions, rule, count, wrong, random.Random(f"{wish} {seed}")))
    ]
    print(f"{count} thumbs, {wrong:.0%} of them wrong\n")
    print("| N | pleases | could please | won | lost |\n|---|---|---|---|---|")
    means = {}
    for size in (*OWN, *ANY):
        columns = list(zip(*(row[size] for row in rows), strict=True))
        means[size] = found = Chosen(*map(fmean, columns))
        error = 1.96 * stdev(columns[0]) / len(rows) ** 0.5
        shown = " | ".join(f"{each:.2f}" for each in found[1:])
        print(f"| {size} | {found.pleases:.2f} ± {error:.2f} | {shown} |")
    print()
    return means


def chosen(
    questions: Sequence[Sequence[Reply]], rule: Rule, count: int, wrong: float, dice: random.Random
) -> Mapping[int, Chosen] | None:
    """Return what becomes of each N; None if the thumbs are one-sided."""
    mine, fresh = halves(questions, dice)
    ratings = rated(mine, rule, count, wrong, dice)
    if not learnable(ratings):
        return None
    model = fit_preference_model(ratings)
    assert model
    every = [reply for own in fresh for reply in own]
    found = {}
    for size in (*OWN, *ANY):
        results = []
        for own in fresh:
            first, *others = dice.sample(own, len(own))
            others = others if size <= len(own) else dice.sample(every, min(size, len(every)))
            offered = [first, *others][:size]
            pleases = {each: rule(each.text, each.finished) for each in offered}
            best = pleases[_best(model, offered)]
            results.append((best, any(pleases.values()), best > pleases[first], best < pleases[first]))
        found[size] = Chosen(*(fmean(column) for column in zip(*results, strict=True)))
    return found


def milliseconds(questions: Sequence[Sequence[Reply]]) -> float:
    """Return the time of one score, by a model of 64 ratings."""
    ratings = rated(questions, WISHES["usual"], 64, 0.0, random.Random(0))
    model = fit_preference_model(ratings)
    assert model
    replies = [each for own in questions for each in own]
    began = time.perf_counter()
    for each in replies:
        model.scores([PlainReply(each.question, each.text, each.finished)])
    return (time.perf_counter() - began) / len(replies) * 1_000


def _best(model: PreferenceModel, replies: Sequence[Reply]) -> Reply:
    question = replies[0].question
    scores = model.scores([PlainReply(question, each.text, each.finished) for each in replies])
    return replies[int(scores.argmax())]


if __name__ == "__main__":
    main()
