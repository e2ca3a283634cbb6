"""``burnish bench learning``: simulated users with hidden preferences, and how fast burnish learns them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from burnish.bench import grid, report
from burnish.bench.learn import NothingLearnt
from burnish.bench.rates import rates
from burnish.bench.running import DidNotStart
from burnish.proxy.cli.errors import CommandFailed, WrongUsage
from burnish.proxy.cli.terminal import console

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("learning")
def learning(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Two cells with limits, ten minutes on two slow cores; exits 1 when one is missed.",
        ),
    ] = False,
    base_rates: Annotated[
        bool, typer.Option("--rates", help="Only how often the bare model pleases each user; some minutes.")
    ] = False,
    large: Annotated[
        bool,
        typer.Option("--large", help="The three users that need a larger model, see --model and --upstream."),
    ] = False,
    only: Annotated[
        str, typer.Option(help="Only cells whose name contains this, e.g. brief-cold/critique.")
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(help="A GGUF file to learn on instead of the small model; or the --upstream's model."),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="Learn in this engine instead of the embedded one; it is left as it was."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for results.jsonl, learning.md and the plots; one a model.")
    ] = Path("burnish-bench"),
) -> None:
    """Let simulated users rate and comment, and see what burnish learns from it; goes on where it stopped.

    What burnish claims comes first with three seeds, then everything else with one: some hours on two cores. Stop it
    whenever you like.
    """
    missing = [name for name in ("openai", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(f'the bench needs {", ".join(missing)}: pip install "burnish[demo]"')
    settings = _settings(model, upstream)
    try:
        if base_rates:
            _rates(settings, large, out)
        else:
            _cells(settings, quick, large, only, out)
    except (NothingLearnt, DidNotStart) as error:
        raise CommandFailed(str(error)) from error


def _settings(model: str | None, upstream: str | None) -> dict[str, str]:
    if upstream:
        return {"BURNISH_UPSTREAM": upstream} | ({"BURNISH_MODEL": model} if model else {})
    # burnish runs in a folder of its own.
    return {"BURNISH_MODEL": str(Path(model).expanduser().absolute())} if model else {}


def _rates(settings: dict[str, str], large: bool, out: Path) -> None:
    names = grid.LARGE if large else (*grid.LENGTH, *grid.STYLE)
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as scratch:
        found = rates(names, Path(scratch), settings, _say)
    console.print(report.table("base rates", report.RATES_HEADER, report.rate_rows(found)))
    report.write_rates(found, out, _command())
    console.print(f"[dim]written: {out / 'rates.md'}[/]")


def _cells(settings: dict[str, str], quick: bool, large: bool, only: str, out: Path) -> None:
    every = grid.QUICK if quick else grid.large() if large else grid.full()
    cells = [cell for cell in every if only in cell.key]
    if not cells:
        raise WrongUsage(f"no cell's name contains {only!r}; one is {grid.QUICK[0].key}")
    try:
        grid.work_through(cells, out, settings, _say)
    finally:  # also of a grid that was stopped
        records = grid.records(out)
        measured = [records[cell.key] for cell in cells if cell.key in records]
        for table in report.tables(measured):
            console.print(table)
        if records:
            report.write(list(records.values()), out, _command())
            console.print(f"[dim]written: {out / 'learning.md'}[/]")
    if quick:
        _check(report.checks(measured))


def _check(checks: list[report.Check]) -> None:
    for check in checks:
        console.print(
            f"{'[green]PASS[/]' if check.passed else '[red]FAIL[/]'}  {check.what}", highlight=False
        )
    if missed := sum(not check.passed for check in checks):
        raise CommandFailed(f"{missed} of {len(checks)} limits were missed")


def _command() -> str:
    return shlex.join(["burnish", *sys.argv[1:]])


def _say(doing: str) -> None:
    console.print(f"[dim]{doing}[/]", highlight=False)
