"""The demo's plot: a row for each half, with answer lengths, the share of short answers, and facts known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.outcome import TrialOutcome
from burnish.parts.desktop.demo.report import by_half, title
from burnish.parts.desktop.demo.user import SHORT_CHARACTERS

BARS, BARS_BELOW_LINE = 20, 5
"""Of the histogram; the wanted length is where one bar ends."""
COLORS = ("#b0b7c3", "#2a6fdb")
"""Before and after."""
LINE = "#d1495b"


def draw(outcomes: Sequence[TrialOutcome], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    halves = by_half(outcomes)
    canvas: Any = Canvas(figsize=(12, 4 * len(halves)), layout="constrained")
    for part, (half, of) in zip(canvas.subfigures(len(halves), squeeze=False)[:, 0], halves, strict=True):
        lengths, shares, facts = part.subplots(1, 3, width_ratios=(2, 1, 1))
        part.suptitle(title(half), fontweight="bold")
        _lengths(lengths, of)
        _bars(
            shares,
            of,
            [[outcome.exam_before.summary.satisfied, outcome.exam_after.summary.satisfied] for outcome in of],
            "{:.0%}",
        )
        shares.set(ylim=(0, 1.08), title="Short answers")
        shares.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        _bars(facts, of, [[outcome.exam_before.facts, outcome.exam_after.facts] for outcome in of], "{:.0f}")
        facts.set(ylim=(0, len(FACTS)), title=f"Facts known, of {len(FACTS)}")
        for axes in (lengths, shares, facts):
            axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, dpi=110)


def _lengths(axes: Any, outcomes: Sequence[TrialOutcome]) -> None:
    """Draw a histogram whose bars end exactly at the line; the few very long answers share the last bar."""
    width = SHORT_CHARACTERS // BARS_BELOW_LINE
    edges = range(0, (BARS + 1) * width, width)
    lengths = [
        [min(len(answer.answer), edges[-1] - 1) for exam in exams for answer in exam.answers]
        for exams in zip(*((outcome.exam_before, outcome.exam_after) for outcome in outcomes), strict=True)
    ]
    axes.hist(lengths, bins=list(edges), color=COLORS, label=["before", "after"])
    axes.axvline(SHORT_CHARACTERS, color=LINE, linestyle="--", linewidth=1.5)
    axes.annotate(
        f"wanted: under {SHORT_CHARACTERS}",
        (SHORT_CHARACTERS, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(6, 0),
        textcoords="offset points",
        color=LINE,
        va="top",
    )
    ticks = list(edges[::BARS_BELOW_LINE])
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{ticks[-1]}+"])
    axes.set(xlabel="characters in an answer", ylabel="answers", title="Answers to held-out questions")
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])  # room for the legend above the bars
    axes.legend(frameon=False, loc="upper right", ncols=2)
    axes.yaxis.get_major_locator().set_params(integer=True)


def _bars(axes: Any, outcomes: Sequence[TrialOutcome], pairs: Sequence[Sequence[float]], form: str) -> None:
    places = range(len(outcomes))
    for offset, color, values in zip((-0.2, 0.2), COLORS, zip(*pairs, strict=True), strict=True):
        bars = axes.bar([place + offset for place in places], values, width=0.38, color=color)
        axes.bar_label(bars, labels=[form.format(height) for height in values], padding=2, fontsize=9)
    axes.set_xlim(-0.7, len(outcomes) - 0.3)
    axes.set_xticks(list(places), [f"seed {outcome.seed}" for outcome in outcomes])
