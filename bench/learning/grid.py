"""Which cells are measured, and their records: a grid that goes on where it stopped."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.bench.arms import ARMS
from burnish.bench.cell import HELD_OUT, Cell
from burnish.bench.measure import Say, measure
from burnish.bench.side_by_side import side_by_side
from burnish.bench.stress import Stress

RESULTS = "results.jsonl"
KEPT = "asked"
"""Folder of the bare model's answers."""
SEEDS = (0, 1, 2)
BEST = ("auto", "auto_words")
"""What burnish chooses by itself, from thumbs and from comments."""
LENGTH = ("brief", "brief-cold")
STYLE = ("second-person", "example", "number", "two-sentences", "simple-words", "no-commas", "hedged")
"""Of these the small model's own answers satisfy between a tenth and six tenths (``rates``, docs/learning.md)."""
LARGE = ("student", "assistant-teacher", "teacher")
"""For models that can more than the small one."""
OPPOSITE = ("at-length", "brief")
SEQUENCE = ("no-commas", "second-person", "brief")
STRESSES: tuple[Stress, ...] = ("flip10", "flip30", "only_good", "only_bad", "turn")
RATINGS, COMMENTS, MANY = 32, 16, 64
CURVE = (8, 16, 32, 64, 128)
TWO_ROUNDS = (16, 40)
FRESH = 120
"""Held-out questions where hardly any answer satisfies."""
ONLINE = tuple(range(16, 129, 16))

QUICK = (
    Cell("auto", ("brief",), 0, (RATINGS,), held_out=30, widely=False),
    Cell("auto_words", ("brief-cold",), 0, (COMMENTS,), held_out=30, widely=False),
)


def full() -> Iterator[Cell]:
    """Return what is to be measured, what matters most first, so that a grid that is stopped has said most of it.

    What burnish claims comes with every seed, then all else with one seed, and once more with the others.
    """
    for seed in SEEDS:
        yield from _claims(seed)
    for seed in SEEDS:
        for part in (_rounds, _noise, _styles, _stresses, _objectives, _curves, _online):
            yield from part(seed)


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


def _rounds(seed: int) -> Iterator[Cell]:
    for arm in reversed(BEST):
        yield Cell(arm, ("brief-cold",), seed, TWO_ROUNDS, "rounds", held_out=FRESH)


def _noise(seed: int) -> Iterator[Cell]:
    yield _anew("auto", "brief", seed, MANY)
    yield _anew("auto", "brief", seed, MANY, "flip20")


def _styles(seed: int) -> Iterator[Cell]:
    for preference in STYLE:
        yield _anew("auto", preference, seed, MANY)
        yield _anew("auto_words", preference, seed, COMMENTS)


def _stresses(seed: int) -> Iterator[Cell]:
    for stress in STRESSES:
        yield _anew("auto", "brief", seed, MANY, stress)
    yield Cell("auto", SEQUENCE, seed, (32, 64, 96), "rounds")
    yield Cell("auto", OPPOSITE, seed, (MANY,))


def _objectives(seed: int) -> Iterator[Cell]:
    """Grades of 1 to 5 among them: other ratings than thumbs, learnt by what burnish chooses."""
    for name, arm in ARMS.items():
        if name not in BEST:
            yield _anew(name, "brief", seed, RATINGS)
            yield _anew(name, "brief-cold", seed, COMMENTS if arm.comments or arm.turns else RATINGS)


def _curves(seed: int) -> Iterator[Cell]:
    for ratings in CURVE:
        for arm in BEST:
            for preference in LENGTH:
                cell = _anew(arm, preference, seed, ratings)
                if cell not in (*_claims(seed), *_noise(seed)):
                    yield cell


def _online(seed: int) -> Iterator[Cell]:
    for arm in BEST:
        for preference in (*LENGTH, "second-person"):
            yield Cell(arm, (preference,), seed, ONLINE, "online")


def records(out: Path) -> dict[str, dict[str, Any]]:
    """Return what was measured so far, by key; a line that was cut off is measured anew."""
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
