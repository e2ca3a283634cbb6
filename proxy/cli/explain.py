"""Show a verdict of the gate: the decision, its reasons, and replies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from burnish.proxy.cli.terminal import console

MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
GROUPS = (
    ("better", "is it better? one proof is enough, and no check may fail"),
    ("sound", "is it sound?"),
    ("reported", "other changes (for information)"),
)
# Columns needed to read two replies side by side.
WIDE = 100
BEFORE, AFTER = "before", "after"


def explain(verdict: dict[str, Any]) -> None:
    """Print a verdict as ``GET /burnish/adapters/{n}`` gives it."""
    # Old verdicts have no kinds.
    checks = [{"kind": "sound"} | check for check in verdict["checks"]]
    console.print(f"\n{headline(verdict['outcome'], checks)}")
    for kind, title in GROUPS:
        chosen = [check for check in checks if check["kind"] == kind]
        if chosen:
            console.print(f"\n[dim]{title}[/]")
        for check in chosen:
            console.print(_hanging(MARKS[check["passed"]], escape(check["text"])))
    for example in verdict.get("examples", ()):
        _side_by_side(example)


def headline(outcome: str, checks: Sequence[dict[str, Any]]) -> str:
    """Return the decision and its first reason in one sentence."""
    proved = [check["text"] for check in checks if check["kind"] == "better" and check["passed"]]
    failed = [check["text"] for check in checks if check["passed"] is False]
    unknown = [check["text"] for check in checks if check["kind"] == "sound" and check["passed"] is None]
    if outcome == "passed":
        return f"The gate [green]passed[/] it: {_first(proved)}"
    if outcome == "rejected":
        return f"The gate [red]rejected[/] it: {_first(failed)}"
    if unknown:
        return f"The gate [yellow]could not decide[/]: {_first(unknown)}"
    return "The gate [yellow]could not decide[/]: no check failed, but nothing proves that it is better"


def _first(reasons: Sequence[str]) -> str:
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return escape(reasons[0]) + more


def _side_by_side(example: dict[str, Any]) -> None:
    """Print two replies in columns, or one below the other on a narrow terminal."""
    console.print(f"\n[bold]{escape(example['prompt'])}[/]  [dim]{escape(example['why'])}[/]")
    before, after = (escape(example[side].strip()) or "[dim](nothing)[/]" for side in (BEFORE, AFTER))
    if console.width >= WIDE:
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2), expand=True)
        for side in (BEFORE, AFTER):
            table.add_column(side, ratio=1, overflow="fold")
        table.add_row(before, after)
        console.print(Padding(table, (0, 0, 0, 2)))
    else:
        for side, text in ((BEFORE, before), (AFTER, after)):
            console.print(_hanging(f"[dim]{side:>6}[/]", text))


def _hanging(mark: str, text: str) -> Padding:
    """Indent the lines after the first one."""
    line = Table.grid(padding=(0, 1))
    line.add_row(mark, text)
    return Padding(line, (0, 0, 0, 2))
