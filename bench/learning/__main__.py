"""Simulated users with hidden preferences, and how fast burnish learns them.

``python -m bench.learning`` goes on where it stopped. The claims of the documentation come first with three seeds, then
everything else with one: some hours on two cores. Stop it whenever you like.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.learning import grid, report
from bench.learning.learn import NothingLearnt
from bench.learning.rates import rates
from burnish.parts.desktop.demo.running import DidNotStart

console = Console()


class Refused(Exception):
    """The bench can't run as asked, or a limit was missed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flag = parser.add_argument
    flag(
        "--quick",
        action="store_true",
        help="two cells with limits, about ten minutes; exits 1 if one is missed",
    )
    flag("--rates", action="store_true", help="only how often the base model pleases each user; some minutes")
    flag(
        "--large",
        action="store_true",
        help="the three users that need a larger model (--model or --upstream)",
    )
    flag(
        "--only",
        default="",
        metavar="TEXT",
        help="only cells whose name contains this, e.g. brief-cold/critique",
    )
    flag(
        "--model",
        help="a GGUF file to learn on instead of the small model; or the name of --upstream's model",
    )
    flag("--upstream", metavar="URL", help="learn in this engine; afterwards it serves the base model again")
    flag(
        "--out",
        type=Path,
        default=Path("burnish-bench"),
        metavar="FOLDER",
        help="for records, report and plots",
    )
    given = parser.parse_args()
    try:
        missing = [name for name in ("openai", "matplotlib") if importlib.util.find_spec(name) is None]
        if missing:
            raise Refused(f"{', '.join(missing)} must be installed: run scripts/install")
        settings = _settings(given.model, given.upstream)
        if given.rates:
            _rates(settings, given.large, given.out)
        else:
            _cells(settings, given.quick, given.large, given.only, given.out)
    except (Refused, NothingLearnt, DidNotStart) as error:
        print(f"bench.learning: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


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
        raise Refused(f"no cell's name contains {only!r}; one is {grid.QUICK[0].key}")
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
        raise Refused(f"{missed} of {len(checks)} limits were missed")


def _command() -> str:
    return shlex.join(["python", "-m", "bench.learning", *sys.argv[1:]])


def _say(doing: str) -> None:
    console.print(f"[dim]{doing}[/]", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
