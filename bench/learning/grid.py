"""Which cells are measured, and their records: a grid that goes on where it stopped."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.learning.arms import ABLATIONS, ARMS
from bench.learning.cell import HELD_OUT, Cell
from bench.learning.measure import Say, measure
from bench.learning.side_by_side import side_by_side
from bench.learning.stress import Stress

RESULTS = "results.jsonl"
KEPT = "asked"
"""Folder of the base model's answers."""
SEEDS = (0, 1, 2)
BEST = ("auto", "auto_words")
"""What burnish chooses by itself, from thumbs and from comments."""
LENGTH = ("brief", "brief-cold")
STYLE = ("second-person", "example", "number", "two-sentences", "simple-words", "no-commas", "hedged")
"""Of these the small model's own answers satisfy between a tenth and six tenths (``rates``, docs/measurements.md)."""
LARGE = ("student", "assistant-teacher", "teacher")
"""For models that can more than the small one."""
OPPOSITE = ("at-length", "brief")
SEQUENCE = ("no-commas", "second-person", "brief")
STRESSES: tuple[Stress, ...] = ("flip10", "flip20", "flip30", "only_good", "only_bad", "turn")
RATINGS, COMMENTS, MANY = 32, 16, 64
FEWER_AND_MORE = {"auto": (8, 16, 128), "auto_words": (8, 32), "mis_po_rival": (16, 64)}
"""Ratings or comments on one's own length besides those that every arm gets."""
TWO_ROUNDS = (16, 40)
FRESH = 120
"""Held-out questions where hardly any answer satisfies."""
COMPARED = 134
"""Held-out questions of a seed, where two arms are compared closely."""
ONLINE = tuple(range(16, 65, 16))

QUICK = (
    Cell("auto", ("brief",), 0, (RATINGS,), held_out=30, widely=False),
    Cell("auto_words", ("brief-cold",), 0, (COMMENTS,), held_out=60),
)


def full() -> Iterator[Cell]:
    """Return the cells, the most important first.

    The claims of the documentation come with every seed, all else with the first.
    """
    for seed in SEEDS:
        yield from _claims(seed)
    for seed in SEEDS:
        yield from _policy_gradients(seed)
    for part in (_rounds, _words_under_stress, _objectives, _styles, _stresses, _counts, _online):
        yield from part(SEEDS[0])


def large() -> Iterator[Cell]:
    """Return what needs a larger model: the published preferences."""
    for seed in SEEDS:
        for preference in LARGE:
            yield _anew("auto", preference, seed, MANY)
            yield _anew("auto_words", preference, seed, COMMENTS)


def _anew(arm: str, preference: str, seed: int, ratings: int, stress: Stress = "none") -> Cell:
    held_out = FRESH if preference == "brief-cold" else HELD_OUT
    return Cell(arm, (preference,), seed, (ratings,), stress=stress, held_out=held_out)


def _claims(seed: int) -> Iterator[Cell]:
    yield _anew("auto", "brief", seed, RATINGS)
    yield _anew("auto_words", "brief-cold", seed, COMMENTS)


def _policy_gradients(seed: int) -> Iterator[Cell]:
    """PPO against what burnish chooses: 402 replies of each in three seeds, so that five points can be told apart."""
    for arm in ("auto", "ppo", "ppo_warm"):
        yield Cell(arm, ("brief",), seed, (MANY,), held_out=COMPARED, widely=False)


def _rounds(seed: int) -> Iterator[Cell]:
    for arm in reversed(BEST):
        yield Cell(arm, ("brief-cold",), seed, TWO_ROUNDS, "rounds", held_out=FRESH)


def _words_under_stress(seed: int) -> Iterator[Cell]:
    """Without ``only_good``: who finds nothing wrong has nothing to say."""
    for stress in STRESSES:
        if stress != "only_good":
            yield _anew("auto_words", "brief-cold", seed, COMMENTS, stress)
    yield Cell("auto_words", SEQUENCE, seed, (16, 32, 48), "rounds")
    yield Cell("auto_words", OPPOSITE, seed, (RATINGS,))


def _objectives(seed: int) -> Iterator[Cell]:
    """Grades of 1 to 5 among them: other ratings than thumbs, learnt by what burnish chooses."""
    for name, arm in ARMS.items():
        if name not in BEST:
            yield _anew(name, "brief", seed, RATINGS)
            if name not in (
                "critique",
                *ABLATIONS,
            ):  # ``auto`` learns brief-cold's comments by critique: a claim
                yield _anew(name, "brief-cold", seed, COMMENTS if arm.comments or arm.turns else RATINGS)
    yield _anew("auto", "brief-cold", seed, RATINGS)


def _styles(seed: int) -> Iterator[Cell]:
    for preference in STYLE:
        yield _anew("auto", preference, seed, MANY)
        yield _anew("auto_words", preference, seed, COMMENTS)


def _stresses(seed: int) -> Iterator[Cell]:
    for stress in ("none", *STRESSES):
        yield _anew("auto", "brief", seed, MANY, stress)
    yield Cell("auto", SEQUENCE, seed, (32, 64, 96), "rounds")
    yield Cell("auto", OPPOSITE, seed, (MANY,))


def _counts(seed: int) -> Iterator[Cell]:
    for arm, counts in FEWER_AND_MORE.items():
        for count in counts:
            yield _anew(arm, "brief-cold" if arm == "auto_words" else "brief", seed, count)


def _online(seed: int) -> Iterator[Cell]:
    yield Cell("auto", ("brief",), seed, ONLINE, "online")
    yield Cell("auto_words", ("brief-cold",), seed, ONLINE, "online")


def records(out: Path) -> dict[str, dict[str, Any]]:
    """Return the finished records by key; a line that was cut off doesn't count."""
    path = out / RESULTS
    found = {}
    for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["key"]] = record
    return found


def work_through(
    cells: Sequence[Cell], out: Path, settings: Mapping[str, str], say: Say
) -> dict[str, dict[str, Any]]:
    """Measure what is missing, side by side where that can be, and return all records.

    Raises NothingLearnt, DidNotStart.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = records(out)
    places = {cell.key: place for place, cell in enumerate(cells, start=1)}

    def measured(cell: Cell) -> dict[str, Any]:
        where = f"{places[cell.key]} of {len(cells)}, {cell.key}"
        with tempfile.TemporaryDirectory(prefix="burnish-bench-") as scratch:
            kept = out.absolute() / KEPT
            return measure(cell, kept, Path(scratch), settings, lambda doing: say(f"{where}: {doing}"))

    missing = [cell for cell in cells if cell.key not in found]
    for record in side_by_side(measured, missing, settings):
        found[record["key"]] = record
        with (out / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return found
