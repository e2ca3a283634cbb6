"""House conventions: which ones a sentence in the prompt can teach, and what comments teach through burnish.

``sweep`` asks the base model, and the base model with one sentence; it trains nothing. ``cell NAME --order N`` teaches
one convention by 16 comments, and examines all columns. ``dose NAME --comments N`` teaches it alone by another number.
``tables`` prints the tables of the files, and draws a chart. Each goes on from where it stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.conventions import cell_tables
from bench.conventions.answers import AnswerFile, Assistant
from bench.conventions.cells import (
    CONVENTION_NAMES,
    DOSES,
    FULL,
    ORDERS,
    QUICK,
    SERVING,
    Cell,
    CellMissing,
    Dose,
    Size,
)
from bench.conventions.chart import draw
from bench.conventions.sweep import MAX_TOKENS, Sweep
from bench.conventions.tables import SWEEP_HEADER, sweep_rows
from bench.learning.learn import NothingLearnt
from bench.learning.report import markdown
from burnish.parts.desktop.demo.running import DidNotStart, burnish

ANSWERS = "answers.jsonl"
CHART = "comments.png"


def main() -> int:
    options = _parser().parse_args()
    try:
        if importlib.util.find_spec("openai") is None:
            raise DidNotStart("openai must be installed: run scripts/install")
        sweep = Sweep(AnswerFile(options.out / ANSWERS), options.n, options.tuning)
        if options.command == "sweep":
            with _engine(options.upstream, _settings(options)) as url:
                with Assistant(url, MAX_TOKENS, whole=False) as assistant:
                    sweep.ask(assistant, options.at_once, _say)
        elif options.command == "cell":
            _cell(options, sweep, options.convention, options.order).run()
        elif options.command == "dose":
            Dose.of(_first(options, sweep, options.convention), options.comments).run()
        _print(options, sweep)
    except (CellMissing, NothingLearnt, DidNotStart) as error:
        print(f"bench.conventions: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.conventions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flag = parser.add_argument
    flag(
        "--model",
        help="a GGUF file to ask and to teach instead of the small model; or the name of --upstream's model",
    )
    flag("--upstream", metavar="URL", help="an engine that runs already")
    flag(
        "--out",
        type=Path,
        default=Path("burnish-conventions"),
        metavar="FOLDER",
        help="for answers; one for each model",
    )
    flag("--at-once", type=int, default=4, metavar="N", help="requests at a time (4)")
    flag("--n", type=int, default=48, help="answers of a column of the sweep (48)")
    flag("--tuning", type=int, default=8, help="questions on which each wording of a sentence is tried (8)")
    flag("--quick", action="store_true", help="cells of 2 comments and 4 questions, to see that all runs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sweep", help="ask the base and the sentences")
    commands.add_parser("tables", help="print the tables and draw the chart")
    cell = commands.add_parser("cell", help="teach one convention and examine all columns")
    cell.add_argument("convention", choices=CONVENTION_NAMES)
    cell.add_argument("--order", type=int, choices=ORDERS, required=True)
    dose = commands.add_parser("dose", help="teach one convention alone by another number of comments")
    dose.add_argument("convention", choices=CONVENTION_NAMES)
    dose.add_argument("--comments", type=int, choices=DOSES, required=True)
    return parser


def _settings(options: argparse.Namespace) -> dict[str, str]:
    settings = {"BURNISH_UPSTREAM": options.upstream} if options.upstream else {}
    if options.model:
        # burnish runs in a folder of its own.
        name = options.model if options.upstream else str(Path(options.model).expanduser().absolute())
        settings["BURNISH_MODEL"] = name
    return settings


@contextmanager
def _engine(upstream: str | None, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the URL to ask: the engine that was given, or a burnish that trains nothing."""
    if upstream:
        yield upstream.removesuffix("/")
        return
    with (
        tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder,
        burnish(Path(folder), {**settings, **SERVING}) as url,
    ):
        yield url


def _cell(options: argparse.Namespace, sweep: Sweep, name: str, order: int) -> Cell:
    size: Size = QUICK if options.quick else FULL
    folder = options.out / ("quick" if options.quick else "cells")
    return Cell(name, order, folder.absolute(), size, sweep, _settings(options), options.at_once, _say)


def _first(options: argparse.Namespace, sweep: Sweep, name: str) -> Cell:
    """Return the cell that teaches a convention to the base model."""
    return _cell(options, sweep, name, 1 + CONVENTION_NAMES.index(name))


def _print(options: argparse.Namespace, sweep: Sweep) -> None:
    _table("A sentence in the system prompt", SWEEP_HEADER, sweep_rows(sweep))
    every = [_cell(options, sweep, name, order) for order in ORDERS for name in CONVENTION_NAMES]
    cells = [cell for cell in every if cell.record]
    first = {name: _first(options, sweep, name) for name in CONVENTION_NAMES}
    for cell in every:
        # The columns without training are all orders' own, and stand in the first one.
        if cell.record or cell.order == first[cell.name].order:
            title = f"{cell.name}, order {cell.order}, place {len(cell.sequence)}"
            _table(f"{title}: scope", cell_tables.SCOPE_HEADER, cell_tables.scope_rows(cell))
            _table(f"{title}: cost", cell_tables.COST_HEADER, cell_tables.cost_rows(cell))
    _table("Gain in scope", cell_tables.GAIN_HEADER, cell_tables.gain_rows(cells))
    _table("What else changes", cell_tables.CHANGE_HEADER, cell_tables.change_rows(cells))
    _table("What lasts", cell_tables.LASTING_HEADER, cell_tables.lasting_rows(cells))
    _table("All three at once", cell_tables.TOGETHER_HEADER, cell_tables.together_rows(cells))
    doses = [Dose.of(cell, comments) for cell in first.values() for comments in DOSES]
    results = cell_tables.dosages([*first.values(), *doses])
    _table("By the number of comments", cell_tables.DOSE_HEADER, cell_tables.dose_rows(results))
    chart = options.out / CHART
    if draw(results, first, chart):
        print(f"\n{chart}")


def _table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    if rows:
        print(f"\n## {title}\n", *markdown(columns, rows), sep="\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
