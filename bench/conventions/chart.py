"""The chart of the cells: what 8, 16 and 32 comments do, beside the base and a sentence in the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.conventions.cell_tables import Dosage, level
from bench.conventions.cells import UNTRAINED, Cell
from bench.learning.plots import COLOURS, INK, canvas_of, save

FLAT = dict(zip(UNTRAINED[:2], (":", "--"), strict=True))
"""The columns that no number of comments changes, and how their lines look."""


def draw(results: Sequence[Dosage], first: Mapping[str, Cell], path: Path) -> bool:
    """Draw a line for each convention with two numbers of comments; False: none has.

    ``first``: the cell of each convention that begins with the base model.
    """
    courses = {name: [result for result in results if result.name == name] for name in first}
    courses = {name: course for name, course in courses.items() if len(course) > 1}
    if not courses:
        return False
    canvas, axes = canvas_of(3.4)
    for (name, course), colour in zip(courses.items(), COLOURS, strict=False):
        comments = [result.comments for result in course]
        axes.errorbar(
            comments,
            [result.level for result in course],
            yerr=[(result.gain.upper - result.gain.lower) / 2 for result in course],
            marker="o",
            markersize=4,
            capsize=3,
            color=colour,
            label=name,
        )
        for column, style in FLAT.items():
            share = level(first[name], column)
            if share is not None:
                axes.axhline(share, color=colour, linestyle=style, linewidth=1, label=f"{name}, {column}")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("comments", color=INK)
    axes.set_ylabel("convention kept", color=INK)
    save(canvas, axes, path)
    return True
