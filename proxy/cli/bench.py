"""``burnish bench learning``: simulated users with hidden preferences, and how fast burnish learns them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from burnish.bench import grid, report
from burnish.bench.cell import NothingLearnt
from burnish.bench.running import DidNotStart
from burnish.proxy.cli.errors import CommandFailed
from burnish.proxy.cli.terminal import console

app = typer.Typer(help="Measure burnish on this machine.", no_args_is_help=True)


@app.command("learning")
def learning(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Two cells with limits, some ten minutes; exits 1 when one is missed."),
    ] = False,
    only: Annotated[
        str, typer.Option(help="Only cells whose name contains this, e.g. brief-cold/critique.")
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder for results.jsonl, learning.md and the plots.")] = Path(
        "burnish-bench"
    ),
) -> None:
    """Let simulated users rate and comment, and see what burnish learns from it; goes on where it stopped.

    The whole grid takes many hours on two cores; stop it whenever you like.
    """
    missing = [name for name in ("openai", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(f'the bench needs {", ".join(missing)}: pip install "burnish[demo]"')
    cells = [cell for cell in (grid.QUICK if quick else grid.full()) if only in cell.key]
    try:
        records = grid.work_through(cells, out, lambda doing: console.print(f"[dim]{doing}[/]"))
    except (NothingLearnt, DidNotStart) as error:
        raise CommandFailed(str(error)) from error
    measured = [records[cell.key] for cell in cells]
    for table in report.tables(measured):
        console.print(table)
    report.write(list(records.values()), out)
    console.print(f"[dim]written: {out / 'learning.md'}[/]")
    if quick and (missed := report.missed(measured)):
        raise CommandFailed("; ".join(missed))
