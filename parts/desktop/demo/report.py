"""The output of the demo: tables and side-by-side answers, in the terminal and as Markdown, and a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.halves import Half
from burnish.parts.desktop.demo.outcome import HELD_OUT, ROWS, SAMPLES, TrialOutcome, cell, record
from burnish.parts.desktop.demo.user import MAX_TOKENS, SHORT_CHARACTERS, AnsweredQuestion, brief
from burnish.terminal.terminal import console, short

EXAMPLES = 6
LONGEST = 200
"""Characters of an answer that are shown."""
MARKS = f"✓ means short: finished, and under {SHORT_CHARACTERS} characters. It doesn't mean right."


def by_half(outcomes: Sequence[TrialOutcome]) -> list[tuple[Half, list[TrialOutcome]]]:
    return [(half, list(of)) for half, of in groupby(outcomes, key=lambda outcome: outcome.half)]


def rows(outcomes: Sequence[TrialOutcome]) -> list[list[str]]:
    """Return the cells of the table of one half: a row for each figure, a column for each seed, and their mean."""
    records = [record(outcome) for outcome in outcomes]
    columns = [[record] for record in records] + ([records] if len(records) > 1 else [])
    return [[name, *(cell(name, column) for column in columns)] for name in ROWS]


def header(outcomes: Sequence[TrialOutcome]) -> list[str]:
    return ["", *(f"seed {outcome.seed}" for outcome in outcomes), *(["mean"] if len(outcomes) > 1 else [])]


def examples(outcome: TrialOutcome) -> list[tuple[AnsweredQuestion, AnsweredQuestion]]:
    """Return the first held-out questions with the answers before and after: not picked by hand."""
    pairs = zip(outcome.exam_before.answers[:HELD_OUT], outcome.exam_after.answers[:HELD_OUT], strict=True)
    return list(pairs)[:EXAMPLES]


def show(outcomes: Sequence[TrialOutcome]) -> None:
    for half, of in by_half(outcomes):
        figures = Table(title=f"{half.name}: {half.title}", title_style="bold")
        for column in header(of):
            figures.add_column(column, justify="left" if not column else "right")
        for row in rows(of):
            figures.add_row(*row)
        console.print(figures)
        sides = Table(title=f"side by side (seed {of[0].seed})", title_style="bold", show_lines=True)
        for column in ("asked", "before", "after"):
            sides.add_column(column, ratio=2 if column == "asked" else 3)
        for old, new in examples(of[0]):
            sides.add_row(short(old.question), _marked(old), _marked(new))
        console.print(sides)
    console.print(f"[dim]{MARKS}[/]")


def markdown(outcomes: Sequence[TrialOutcome], command: str) -> str:
    """Return the page demo.md, which names the command that wrote it."""
    lines = [
        "# The demo, as measured",
        "",
        f"Written by `{command}`.",
        "",
        f"A simulated user likes short answers: finished, and under {SHORT_CHARACTERS} characters. It talks to "
        f"burnish through the official `openai` client, which cuts answers at {MAX_TOKENS} tokens. Each half starts "
        "from the base model.",
        "",
        f"Measured before → after, on {HELD_OUT} questions that were never rated ({SAMPLES} sampled answers each), "
        f"and on the gate's {len(FACTS)} facts. The model is `{outcomes[0].model}`.",
        "",
        "![answer lengths, share of short answers, and facts known, before and after](demo.png)",
    ]
    for half, of in by_half(outcomes):
        lines += _section(half, of)
    return "\n".join(lines) + "\n"


def _section(half: Half, outcomes: Sequence[TrialOutcome]) -> Iterator[str]:
    columns = header(outcomes)
    yield from ("", f"## {half.name.capitalize()}", "", f"{half.title}.", "")
    yield "| " + " | ".join(columns) + " |"
    yield "|---" + "|---:" * (len(columns) - 1) + "|"
    for row in rows(outcomes):
        yield "| " + " | ".join(row) + " |"
    yield from ("", "Verdicts of the gate:", "")
    for outcome in outcomes:
        yield f"- seed {outcome.seed}: {outcome.reason}"
    yield from ("", f"The first held-out questions, seed {outcomes[0].seed}. {MARKS}", "")
    yield from ("| asked | before | after |", "|---|---|---|")
    for old, new in examples(outcomes[0]):
        yield f"| {old.question} | {_cell(old)} | {_cell(new)} |"


def _marked(answer: AnsweredQuestion) -> str:
    mark = "[green]✓ short[/]" if answer.satisfies(brief) else "[red]✗[/]"
    return f"{mark} {short(answer.answer, LONGEST)}"


def _cell(answer: AnsweredQuestion) -> str:
    text = " ".join(answer.answer.split())
    if len(text) > LONGEST:
        text = text[:LONGEST].rsplit(" ", 1)[0] + " […]"
    elif not answer.finished:
        text += " …"
    mark = "✓" if answer.satisfies(brief) else "✗"
    return f"{mark} {text}".replace("|", "\\|")


# -- the plot ----------------------------------------------------------------------------------------------------------

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
        part.suptitle(half.title, fontweight="bold")
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
