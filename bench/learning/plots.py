"""Plots of the records. Readable on white and on black: transparent, and the ink between the two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.learning.figures import Group, Mean, Seeds, by_ratings, mean, untaught

WANTED = "satisfied and on topic"
BARS = {"auto": "ratings", "auto_words": "comments"}
"""The arms of the overview, and what their users give."""
INK = "#808890"
BARE = "#b4bac0"
COLOURS = (
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
# Between the lines of two arms, in ratings: or the intervals would hide each other.
BESIDE = 0.4
BAR = 0.27
INCHES_A_GROUP = 0.42


def curves(arms: Mapping[str, Seeds], path: Path) -> bool:
    """Draw the share that pleases against the number of ratings, a line an arm that has several; False: none has."""
    taught = {arm: points for arm, seeds in arms.items() if len(points := _joint(seeds)) > 1}
    if not taught:
        return False
    canvas, axes = canvas_of(3.4)
    bare = mean([point["joint"] for point in untaught(arms)])
    for place, (arm, points) in enumerate(taught.items()):
        beside = (place - (len(taught) - 1) / 2) * BESIDE
        means = [bare, *points.values()]
        axes.errorbar(
            [ratings + beside for ratings in (0, *points)],
            [each.value for each in means],
            yerr=_halves(means),
            marker="o",
            markersize=4,
            capsize=3,
            color=COLOURS[place % len(COLOURS)],
            label=arm,
        )
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("ratings", color=INK)
    axes.set_ylabel(WANTED, color=INK)
    save(canvas, axes, path)
    return True


def overview(groups: Mapping[Group, Mapping[str, Seeds]], path: Path) -> bool:
    """Draw before and after, bars beside each other for each user and stress; False: there is nothing to draw."""
    shown = {
        group: taught
        for group, arms in groups.items()
        if group.way == "anew" and (taught := {arm: arms[arm] for arm in BARS if arm in arms})
    }
    if not shown:
        return False
    canvas, axes = canvas_of(1.0 + INCHES_A_GROUP * len(shown))
    bare = [mean([point["joint"] for point in untaught(arms)]) for arms in shown.values()]
    _bars(axes, 0, [*enumerate(bare)], BARE, "before")
    for place, (arm, given) in enumerate(BARS.items(), start=1):
        most = [
            (row, [*_joint(arms[arm]).items()][-1]) for row, arms in enumerate(shown.values()) if arm in arms
        ]
        if counts := sorted({ratings for _, (ratings, _) in most}):
            label = f"{' or '.join(map(str, counts))} {given}"
            _bars(axes, place, [(row, each) for row, (_, each) in most], COLOURS[place - 1], label)
    axes.set_yticks(range(len(shown)), [group.name for group in shown])
    axes.set_xlim(0, 1.02)
    axes.invert_yaxis()
    axes.set_xlabel(WANTED, color=INK)
    save(canvas, axes, path)
    return True


def _bars(axes: Any, place: int, content: list[tuple[int, Mean]], colour: str, label: str) -> None:
    means = [each for _, each in content]
    axes.barh(
        [row + (place - 1) * BAR for row, _ in content],
        [each.value for each in means],
        height=BAR,
        xerr=_halves(means),
        ecolor=INK,
        color=colour,
        label=label,
    )


def _joint(seeds: Seeds) -> dict[int, Mean]:
    """Return the mean share by the number of ratings; not a number where nothing was examined."""
    return {
        ratings: mean([point.get("joint", math.nan) for point in points])
        for ratings, points in by_ratings(seeds).items()
    }


def _halves(means: list[Mean]) -> list[float]:
    """Return half of each interval; of one seed there is none to draw, which is not an interval of no width."""
    return [math.nan if each.half is None else each.half for each in means]


def canvas_of(inches: float) -> tuple[Any, Any]:
    """Return an empty figure and its axes."""
    from matplotlib.figure import Figure

    canvas: Any = Figure(figsize=(6.4, inches), layout="constrained")
    return canvas, canvas.subplots()


def save(canvas: Any, axes: Any, path: Path) -> None:
    """Add legend and ink, and write the PNG."""
    axes.tick_params(colors=INK)
    axes.spines[:].set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=8, labelcolor=INK)
    canvas.savefig(path, dpi=110, transparent=True)
