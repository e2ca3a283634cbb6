"""Show a verdict of the gate: the decision, its reasons, and replies side by side."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from burnish.terminal.terminal import console

MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
STYLES = {"passed": "green", "rejected": "red", "undecided": "yellow"}
# Columns needed to read two replies side by side.
WIDE = 100
SIDES = ("before", "after")


def explain(verdict: dict[str, Any]) -> None:
    """Print a verdict as ``GET /burnish/adapters/{n}`` gives it."""
    console.print(f"\n[{STYLES[verdict['outcome']]}]{escape(verdict['headline'])}[/]")
    for group in verdict["groups"]:
        console.print(f"\n[dim]{escape(group['title'])}[/]")
        checks = [check for check in verdict["checks"] if check["kind"] == group["kind"]]
        for check in checks:
            console.print(_hanging(MARKS[check["passed"]], escape(check["text"])))
    for example in verdict.get("examples", ()):
        _side_by_side(example)


def _side_by_side(example: dict[str, Any]) -> None:
    """Print two replies in columns, or one below the other on a narrow terminal."""
    console.print(f"\n[bold]{escape(example['prompt'])}[/]  [dim]{escape(example['why'])}[/]")
    texts = [escape(example[side].strip()) or "[dim](nothing)[/]" for side in SIDES]
    if console.width >= WIDE:
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2), expand=True)
        for side in SIDES:
            table.add_column(side, ratio=1, overflow="fold")
        table.add_row(*texts)
        console.print(Padding(table, (0, 0, 0, 2)))
    else:
        for side, text in zip(SIDES, texts, strict=True):
            console.print(_hanging(f"[dim]{side:>6}[/]", text))


def _hanging(mark: str, text: str) -> Padding:
    """Indent the lines after the first one."""
    line = Table.grid(padding=(0, 1))
    line.add_row(mark, text)
    return Padding(line, (0, 0, 0, 2))
