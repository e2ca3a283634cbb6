"""Which cells are measured, and their records: a grid that goes on where it stopped."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.bench.arms import ARMS
from burnish.bench.cell import Cell
from burnish.bench.measure import Say, measure
from burnish.bench.stress import Stress

RESULTS = "results.jsonl"
KEPT = "asked"
"""Folder of the bare model's answers."""
SEEDS = (0, 1, 2)
COUNTS = (8, 16, 32, 64, 128)
FEW = (16, 32, 64)
BEST = ("auto", "auto_words")
LENGTH = ("brief", "brief-cold")
STYLE = ("second-person", "example", "number", "two-sentences", "simple-words", "no-commas", "hedged")
"""Of these the small model's own answers satisfy between a tenth and six tenths (``rates``, docs/learning.md)."""
LARGE = ("student", "assistant-teacher", "teacher")
"""For models that can more than the small one."""
OPPOSITE = ("at-length", "brief")
SEQUENCE = ("no-commas", "second-person", "brief")
STRESSES: tuple[Stress, ...] = ("flip10", "flip20", "flip30", "only_good", "only_bad", "turn")
TWO_ROUNDS = (16, 40)
FRESH = 120
"""Held-out questions after two rounds."""
ONLINE = tuple(range(16, 129, 16))

QUICK = (
    Cell("auto", ("brief",), 0, (32,), held_out=40),
    Cell("auto_words", ("brief-cold",), 0, (16,), held_out=40),
)


def full() -> Iterator[Cell]:
    """What burnish chooses by itself on everything, then every objective on the two preferences about length."""
    for seed in SEEDS:
        yield from _chosen(seed)
    for seed in SEEDS:
        for arm in (name for name in ARMS if name not in BEST):
            for preference in LENGTH:
                yield Cell(arm, (preference,), seed, FEW)


def large() -> Iterator[Cell]:
    """What needs a larger model: the published preferences."""
    for seed in SEEDS:
        for preference in LARGE:
            for arm in BEST:
                yield Cell(arm, (preference,), seed, FEW)


def _chosen(seed: int) -> Iterator[Cell]:
    for arm in BEST:
        for preference in LENGTH:
            yield Cell(arm, (preference,), seed, COUNTS)
        yield Cell(arm, ("brief-cold",), seed, TWO_ROUNDS, "rounds", held_out=FRESH)
        for preference in STYLE:
            yield Cell(arm, (preference,), seed, FEW)
        for preference in (*LENGTH, "second-person"):
            yield Cell(arm, (preference,), seed, ONLINE, "online")
        for stress in STRESSES:
            yield Cell(arm, ("brief",), seed, (64,), stress=stress)
        yield Cell(arm, SEQUENCE, seed, (32, 64, 96), "rounds")
        yield Cell(arm, OPPOSITE, seed, (64,))


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
    """Measure what is missing, one cell after the other, and return all records. Raises NothingLearnt, DidNotStart."""
    out.mkdir(parents=True, exist_ok=True)
    found = records(out)
    for place, cell in enumerate(cells, start=1):
        if cell.key in found:
            continue
        with tempfile.TemporaryDirectory(prefix="burnish-bench-") as scratch:
            where = f"{place} of {len(cells)}, {cell.key}"
            found[cell.key] = measure(
                cell,
                out.absolute() / KEPT,
                Path(scratch),
                settings,
                lambda doing, where=where: say(f"{where}: {doing}"),  # type: ignore[misc]
            )
        with (out / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(found[cell.key], ensure_ascii=False) + "\n")
    return found
