"""What the grid's records say: tables for the terminal, Markdown and plots, and the limits of ``--quick``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from burnish.bench.figures import (
    SETTLED_HEADER,
    Record,
    Rows,
    Seeds,
    by_ratings,
    grouped,
    header,
    mean,
    rows,
    settled_rows,
    untaught,
)
from burnish.bench.rates import Rate

QUICK_LIMITS = {"brief": 0.55, "brief-cold": 0.35}
"""Least joint share after the last count: four to five standard errors (.07) below what a run reached (.83 and .70)."""
QUICK_EMPTY = 0.1
"""Most near-empty answers there."""
RATES_HEADER = ["preference", "wants", "the program asks for", "satisfied", "joint"]
# Between the lines of two arms, in ratings.
BESIDE = 0.4
# Readable on white and on black; the plot itself is transparent.
INK = "#808890"
LINES = (
    "#2a6fdb",
    "#d1495b",
    "#2e9e6b",
    "#c98a1b",
    "#8a63d2",
    "#1aa0b5",
    "#b8578f",
    "#7c8a3a",
    "#c4603c",
    "#5b7fa6",
)


@dataclass(frozen=True, slots=True)
class Check:
    """A limit, and whether it held."""

    what: str
    passed: bool


def checks(records: Sequence[Record]) -> list[Check]:
    """Hold the quick cells to their limits."""
    found = []
    for record in records:
        user, last = record["users"][-1], record["points"][-1]
        joint, least = last.get("joint", 0.0), QUICK_LIMITS[user]
        empty = last.get("near_empty", 1.0)
        given = f"{user} after {last['ratings']} ratings"
        found += [
            Check(f"{given}: {joint:.2f} satisfied and on topic, {least:.2f} at least", joint >= least),
            Check(f"{given}: {empty:.2f} near-empty, {QUICK_EMPTY:.2f} at most", empty <= QUICK_EMPTY),
        ]
    return found


def rate_rows(rates: Sequence[Rate]) -> Rows:
    """Return a row a preference."""
    return [
        [each.preference, each.wants, each.program, f"{each.satisfied:.2f}", f"{each.joint:.2f}"]
        for each in rates
    ]


def tables(records: Sequence[Record]) -> list[Table]:
    """Return the tables for the terminal."""
    groups = grouped(records)
    found = [
        table(group.name, header(group), rows(group, arms))
        for group, arms in groups.items()
        if group.way != "online"
    ]
    if settled := settled_rows(groups):
        found.append(table("questions until three first answers in a row satisfy", SETTLED_HEADER, settled))
    return found


def table(title: str, columns: Sequence[str], content: Rows) -> Table:
    """Return a table for the terminal."""
    found = Table(*columns, title=title, title_style="bold", box=box.SIMPLE)
    for row in content:
        found.add_row(*row)
    return found


def write(records: Sequence[Record], out: Path, command: str) -> None:
    """Write ``learning.md`` and a plot a group. ``command``: what wrote it."""
    groups = grouped(records)
    lines = [
        "# The learning bench, as measured",
        "",
        f"Written by `{command}`. *joint*: satisfied and on topic. Means over seeds ± 95 %.",
        "",
    ]
    for group, arms in groups.items():
        if group.way != "online":
            plot(arms, out / f"{group.name}.png")
            lines += [f"## {group.name}", ""]
            lines += [f"![satisfied and on topic by ratings]({group.name}.png)", ""]
            lines += [*markdown(header(group), rows(group, arms)), ""]
    if settled := settled_rows(groups):
        lines += ["## Questions until three first answers in a row satisfy", ""]
        lines += [*markdown(SETTLED_HEADER, settled), ""]
    (out / "learning.md").write_text("\n".join(lines), encoding="utf-8")


def write_rates(rates: Sequence[Rate], out: Path, command: str) -> None:
    """Write ``rates.md``."""
    lines = ["# Base rates, as measured", "", f"Written by `{command}`.", ""]
    lines += [*markdown(RATES_HEADER, rate_rows(rates)), ""]
    out.mkdir(parents=True, exist_ok=True)
    (out / "rates.md").write_text("\n".join(lines), encoding="utf-8")


def markdown(columns: Sequence[str], content: Rows) -> list[str]:
    """Return a table's lines."""
    return [
        "| " + " | ".join(columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in content),
    ]


def plot(arms: Mapping[str, Seeds], path: Path) -> None:
    """Draw the share that satisfies and is on topic against the number of ratings, a line an arm."""
    from matplotlib.figure import Figure

    canvas: Any = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = canvas.subplots()
    bare = mean([point["joint"] for point in untaught(arms)])
    for place, (arm, seeds) in enumerate(arms.items()):
        beside = (place - (len(arms) - 1) / 2) * BESIDE  # or the intervals would hide each other
        taught = {
            ratings: mean([point.get("joint", math.nan) for point in points])
            for ratings, points in by_ratings(seeds).items()
        }
        means = [bare, *taught.values()]
        axes.errorbar(
            [ratings + beside for ratings in (0, *taught)],
            [each.value for each in means],
            yerr=[each.half or 0 for each in means],
            marker="o",
            markersize=4,
            capsize=3,
            color=LINES[place % len(LINES)],
            label=arm,
        )
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("ratings", color=INK)
    axes.set_ylabel("satisfied and on topic", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[:].set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    canvas.savefig(path, dpi=110, transparent=True)
