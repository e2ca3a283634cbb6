"""``burnish data export`` and ``import``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

import typer
from rich.markup import escape

from burnish.parts.datasets.files import OWN
from burnish.parts.datasets.formats import atif, trl_rollouts, verifiers
from burnish.parts.datasets.importing import FORMATS, ImportReport, read_files, send
from burnish.parts.datasets.to_records import read_metric
from burnish.parts.datasets.writing import TRL_TYPES, example_lines
from burnish.terminal.client import Proxy
from burnish.terminal.errors import WrongUsage
from burnish.terminal.terminal import Json, Url, console, errors, new_file, printed_json

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

RECORDS_A_PAGE = 200
CONVERSATIONS_A_PAGE = 50
"""Each comes with the whole contexts of its rated answers."""
ROLLOUTS_A_PAGE = 10
"""Each comes with the whole context of each step, and its token ids."""
SHOWN_PROBLEMS = 20
"""Lines that can't be read, and are named."""


class ExportFormat(StrEnum):
    SFT = "sft"
    DPO = "dpo"
    KTO = "kto"
    TRL = "trl"
    JSONL = "jsonl"
    TRL_ROLLOUTS = "trl-rollouts"
    VERIFIERS = "verifiers"
    ATIF = "atif"


class RolloutFormat(NamedTuple):
    called: str
    """What a line is."""
    lines: Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]
    why_not: Callable[[Mapping[str, Any]], str | None] = lambda rollout: None
    """Why a rollout can't become any."""


ROLLOUTS = {
    ExportFormat.TRL_ROLLOUTS: RolloutFormat("sequences", trl_rollouts.lines, trl_rollouts.why_not),
    ExportFormat.VERIFIERS: RolloutFormat("episodes", verifiers.lines),
    ExportFormat.ATIF: RolloutFormat("trajectories", atif.lines),
}


@app.command("export")
def export(
    name: Annotated[
        ExportFormat,
        typer.Option(
            "--as",
            help="sft, dpo, kto: datasets; trl: TRL's three files; jsonl: everything; trl-rollouts, verifiers, atif: "
            "rollouts for other trainers.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to create (trl: the folder). By default standard output.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Of rollouts: only those of this task.")] = None,
    url: Url = None,
) -> None:
    """Write a dataset from the log, one JSON object per line.

    What is left out, and why, is counted on standard error.
    """
    proxy = Proxy(url)
    if task is not None and name not in ROLLOUTS:
        raise WrongUsage(f"--task is for {', '.join(ROLLOUTS)}: answers of --as {name.value} have no task")
    if name is ExportFormat.TRL:
        if out is None:
            raise WrongUsage("--as trl writes three files: name a folder with --out")
        _export_trl(proxy, out)
        return
    with ExitStack() as stack:
        file = stack.enter_context(new_file(out)) if out else sys.stdout
        if name is ExportFormat.JSONL:
            _report(_export_everything(proxy, file), Counter())
        elif name in ROLLOUTS:
            _export_rollouts(proxy, file, ROLLOUTS[name], task)
        else:
            _export_datasets(proxy, {name.value: file})


def _export_everything(proxy: Proxy, file: TextIO) -> Counter[str]:
    kinds: Counter[str] = Counter()
    page: dict[str, Any] = {"has_more": True, "data": [{"id": ""}]}
    while page["has_more"]:
        page = proxy.get("/burnish/records", after=page["data"][-1]["id"], limit=RECORDS_A_PAGE)
        for record in page["data"]:
            _write(file, record)
            kinds[record["object"]] += 1
    return kinds


def _export_rollouts(proxy: Proxy, file: TextIO, form: RolloutFormat, task: str | None) -> None:
    kinds: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    cursor: str | None = ""
    while cursor is not None:
        page = proxy.get("/burnish/rollouts", after=cursor, limit=ROLLOUTS_A_PAGE, task=task)
        for rollout in page["data"]:
            if reason := rollout["obstacle"] or form.why_not(rollout):
                left_out[reason] += 1
                continue
            for line in form.lines(rollout):
                _write(file, line)
                kinds[form.called] += 1
        cursor = page["after"]
    _report(kinds, left_out)


def _export_trl(proxy: Proxy, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUsage(f"cannot create {folder}: {error.strerror}") from error
    with ExitStack() as stack:
        _export_datasets(
            proxy,
            {trl_type: stack.enter_context(new_file(folder / f"{trl_type}.jsonl")) for trl_type in TRL_TYPES},
        )


def _export_datasets(proxy: Proxy, files: dict[str, TextIO]) -> None:
    kinds: dict[str, Counter[str]] = {name: Counter() for name in files}
    left_out: dict[str, Counter[str]] = {name: Counter() for name in files}
    for answer in _rated(proxy):
        for name, file in files.items():
            for example in example_lines(name, answer, left_out[name]):
                _write(file, example.line)
                kinds[name][example.kind] += 1
    for name in files:
        if len(files) > 1:
            errors.print(f"[bold]{name}.jsonl[/]")
        _report(kinds[name], left_out[name])


def _rated(proxy: Proxy) -> Iterator[dict[str, Any]]:
    cursor: str | None = ""
    while cursor is not None:
        page = proxy.get("/burnish/rated", after=cursor, limit=CONVERSATIONS_A_PAGE)
        yield from page["data"]
        cursor = page["after"]


def _write(file: TextIO, line: dict[str, Any]) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _report(kinds: Counter[str], left_out: Counter[str]) -> None:
    of_kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    errors.print(f"wrote {kinds.total()} lines{f': {of_kinds}' if of_kinds else ''}")
    for reason, count in left_out.most_common():
        errors.print(f"left out {count}: {escape(reason)}")


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON or JSON lines; several that belong together."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar=f"<{'|'.join((OWN, *FORMATS))}>",
            help="By default it is told from the lines.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=WORST..BEST]",
            help="Which score is the rating, if there are several; its range, unless 0..1, -1..1 or 1..5.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and store nothing.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Store ratings, preferences, corrections and demonstrations, with their contexts.

    Reads what `burnish data export` writes, and exports of Langfuse, Open WebUI and LangSmith. What is
    there already stays, so a file can be imported again. Lines that can't be read are named and skipped.
    """
    try:
        metrics = dict(read_metric(text) for text in metric or ())
    except ValueError as error:
        raise WrongUsage(f"--metric: {error}") from error
    records = read_files(files, name, metrics)
    report = send(Proxy(url), records, dry_run=dry_run)
    if not printed_json(report.as_json(), as_json):
        _print(report, dry_run=dry_run)


def _print(report: ImportReport, *, dry_run: bool) -> None:
    for problem in report.problems[:SHOWN_PROBLEMS]:
        errors.print(f"[red]skipped[/] {escape(problem.place)}: {escape(problem.reason)}")
    if len(report.problems) > SHOWN_PROBLEMS:
        errors.print(f"[red]skipped[/] {len(report.problems) - SHOWN_PROBLEMS} more lines")
    for reason, count in report.left_out.most_common():
        errors.print(f"left out {count}: {escape(reason)}")
    for reason, count in report.unusable.most_common():
        errors.print(f"[yellow]can't teach[/] {count}: {escape(reason)}")
    verb = "[green]would import[/]" if dry_run else "[green]imported[/]"
    console.print(f"{verb} {_counts(report.new)} from {escape(report.format)}", soft_wrap=True)
    if report.duplicates:
        console.print(f"already there: {_counts(report.duplicates)}", soft_wrap=True)
    if report.new["feedback"]:
        console.print(f"training can use {report.usable} of {report.new['feedback']} pieces of feedback")


def _counts(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {WORDS[kind]}" for kind, count in sorted(kinds.items())) or "nothing"


WORDS = {
    **{"completion": "answers", "feedback": "pieces of feedback", "passthrough": "passthrough records"},
    **{"duel": "duels", "instruction": "instructions"},
}
