"""Which cells are measured, and their records: a grid that goes on where it stopped."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from burnish.bench.arms import ARMS
from burnish.bench.cell import Cell, Say, measure
from burnish.bench.preferences import PREFERENCES
from burnish.bench.stress import Stress

RESULTS = "results.jsonl"
SEEDS = (0, 1, 2)
COUNTS = (8, 16, 32, 64, 128)
FEW = (16, 32, 64)
BEST = ("auto", "auto_words")
STRESSES: tuple[Stress, ...] = ("flip10", "flip20", "flip30", "only_good", "only_bad", "turn")

QUICK = (
    Cell("auto", "brief", 0, (32,), held_out=40),
    Cell("auto_words", "brief-cold", 0, (16,), held_out=40),
)


def full() -> Iterator[Cell]:
    """Every objective on the two preferences about length, then what burnish chooses by itself on everything."""
    for seed in SEEDS:
        for preference in ("brief", "brief-cold"):
            for arm in (name for name in ARMS if name not in BEST):
                yield Cell(arm, preference, seed, FEW)
    for seed in SEEDS:
        for arm in BEST:
            for preference in PREFERENCES:
                yield Cell(arm, preference, seed, COUNTS if preference == "brief" else FEW)
            for stress in STRESSES:
                yield Cell(arm, "brief", seed, (64,), stress)


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


def work_through(cells: Sequence[Cell], out: Path, say: Say) -> dict[str, dict[str, Any]]:
    """Measure what is missing, one cell after the other, and return all records."""
    out.mkdir(parents=True, exist_ok=True)
    found = records(out)
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as work:
        for place, cell in enumerate(cells, start=1):
            if cell.key in found:
                continue
            where = f"{place} of {len(cells)}, {cell.key}"
            record = measure(cell, Path(work), lambda doing, where=where: say(f"{where}: {doing}"))  # type: ignore[misc]
            found[cell.key] = record
            with (out / RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return found
