"""Two plots of the reward benches' figures."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

from bench.learning.plots import COLOURS, INK, canvas_of, save

SHOWN = {"form": "form", "words": "words", "chosen": "the better one"}


def orders(figures: Path, path: Path) -> None:
    """Draw how well unseen replies are ordered, against the number of thumbs. ``figures``: of ``preference_model``."""
    wishes = json.loads(figures.read_text())["orders"].values()
    canvas, axes = canvas_of(3.0)
    for place, (view, label) in enumerate(SHOWN.items()):
        thumbs = sorted({int(count) for wish in wishes for count in wish})
        means = [fmean(wish[str(count)][view] for wish in wishes if str(count) in wish) for count in thumbs]
        axes.plot(thumbs, means, marker="o", markersize=4, color=COLOURS[place], label=label)
    axes.set_ylim(0.5, 1.0)
    axes.set_xlabel("thumbs", color=INK)
    axes.set_ylabel("unseen pairs in order", color=INK)
    save(canvas, axes, path)


def best_of(figures: Path, path: Path) -> None:
    """Draw the share that pleases against N, a line for each kind of ratings. ``figures``: of ``best_of``."""
    lines: dict[tuple[int, float], list[tuple[int, float]]] = {}
    for thumbs, wrong, size, pleases, *_ in json.loads(figures.read_text()):
        lines.setdefault((thumbs, wrong), []).append((size, pleases))
    canvas, axes = canvas_of(3.0)
    for place, ((thumbs, wrong), points) in enumerate(lines.items()):
        label = f"{thumbs} thumbs" + (f", {wrong:.0%} wrong" if wrong else "")
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=COLOURS[place], label=label)
    axes.axvline(11.3, color=INK, linestyle=":")  # to the right of it: replies to any question
    axes.set_xscale("log", base=2)
    sizes = [size for size, _ in next(iter(lines.values()))]
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("N (from 16 on: replies to any question)", color=INK)
    axes.set_ylabel("pleases", color=INK)
    save(canvas, axes, path)
