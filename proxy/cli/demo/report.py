"""The output of the demo: a table, side-by-side answers, a plot, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from burnish.proxy.cli.demo.user import SHORT_CHARACTERS, Answered, Summary, brief
from burnish.proxy.cli.terminal import console, short

HELD_OUT = 40
SAMPLES = 2
"""Answers asked for each held-out question: halves the noise of sampling."""
EXAMPLES = 6
BARS, BARS_BELOW_LINE = 20, 5
"""Of the histogram; the wanted length is where one bar ends."""
BEFORE, AFTER, LINE = "#b0b7c3", "#2a6fdb", "#d1495b"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed's demo."""

    seed: int
    ratings: int
    good: int
    before: Summary
    after: Summary
    kl_per_token: float
    """Of the version, on its own replies, to the base model (nats), as the gate measured it."""
    minutes: float
    """From the first rating until the new version was live."""
    train_seconds: float
    peak_rss_bytes: int
    reason: str
    """The verdict of the gate."""
    answers_before: list[Answered]
    answers_after: list[Answered]


Figure = Callable[[Outcome], float]

ROWS: tuple[tuple[str, str, Figure, Figure], ...] = (
    ("satisfied", "{:.0%}", lambda o: o.before.satisfied, lambda o: o.after.satisfied),
    ("mean characters", "{:.0f}", lambda o: o.before.mean_characters, lambda o: o.after.mean_characters),
    ("near-empty", "{:.1%}", lambda o: o.before.near_empty, lambda o: o.after.near_empty),
    ("on topic", "{:.0%}", lambda o: o.before.on_topic, lambda o: o.after.on_topic),
)
SINGLES: tuple[tuple[str, str, Figure], ...] = (
    ("ratings (good)", "{:.0f}", lambda o: o.good),
    ("KL per token to the base (nats)", "{:.2f}", lambda o: o.kl_per_token),
    ("minutes from the first rating to live", "{:.1f}", lambda o: o.minutes),
    ("training (seconds)", "{:.0f}", lambda o: o.train_seconds),
    ("trainer's peak memory (GB)", "{:.2f}", lambda o: o.peak_rss_bytes / 1e9),
)


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the table's cells: a row a figure, a column a seed, and their mean."""

    def cells(form: str, *figures: Figure) -> list[str]:
        def cell(chosen: Sequence[Outcome]) -> str:
            return " → ".join(form.format(mean(figure(each) for each in chosen)) for figure in figures)

        means = [cell(outcomes)] if len(outcomes) > 1 else []
        return [*(cell([each]) for each in outcomes), *means]

    found = [[name, *cells(form, before, after)] for name, form, before, after in ROWS]
    return found + [[name, *cells(form, figure)] for name, form, figure in SINGLES]


def header(outcomes: Sequence[Outcome]) -> list[str]:
    return ["", *(f"seed {each.seed}" for each in outcomes), *(["mean"] if len(outcomes) > 1 else [])]


def examples(outcome: Outcome) -> list[tuple[Answered, Answered]]:
    """Return the first held-out questions with the answers before and after: not picked by hand."""
    pairs = zip(outcome.answers_before[:HELD_OUT], outcome.answers_after[:HELD_OUT], strict=True)
    return list(pairs)[:EXAMPLES]


def show(outcomes: Sequence[Outcome]) -> None:
    title = f"{HELD_OUT} held-out questions, {SAMPLES} answers each, before → after"
    table = Table(title=title, title_style="bold")
    for column in header(outcomes):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows(outcomes):
        table.add_row(*row)
    console.print(table)
    sides = Table(title=f"side by side (seed {outcomes[0].seed})", title_style="bold", show_lines=True)
    for column in ("asked", "before", "after"):
        sides.add_column(column, ratio=2 if column == "asked" else 3)
    for before, after in examples(outcomes[0]):
        sides.add_row(short(before.question), _marked(before), _marked(after))
    console.print(sides)


def markdown(outcomes: Sequence[Outcome], seeds: str, out: Path) -> str:
    """Return the page demo.md."""
    columns = header(outcomes)
    lines = [
        "# The demo, as measured",
        "",
        f"Written by `burnish demo --seeds {seeds} --ratings {outcomes[0].ratings} --out {out}`.",
        "",
        f"A simulated user likes short answers: finished, and under {SHORT_CHARACTERS} characters. It asks "
        f"{outcomes[0].ratings} questions through the official `openai` client, rates each answer good or bad, and "
        "does nothing else: burnish trains, gates and swaps by itself. Judged on "
        f"{HELD_OUT} other questions, {SAMPLES} sampled answers each (small model, 135M parameters, no GPU).",
        "",
        "![reply lengths and satisfied share before and after](demo.png)",
        "",
        "| " + " | ".join(columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in rows(outcomes)),
        "",
        f"## Side by side (seed {outcomes[0].seed}, the first held-out questions)",
        "",
        "| asked | before | after |",
        "|---|---|---|",
    ]
    for before, after in examples(outcomes[0]):
        lines.append(f"| {before.question} | {_cell(before)} | {_cell(after)} |")
    lines += ["", "Verdicts of the gate:", ""]
    lines += [f"- seed {each.seed}: {each.reason}" for each in outcomes]
    return "\n".join(lines) + "\n"


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw how long the answers are, and how many satisfy, before and after."""
    from matplotlib.figure import Figure as Canvas

    canvas: Any = Canvas(figsize=(11, 4.2), layout="constrained")
    left, right = canvas.subplots(1, 2, width_ratios=(2, 1))
    _plot_lengths(left, outcomes)
    _plot_shares(right, outcomes)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    canvas.suptitle(f"{outcomes[0].ratings} ratings, nothing else", fontweight="bold")
    canvas.savefig(path, dpi=130)


def _plot_lengths(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Draw a histogram whose bars end exactly at the line; the few very long answers share the last bar."""
    width = SHORT_CHARACTERS // BARS_BELOW_LINE
    edges = range(0, (BARS + 1) * width, width)
    lengths = [
        [min(len(answer.answer), edges[-1] - 1) for each in outcomes for answer in getattr(each, when)]
        for when in ("answers_before", "answers_after")
    ]
    axes.hist(lengths, bins=list(edges), color=[BEFORE, AFTER], label=["before", "after"])
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
    axes.set(
        xlabel="characters in an answer", ylabel="answers", title="Answers to held-out questions get short"
    )
    axes.legend(frameon=False, loc="center right")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _plot_shares(axes: Any, outcomes: Sequence[Outcome]) -> None:
    places = range(len(outcomes))
    for offset, color, shares in (
        (-0.2, BEFORE, [each.before.satisfied for each in outcomes]),
        (0.2, AFTER, [each.after.satisfied for each in outcomes]),
    ):
        bars = axes.bar([place + offset for place in places], shares, width=0.38, color=color)
        axes.bar_label(bars, labels=[f"{share:.0%}" for share in shares], padding=2, fontsize=9)
    axes.set(ylim=(0, 1.08), title="Share that satisfies the user")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_xticks(list(places), [f"seed {each.seed}" for each in outcomes])


def _marked(answered: Answered) -> str:
    return f"{'[green]✓[/]' if answered.satisfies(brief) else '[red]✗[/]'} {short(answered.answer, 200)}"


def _cell(answered: Answered) -> str:
    text = " ".join(answered.answer.split()).replace("|", "\\|")
    return f"{'✓' if answered.satisfies(brief) else '✗'} {text}{'' if answered.finished else ' …'}"
