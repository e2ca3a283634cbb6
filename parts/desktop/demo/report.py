"""The output of the demo: tables and side-by-side answers, in the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from burnish.gate.questions import FACTS
from burnish.parts.desktop.demo.halves import Half
from burnish.parts.desktop.demo.outcome import HELD_OUT, ROWS, SAMPLES, Outcome, cell, record, table
from burnish.parts.desktop.demo.user import SHORT_CHARACTERS, Answered, brief
from burnish.terminal.terminal import console, short

EXAMPLES = 6
MARKS = f"✓ means short: finished, and under {SHORT_CHARACTERS} characters. It doesn't mean right."


def by_half(outcomes: Sequence[Outcome]) -> list[tuple[Half, list[Outcome]]]:
    return [(half, list(of)) for half, of in groupby(outcomes, key=lambda each: each.half)]


def title(half: Half) -> str:
    return f"{half.feedback}; {half.program}"


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the cells of the table of one half: a row for each figure, a column for each seed, and their mean."""
    records = [record(each) for each in outcomes]
    columns = [[each] for each in records] + ([records] if len(records) > 1 else [])
    return [[name, *(cell(name, column) for column in columns)] for name, _, _ in ROWS]


def header(outcomes: Sequence[Outcome]) -> list[str]:
    return ["", *(f"seed {each.seed}" for each in outcomes), *(["mean"] if len(outcomes) > 1 else [])]


def examples(outcome: Outcome) -> list[tuple[Answered, Answered]]:
    """Return the first held-out questions with the answers before and after: not picked by hand."""
    pairs = zip(outcome.before.answers[:HELD_OUT], outcome.after.answers[:HELD_OUT], strict=True)
    return list(pairs)[:EXAMPLES]


def show(outcomes: Sequence[Outcome]) -> None:
    for half, of in by_half(outcomes):
        figures = Table(title=f"{half.name}: {title(half)}", title_style="bold")
        for column in header(of):
            figures.add_column(column, justify="left" if not column else "right")
        for row in rows(of):
            figures.add_row(*row)
        console.print(figures)
        sides = Table(title=f"side by side (seed {of[0].seed})", title_style="bold", show_lines=True)
        for column in ("asked", "before", "after"):
            sides.add_column(column, ratio=2 if column == "asked" else 3)
        for before, after in examples(of[0]):
            sides.add_row(short(before.question), _marked(before), _marked(after))
        console.print(sides)
    console.print(f"[dim]{MARKS}[/]")


def markdown(outcomes: Sequence[Outcome], command: str) -> str:
    """Return the page demo.md, which names the command that wrote it."""
    lines = [
        "# The demo, as measured",
        "",
        f"Written by `{command}`.",
        "",
        f"A simulated user likes short answers: finished, and under {SHORT_CHARACTERS} characters. It talks to "
        "burnish through the official `openai` client. burnish trains, gates and swaps by itself. Each half starts "
        "from the base model.",
        "",
        *table([record(each) for each in outcomes]),
        "",
        f"Measured before → after, on {HELD_OUT} questions that were never rated ({SAMPLES} sampled answers each), "
        f"and on the gate's {len(FACTS)} facts. The model is `{outcomes[0].model}`.",
        "",
        "![answer lengths, share of short answers, and facts known, before and after](demo.png)",
    ]
    for half, of in by_half(outcomes):
        lines += _section(half, of)
    return "\n".join(lines) + "\n"


def _section(half: Half, outcomes: Sequence[Outcome]) -> Iterator[str]:
    columns = header(outcomes)
    yield from ("", f"## {half.name.capitalize()}", "", f"{_capital(title(half))}.", "")
    yield "| " + " | ".join(columns) + " |"
    yield "|---" + "|---:" * (len(columns) - 1) + "|"
    for row in rows(outcomes):
        yield "| " + " | ".join(row) + " |"
    yield from ("", "Verdicts of the gate:", "")
    for each in outcomes:
        yield f"- seed {each.seed}: {each.reason}"
    yield from ("", f"The first held-out questions, seed {outcomes[0].seed}. {MARKS}", "")
    yield from ("| asked | before | after |", "|---|---|---|")
    for before, after in examples(outcomes[0]):
        yield f"| {before.question} | {_cell(before)} | {_cell(after)} |"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _marked(answered: Answered) -> str:
    mark = "[green]✓ short[/]" if answered.satisfies(brief) else "[red]✗[/]"
    return f"{mark} {short(answered.answer, 200)}"


def _cell(answered: Answered) -> str:
    text = " ".join(answered.answer.split()).replace("|", "\\|")
    return f"{'✓' if answered.satisfies(brief) else '✗'} {text}{'' if answered.finished else ' …'}"
