"""How ``burnish data import`` reads files, and sends their records to a running burnish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from burnish.parts.datasets.examples import read_dpo, read_kto, read_sft
from burnish.parts.datasets.files import OWN, format_of, rows_of
from burnish.parts.datasets.formats import langfuse, langsmith, open_webui
from burnish.parts.datasets.parsed import FileRow, ParsedExport, Problem
from burnish.parts.datasets.spool import Spool
from burnish.parts.datasets.to_records import Line, Range, SeveralMetrics, record_lines
from burnish.terminal.client import Proxy
from burnish.terminal.errors import WrongUsage

FORMATS: Mapping[str, Callable[[Iterable[FileRow], ParsedExport], None]] = {
    "sft": read_sft,
    "dpo": read_dpo,
    "kto": read_kto,
    "langfuse": langfuse.read,
    "open-webui": open_webui.read,
    "langsmith": langsmith.read,
}
RECORDS_A_BATCH = 25
"""One transaction each, of about 40 ms; ratings and the log wait for it, requests don't."""
BYTES_A_BATCH = 4 * 1024 * 1024
BYTES_A_RECORD = 32 * 1024 * 1024
"""More than any request that burnish logs."""
TOO_LARGE = f"it is larger than {BYTES_A_RECORD // 1024**2} MiB"
UNKNOWN_FORMAT = "none of their lines looks like a format that burnish reads: name it with --format"


class FileRecords(NamedTuple):
    format: str
    lines: Iterable[Line]
    """They are read while they are sent. Then the problems, and what was left out, are complete."""
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
    if name and name not in (OWN, *FORMATS):
        raise WrongUsage(
            f"there is no format {name!r} to import: expected one of {', '.join((OWN, *FORMATS))}"
        )
    by_format: dict[str, list[Path]] = {}
    unknown: list[Problem] = []
    try:
        for file in files:
            faults: list[Problem] = []
            if form := name or format_of(file, faults):
                by_format.setdefault(form, []).append(file)
            elif faults or file.stat().st_size:
                first = f" ({faults[0].place}: {faults[0].reason})" if faults else ""
                place = f"{file.name}, all lines" if len(files) > 1 else "all lines"
                unknown.append(Problem(place, UNKNOWN_FORMAT + first))
        if not by_format:
            raise WrongUsage(unknown[0].reason if unknown else "there is nothing in these files")
        return _records(by_format, unknown, metrics, several=len(files) > 1)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        raise WrongUsage(f"cannot read {prefix}{error.strerror}") from error
    except SeveralMetrics as error:
        raise WrongUsage(str(error)) from error


def _records(
    files: Mapping[str, Sequence[Path]],
    problems: list[Problem],
    metrics: Mapping[str, Range | None],
    *,
    several: bool,
) -> FileRecords:
    """Return the records in files by their formats. Raises OSError, SeveralMetrics."""

    def rows(form: str, faults: list[Problem]) -> Iterator[FileRow]:
        for file in files[form]:
            yield from rows_of(file, f"{file.name}, " if several else "", faults)

    left_out: Counter[str] = Counter()
    lines: list[Iterable[Line]] = []
    for form in files:
        if form == OWN:
            # Feedback and duels name answers, so these go first.
            lines.append(_own(rows(OWN, problems), answers=True))
            lines.append(_own(rows(OWN, []), answers=False))
        else:
            export = ParsedExport(form, problems, left_out)
            FORMATS[form](rows(form, problems), export)
            lines.append(record_lines(export, metrics))
    return FileRecords(", ".join(files), chain.from_iterable(lines), problems, left_out)


def _own(rows: Iterable[FileRow], *, answers: bool) -> Iterator[Line]:
    for row in rows:
        if (row.content.get("object") == "completion") is answers:
            yield Line(row.place, row.content)


def send(proxy: Proxy, records: FileRecords, *, dry_run: bool) -> ImportReport:
    """Send records in batches. Each is stored whole or not at all, so an import that broke off can be repeated.

    Raises NotRunning, CommandFailed.
    """
    report = ImportReport(records.format, records.problems, records.left_out)
    for batch, answers in _batches(records.lines, report.problems, trial=dry_run):
        contents = [line.content for line in (*answers, *batch)]
        answer = proxy.post("/burnish/records", {"records": contents, "dry_run": dry_run})
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


def _batches(
    lines: Iterable[Line], problems: list[Problem], *, trial: bool
) -> Iterator[tuple[list[Line], list[Line]]]:
    """Yield the lines in batches, each with the answers that it needs besides; too large ones are problems.

    ``trial``: what an earlier batch brought isn't there, so a batch comes with the answers that it names.
    """
    answers: Spool[Line] = Spool()
    batch: list[Line] = []
    total = 0
    for line in lines:
        size = len(json.dumps(line.content))
        if size > BYTES_A_RECORD:
            problems.append(Problem(line.place, TOO_LARGE))
            continue
        if trial and line.content.get("object") == "completion":
            answers.put(str(line.content.get("id")), line)
        if batch and (len(batch) >= RECORDS_A_BATCH or total + size > BYTES_A_BATCH):
            yield batch, _named(batch, answers)
            batch, total = [], 0
        batch.append(line)
        total += size
    if batch:
        yield batch, _named(batch, answers)


def _named(batch: Sequence[Line], answers: Spool[Line]) -> list[Line]:
    """Return the answers that the feedback in a batch names, and that aren't in it."""
    names = {
        str(line.content[name]).partition("/")[0]
        for line in batch
        for name in ("completion_id", "preferred_over")
        if line.content.get(name)
    }
    inside = {line.content.get("id") for line in batch}
    return [line for name in sorted(names - inside) if (line := answers.get(name))]
