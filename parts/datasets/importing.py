"""How ``burnish data import`` reads files, and sends their records to a running burnish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from burnish.parts.datasets.parsed import FileRow, ParsedExport, Problem
from burnish.parts.datasets.readers import FORMATS, OWN, REMOVED, format_of, rows_of
from burnish.parts.datasets.to_records import Line, Range, SeveralMetrics, record_lines
from burnish.terminal.client import Proxy
from burnish.terminal.errors import WrongUsage

RECORDS_A_BATCH = 25
"""One transaction each, of about 40 ms; ratings and the log wait for it, requests don't."""
BYTES_A_BATCH = 4 * 1024 * 1024
BYTES_A_RECORD = 32 * 1024 * 1024
"""More than any request that burnish logs."""
TOO_LARGE = f"it is larger than {BYTES_A_RECORD // 1024**2} MiB"
UNKNOWN_FORMAT = "none of their lines looks like a format that burnish reads: name it with --format"


class FileRecords(NamedTuple):
    format: str
    lines: list[Line]
    problems: list[Problem]
    left_out: Counter[str]


@dataclass(slots=True)
class ImportReport:
    """What became of the lines of some files."""

    format: str
    problems: list[Problem]
    left_out: Counter[str]
    new: Counter[str] = field(default_factory=Counter)
    """Records by kind."""
    duplicates: Counter[str] = field(default_factory=Counter)
    """Those that the log had already."""
    usable: int = 0
    """New pieces of feedback that training can use."""
    unusable: Counter[str] = field(default_factory=Counter)
    """New pieces of feedback of which it can't use all, by reason."""

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "new": self.new,
            "known": self.duplicates,
            "usable": self.usable,
            "unusable": self.unusable,
            "left_out": self.left_out,
            "skipped": [problem._asdict() for problem in self.problems],
        }


def read_files(files: Sequence[Path], name: str | None, metrics: Mapping[str, Range | None]) -> FileRecords:
    """Return the records in files. Raises WrongUsage."""
    if name and name not in (OWN, *FORMATS, *REMOVED):
        raise WrongUsage(
            f"there is no format {name!r} to import: expected one of {', '.join((OWN, *FORMATS))}"
        )
    try:
        rows, problems = rows_of(files)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        raise WrongUsage(f"cannot read {prefix}{error.strerror}") from error
    if not rows and not problems:
        raise WrongUsage("there is nothing in these files")
    if (name := name or format_of(rows)) is None:
        first = f" ({problems[0].place}: {problems[0].reason})" if problems else ""
        raise WrongUsage(UNKNOWN_FORMAT + first)
    if name in REMOVED:
        raise WrongUsage(REMOVED[name])
    if name == OWN:
        return FileRecords(name, _in_order(rows), problems, Counter())
    export = ParsedExport(name, problems=problems)
    FORMATS[name](rows, export)
    try:
        lines = record_lines(export, metrics)
    except SeveralMetrics as error:
        counts = ", ".join(f"{metric} ({count})" for metric, count in error.counts.items())
        raise WrongUsage(
            f"the files measure several things: {counts}. Say which is the rating: --metric NAME"
        ) from error
    return FileRecords(name, lines, export.problems, +export.left_out)


def _in_order(rows: Sequence[FileRow]) -> list[Line]:
    """Return lines of our own with the answers first, because feedback and duels name them."""
    return sorted(
        (Line(row.place, row.content) for row in rows),
        key=lambda line: line.content.get("object") != "completion",
    )


class Importing:
    """Sends records in batches. Each is stored whole or not at all, so an import that broke off can be repeated."""

    def __init__(self, proxy: Proxy, *, dry_run: bool) -> None:
        self._proxy = proxy
        self._dry_run = dry_run

    def send(self, records: FileRecords) -> ImportReport:
        """Raises NotRunning, CommandFailed."""
        sized = [(line, len(json.dumps(line.content))) for line in records.lines]
        large = [Problem(line.place, TOO_LARGE) for line, size in sized if size > BYTES_A_RECORD]
        report = ImportReport(records.format, [*records.problems, *large], records.left_out)
        fitting = [(line, size) for line, size in sized if size <= BYTES_A_RECORD]
        for batch, answers in _batches(fitting, trial=self._dry_run):
            contents = [line.content for line in (*answers, *batch)]
            answer = self._proxy.post("/burnish/records", {"records": contents, "dry_run": self._dry_run})
            for line, outcome in zip(batch, answer["data"][len(answers) :], strict=True):
                _count(report, line, outcome)
        report.problems.sort(key=lambda problem: problem.order)
        return report


def _count(report: ImportReport, line: Line, outcome: Mapping[str, Any]) -> None:
    if outcome["refused"]:
        report.problems.append(Problem(line.place, outcome["refused"]))
        return
    kind = line.content["object"]
    (report.new if outcome["new"] else report.duplicates)[kind] += 1
    if kind == "feedback" and outcome["new"]:
        report.usable += bool(outcome["usable"])
        if outcome["reason"]:
            report.unusable[outcome["reason"]] += 1


def _batches(lines: Sequence[tuple[Line, int]], *, trial: bool) -> Iterator[tuple[list[Line], list[Line]]]:
    """Yield the batches of lines with their sizes, each with the answers that it needs besides.

    ``trial``: what an earlier batch brought isn't there, so a batch comes with the answers that it names.
    """
    answers = {
        line.content.get("id"): line for line, _ in lines if line.content.get("object") == "completion"
    }
    batch: list[Line] = []
    total = 0
    for line, size in lines:
        if batch and (len(batch) >= RECORDS_A_BATCH or total + size > BYTES_A_BATCH):
            yield batch, _named(batch, answers) if trial else []
            batch, total = [], 0
        batch.append(line)
        total += size
    if batch:
        yield batch, _named(batch, answers) if trial else []


def _named(batch: Sequence[Line], answers: Mapping[Any, Line]) -> list[Line]:
    """Return the answers that the feedback in a batch names, and that aren't in it."""
    names = {
        str(line.content[name]).partition("/")[0]
        for line in batch
        for name in ("completion_id", "preferred_over")
        if line.content.get(name)
    }
    inside = {line.content.get("id") for line in batch}
    return [answers[name] for name in sorted(names - inside) if name in answers]
