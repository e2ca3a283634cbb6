"""What the grid's records say: tables for the terminal, Markdown and plots for the docs, and what missed its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

Record = Mapping[str, Any]
Point = Mapping[str, Any]

# Student's t, two-sided 95 %, by degrees of freedom: the interval of a mean over so few seeds.
T_95 = {1: 12.7, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
QUICK_LIMITS = {"brief": 0.45, "brief-cold": 0.12}
"""Least joint share after the last count: below what the one run so far reached (.68 and .23; standard error .07)."""
QUICK_EMPTY = 0.1
"""Most near-empty answers there."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds and its 95 % interval."""

    value: float
    half: float | None
    """Half of the interval; None for a single seed."""

    def __str__(self) -> str:
        return f"{self.value:.2f}" + (f" ±{self.half:.2f}" if self.half is not None else "")


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of one figure a seed."""
    count = len(values)
    if count == 1:
        return Mean(values[0], None)
    return Mean(fmean(values), T_95.get(count - 1, 2.2) * stdev(values) / math.sqrt(count))


COLUMNS: tuple[tuple[str, Callable[[Point], float | None]], ...] = (
    ("satisfied", lambda p: p.get("satisfied")),
    ("and on topic", lambda p: p.get("joint")),
    ("on topic", lambda p: p.get("on_topic")),
    ("near-empty", lambda p: p.get("near_empty")),
    ("repetitive", lambda p: p.get("repetitive")),
    ("characters", lambda p: p.get("mean_characters")),
    ("facts", lambda p: p.get("general")),
    ("KL", lambda p: p.get("checks", {}).get("kl")),
    ("CPU s", lambda p: p.get("metrics", {}).get("cpu_seconds")),
    ("GB", lambda p: p["metrics"]["peak_rss_bytes"] / 1e9 if "metrics" in p else None),
)


def grouped(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """Put the seeds of a (preference, stress, arm) together; of cells with other counts, only the latest's count."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        members = found.setdefault((record["preference"], record["stress"], record["arm"]), [])
        alike = [each for each in members if _kind(each) == _kind(record)]
        members[:] = [*alike, record]
    return found


def _kind(record: Record) -> tuple[list[int], int]:
    return list(record["counts"]), record["held_out"]


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Return a row a number of ratings, the bare model's first: means over the seeds."""
    table = [["0", *_cells([record["before"] for record in records]), "–"]]
    for place in range(min(len(record["points"]) for record in records)):
        points = [record["points"][place] for record in records]
        gate = [point["outcome"] for point in points]
        verdicts = ", ".join(f"{gate.count(each)} {each}" for each in dict.fromkeys(gate))
        table.append([str(points[0]["ratings"]), *_cells(points), verdicts])
    return table


def _cells(points: Sequence[Point]) -> list[str]:
    cells = []
    for _, figure in COLUMNS:
        values = [value for point in points if (value := figure(point)) is not None]
        cells.append(str(mean(values)) if values else "–")
    return cells


HEADER = ["ratings", *(name for name, _ in COLUMNS), "gate"]


def tables(records: Sequence[Record]) -> list[Table]:
    """Return one table a group, for the terminal."""
    found = []
    for (preference, stress, arm), members in grouped(records).items():
        title = f"{preference}, {arm}{'' if stress == 'none' else f', {stress}'} ({len(members)} seeds)"
        table = Table(*HEADER, title=title, title_style="bold")
        for row in rows(members):
            table.add_row(*row)
        found.append(table)
    return found


def missed(records: Sequence[Record]) -> list[str]:
    """Return what the quick cells should have reached and did not."""
    found = []
    for record in records:
        last, limit = record["points"][-1], QUICK_LIMITS[record["preference"]]
        if last["joint"] < limit:
            found.append(
                f"{record['key']}: {last['joint']:.2f} satisfied and on topic, expected {limit:.2f} at least"
            )
        if last["near_empty"] > QUICK_EMPTY:
            found.append(
                f"{record['key']}: {last['near_empty']:.2f} near-empty, expected {QUICK_EMPTY:.2f} at most"
            )
    return found


def write(records: Sequence[Record], out: Path) -> None:
    """Write ``learning.md`` and a plot a preference."""
    groups = grouped(records)
    lines = ["# The learning bench, as measured", ""]
    for preference, stress in dict.fromkeys(key[:2] for key in groups):
        members = {key[2]: each for key, each in groups.items() if key[:2] == (preference, stress)}
        name = preference if stress == "none" else f"{preference}-{stress}"
        plot(members, out / f"{name}.png")
        lines += [f"## {name}", "", f"![satisfied and on topic by ratings]({name}.png)", ""]
        for arm, seeds in members.items():
            lines += [f"### {arm} ({len(seeds)} seeds)", "", *_markdown(rows(seeds)), ""]
    (out / "learning.md").write_text("\n".join(lines), encoding="utf-8")


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(HEADER) + " |",
        "|" + "---:|" * len(HEADER),
        *("| " + " | ".join(row) + " |" for row in table),
    ]


def plot(arms: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Draw the share that satisfies and is on topic against the number of ratings, a line an arm."""
    from matplotlib.figure import Figure

    canvas: Any = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = canvas.subplots()
    for arm, records in arms.items():
        places = range(min(len(record["points"]) for record in records))
        xs = [0, *(records[0]["points"][place]["ratings"] for place in places)]
        means = [mean([record["before"]["joint"] for record in records])]
        means += [
            mean([record["points"][place].get("joint", math.nan) for record in records]) for place in places
        ]
        axes.errorbar(
            xs,
            [each.value for each in means],
            yerr=[each.half or 0 for each in means],
            marker="o",
            capsize=3,
            label=arm,
        )
    axes.set(ylim=(0, 1.02), xlabel="ratings", ylabel="satisfied and on topic")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    canvas.savefig(path, dpi=110)
