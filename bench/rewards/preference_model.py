"""What does the preference model see, and what does it prove that isn't true?

``python -m bench.rewards.preference_model POOL [--seeds N] [--out FILE]``: POOL is a file of ``bench.rewards.pool``.
Simulated raters give thumbs by rules; half of the questions are rated, and on the other half candidates are compared.
Prints the order of unseen replies for each wish and number of thumbs, then how often each kind of candidate is proved
better. Exits 1 if more than 3 % of the candidates that aren't better are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np

from bench.rewards import pool
from bench.rewards.pool import Reply
from bench.rewards.wishes import WISHES, Rule
from burnish.gate import GateLimits
from burnish.gate.intervals import uncertain_gain
from burnish.gate.rewards import (
    MIN_OF_A_CLASS,
    PlainReply,
    PreferenceModel,
    RatedReply,
    fit_preference_model,
    order,
)
from burnish.gate.rewards.features import VIEWS

THUMBS = (32, 48, 64, 128)
NOISES = (0.0, 0.1, 0.2)
PAIRS = (24, 36, 48)
PROVED_FROM = 48
"""Thumbs of the second table."""
MOST_FALSE = 0.03
BETTER = 0.02
"""A candidate that pleases this much oftener is better, whatever it was made for."""

BY_CHANCE = ("equal", "random thumbs", "learnt random thumbs")
"""Candidates that are better by accident only."""

Questions = Sequence[Sequence[Reply]]
Choice = Callable[[Sequence[Reply]], Reply]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pool", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="JSON of all figures")
    given = parser.parse_args()
    sys.exit(not holds(given.pool, given.seeds, given.out))


def holds(path: Path, seeds: int, out: Path | None = None) -> bool:
    """Measure and print; return whether few enough candidates are proved better that aren't."""
    questions = list(pool.read(path).values())
    print(f"{sum(map(len, questions))} replies to {len(questions)} questions, {seeds} seeds\n")
    seen = orders(questions, seeds)
    print(seen_in_words(seen), flush=True)
    proved = proofs(questions, seeds)
    share, text = proved_in_words(proved)
    print(text)
    if out:
        out.write_text(json.dumps({"orders": seen, "proofs": [[*key, *n] for key, n in proved.items()]}))
    return share <= MOST_FALSE


def rated(
    questions: Questions, rule: Rule, count: int, noise: float, dice: random.Random
) -> list[RatedReply]:
    """Give thumbs to one random reply of each question, in turn, until there are enough."""
    places = [dice.randrange(len(own)) for own in questions]
    found = []
    for number in range(count):
        place = number % len(questions)
        own = questions[place]
        reply = own[(places[place] + number // len(questions)) % len(own)]
        good = rule(reply.text, reply.finished) is not (dice.random() < noise)
        found.append(
            RatedReply(f"c{place}", reply.question, reply.text, reply.finished, 1.0 if good else -1.0, 1.0)
        )
    return found


def halves(questions: Questions, dice: random.Random) -> tuple[Questions, Questions]:
    mixed = dice.sample(questions, len(questions))
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def learnable(ratings: Sequence[RatedReply]) -> bool:
    kinds = Counter(each.reward > 0 for each in ratings)
    return min(kinds[True], kinds[False]) >= MIN_OF_A_CLASS


# What is seen.


def orders(questions: Questions, seeds: int) -> dict[str, dict[int, dict[str, float]]]:
    """Return wish → thumbs → the mean order of unseen replies, by view and as chosen, and how often it is believed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for wish, rule in WISHES.items():
        for count in THUMBS:
            rows = [row for seed in range(seeds) if (row := _order(questions, rule, count, seed))]
            names = (*VIEWS, "chosen", "believed")
            if rows:
                found.setdefault(wish, {})[count] = {name: fmean(row[name] for row in rows) for name in names}
    return found


def _order(questions: Questions, rule: Rule, count: int, seed: int) -> dict[str, float] | None:
    dice = random.Random(f"{seed} {count}")
    mine, fresh = halves(questions, dice)
    ratings = rated(mine, rule, count, 0.0, dice)
    if not learnable(ratings):
        return None
    chosen = fit_preference_model(ratings)
    assert chosen
    found = {"chosen": _unseen(chosen, fresh, rule), "believed": float(chosen.order.believed)}
    for view in VIEWS:
        one = fit_preference_model(ratings, [view])
        assert one
        found[view] = _unseen(one, fresh, rule)
    return found


def _unseen(model: PreferenceModel, questions: Questions, rule: Rule) -> float:
    replies = [each for own in questions for each in own]
    scores = model.scores([_seen(each) for each in replies])
    good = np.array([rule(each.text, each.finished) for each in replies])
    return order(scores[good], scores[~good]).share


# What is proved.

Key = tuple[str, float, int]
"""Kind of candidate, share of wrong thumbs, pairs."""


def proofs(questions: Questions, seeds: int) -> dict[Key, tuple[int, int, int]]:
    """Return kind, noise and pairs → (candidates, those believed, those proved better)."""
    counts: dict[Key, Counter[str]] = {}
    for number, (wish, rule) in enumerate(WISHES.items()):
        others = [*WISHES.values()][number + 1 :] + [*WISHES.values()][:number]
        for noise in NOISES:
            for seed in range(seeds):
                dice = random.Random(f"{wish} {noise} {seed}")
                for kind, pairs, result in _proved(questions, rule, others[seed % len(others)], noise, dice):
                    counts.setdefault((kind, noise, pairs), Counter()).update(["all", *result])
    return {key: (n["all"], n["believed"], n["proved"]) for key, n in sorted(counts.items())}


def _proved(
    questions: Questions, rule: Rule, other: Rule, noise: float, dice: random.Random
) -> list[tuple[str, int, list[str]]]:
    """Compare every kind of candidate with an incumbent that chooses by chance."""
    mine, fresh = halves(questions, dice)
    ratings = rated(mine, rule, PROVED_FROM, noise, dice)
    if not learnable(ratings):
        return []
    signs = [each.reward for each in ratings]
    shuffled = [
        replace(each, reward=sign) for each, sign in zip(ratings, dice.sample(signs, len(signs)), strict=True)
    ]
    true, accident = fit_preference_model(ratings), fit_preference_model(shuffled)
    assert true
    assert accident

    def by_chance(own: Sequence[Reply]) -> Reply:
        return dice.choice(own)

    keenness = dice.choice((0.4, 0.7, 1.0))

    def pleasing(wanted: Rule) -> Choice:
        return lambda own: dice.choice(
            [each for each in own if wanted(each.text, each.finished)] * (dice.random() < keenness) or own
        )

    def copying(own: Sequence[Reply]) -> Reply:
        return own[int(np.argmax(accident.scores([_seen(each) for each in own])))]

    kinds: list[tuple[str, PreferenceModel, Choice, Rule | None]] = [
        ("better", true, pleasing(rule), rule),
        ("equal", true, by_chance, rule),
        ("another wish", true, pleasing(other), rule),
        ("random thumbs", accident, by_chance, None),
        ("learnt random thumbs", accident, copying, None),
    ]
    found = []
    for kind, model, choice, truth in kinds:
        new, old = [choice(own) for own in fresh], [by_chance(own) for own in fresh]
        better_by = _pleased(new, truth) - _pleased(old, truth) if truth else 0.0
        helps = better_by > BETTER or kind == "better"
        name = _better(better_by) if helps and kind not in BY_CHANCE else kind
        for pairs in PAIRS:
            sides = ([_seen(each) for each in islice(side, pairs)] for side in (new, old))
            gain = uncertain_gain(*model.gains(*sides), GateLimits())
            believed = model.order.believed
            result = ["believed"] * believed + ["proved"] * (believed and gain.sign is True)
            found.append((name, pairs, result))
    return found


def _better(gain: float) -> str:
    """Name a candidate by how much oftener it pleases."""
    return f"better by {'.3 or more' if gain >= 0.3 else '.15 to .3' if gain >= 0.15 else 'less'}"


def _pleased(replies: Sequence[Reply], rule: Rule) -> float:
    return fmean(rule(each.text, each.finished) for each in replies)


def _seen(reply: Reply) -> PlainReply:
    return PlainReply(reply.question, reply.text, reply.finished)


# In words.


def seen_in_words(found: dict[str, dict[int, dict[str, float]]]) -> str:
    head = "| wish | " + " | ".join(f"{count} thumbs" for count in THUMBS) + " |"
    lines = ["Order of unseen replies, form / words / the chosen one (believed)", "", head]
    lines.append("|---" * (len(THUMBS) + 1) + "|")
    for wish, row in found.items():
        cells = [_cell(row[count]) if count in row else "too one-sided" for count in THUMBS]
        lines.append(f"| {wish} | " + " | ".join(cells) + " |")
    means = [
        {name: fmean(row[count][name] for row in found.values() if count in row) for name in names}
        for count in THUMBS
        if (names := next((row[count].keys() for row in found.values() if count in row), None))
    ]
    return "\n".join([*lines, "| **mean** | " + " | ".join(map(_cell, means)) + " |", ""])


def _cell(row: dict[str, float]) -> str:
    return f"{row['form']:.2f} / {row['words']:.2f} / {row['chosen']:.2f} ({row['believed']:.0%})"


def proved_in_words(found: dict[Key, tuple[int, int, int]]) -> tuple[float, str]:
    """Return the largest share of false proofs of a kind, over all shares of wrong thumbs, and a table."""
    lines = [
        f"Proved better from {PROVED_FROM} thumbs",
        "",
        "| candidate | wrong thumbs | pairs | believed | proved |",
    ]
    lines.append("|---|---|---|---|---|")
    false: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (kind, noise, pairs), (count, believed, proved) in found.items():
        lines.append(f"| {kind} | {noise:.0%} | {pairs} | {believed} of {count} | {proved / count:.1%} |")
        if not kind.startswith("better"):
            false.setdefault((kind, pairs), []).append((proved, count))
    shares = {}
    for (kind, pairs), counts in false.items():
        proved, count = (sum(column) for column in zip(*counts, strict=True))
        shares[kind, pairs] = proved / count
        lines.append(f"| {kind} | all | {pairs} | | {proved} of {count}, {proved / count:.1%} |")
    return max(shares.values()), "\n".join(lines)


if __name__ == "__main__":
    main()
