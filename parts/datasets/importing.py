"""How ``burnish data import`` reads files, and sends their records to a running burnish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from burnish.parts.datasets.examples import MESSAGES, read_dpo, read_kto, read_sft
from burnish.parts.datasets.formats import langfuse, langsmith, open_webui
from burnish.parts.datasets.parsed import FileRow, ParsedExport, Problem
from burnish.parts.datasets.records import READERS
from burnish.parts.datasets.to_records import Line, Range, SeveralMetrics, record_lines
from burnish.system.regular import check_regular
from burnish.terminal.client import Proxy
from burnish.terminal.errors import WrongUsage

OWN = "jsonl"
IMPORT_BYTES = 1024**3
"""A file is read whole."""
FORMATS: Mapping[str, Callable[[list[FileRow], ParsedExport], None]] = {
    "sft": read_sft,
    "dpo": read_dpo,
    "kto": read_kto,
    "langfuse": langfuse.read,
    "open-webui": open_webui.read,
    "langsmith": langsmith.read,
}
NOT_JSON = "it isn't JSON ({})"
NO_OBJECT = "it isn't a JSON object"
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
    if name and name not in (OWN, *FORMATS):
        raise WrongUsage(
            f"there is no format {name!r} to import: expected one of {', '.join((OWN, *FORMATS))}"
        )
    by_format: dict[str, list[FileRow]] = {}
    problems: list[Problem] = []
    unknown: list[Problem] = []
    for file in files:
        place = f"{file.name}, " if len(files) > 1 else ""
        try:
            rows, faults = rows_of(file, place)
        except OSError as error:
            prefix = f"{error.filename}: " if error.filename else ""
            raise WrongUsage(f"cannot read {prefix}{error.strerror}") from error
        problems += faults
        if form := name or format_of(rows):
            by_format.setdefault(form, []).extend(rows)
        elif rows or faults:
            first = f" ({faults[0].place}: {faults[0].reason})" if faults else ""
            unknown.append(Problem(f"{place}all lines", UNKNOWN_FORMAT + first))
    if not by_format:
        raise WrongUsage(unknown[0].reason if unknown else "there is nothing in these files")
    lines: list[Line] = []
    left_out: Counter[str] = Counter()
    for form, rows in by_format.items():
        if form == OWN:
            lines += _in_order(rows)
            continue
        export = ParsedExport(form)
        FORMATS[form](rows, export)
        try:
            lines += record_lines(export, metrics)
        except SeveralMetrics as error:
            raise WrongUsage(str(error)) from error
        problems += export.problems
        left_out += export.left_out
    return FileRecords(", ".join(by_format), lines, problems + unknown, left_out)


def _in_order(rows: Sequence[FileRow]) -> list[Line]:
    """Return lines of our own with the answers first, because feedback and duels name them."""
    return sorted(
        (Line(row.place, row.content) for row in rows),
        key=lambda line: line.content.get("object") != "completion",
    )


def send(proxy: Proxy, records: FileRecords, *, dry_run: bool) -> ImportReport:
    """Send records in batches. Each is stored whole or not at all, so an import that broke off can be repeated.

    Raises NotRunning, CommandFailed.
    """
    sized = [(line, len(json.dumps(line.content))) for line in records.lines]
    large = [Problem(line.place, TOO_LARGE) for line, size in sized if size > BYTES_A_RECORD]
    report = ImportReport(records.format, [*records.problems, *large], records.left_out)
    fitting = [(line, size) for line, size in sized if size <= BYTES_A_RECORD]
    for batch, answers in _batches(fitting, trial=dry_run):
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


# -- files -------------------------------------------------------------------------------------------------------------


def rows_of(file: Path, prefix: str) -> tuple[list[FileRow], list[Problem]]:
    """Return the objects in a file, and the lines that hold none. Raises OSError."""
    rows: list[FileRow] = []
    problems: list[Problem] = []
    check_regular(file, IMPORT_BYTES)
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    for place, row in _values(content):
        if isinstance(row, dict):
            rows.append(FileRow(prefix + place, row))
        else:
            problems.append(Problem(prefix + place, row if isinstance(row, str) else NO_OBJECT))
    return rows, problems


def _values(content: bytes) -> list[tuple[str, Any]]:
    """Return what a file holds, with its places: the items of one JSON text, else the lines. A text is a fault."""
    lines = content.splitlines() if content.lstrip()[:1] != b"[" else []
    rows = [(f"line {number}", _value(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if len(rows) == 1 or not any(isinstance(row, dict) for _, row in rows):
        whole = _value(content)
        if isinstance(whole, dict) and isinstance(whole.get("data"), list):
            whole = whole["data"]  # a page of an API
        if isinstance(whole, list):
            return [(f"item {number}", row if row != [] else None) for number, row in enumerate(whole, 1)]
        if isinstance(whole, dict) or not rows:
            return [("the file", whole)] if content.strip() else []
    return rows


def _value(text: bytes) -> Any:
    """Return the value of a JSON text, a text why there is none, or None for a bare value."""
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return NOT_JSON.format(error)
    return content if isinstance(content, dict | list) else None


def format_of(rows: Sequence[FileRow]) -> str | None:
    """Return the format that most objects have; None: none of them has a known one."""
    kinds = Counter(filter(None, (_kind(row.content) for row in rows)))
    return kinds.most_common(1)[0][0] if kinds else None


def _kind(content: Mapping[str, Any]) -> str | None:
    if content.get("object") in READERS and "id" in content:
        return OWN
    return next((name for name, looks in LOOKS.items() if looks(content)), None)


def _has(content: Mapping[str, Any], *names: str) -> bool:
    return all(name in content for name in names)


def _conversation(row: Mapping[str, Any]) -> bool:
    return any(isinstance(row.get(name), list) for name in MESSAGES)


LOOKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "dpo": lambda row: _has(row, "chosen", "rejected") or "preferred_output" in row,
    "kto": lambda row: "label" in row and ("completion" in row or _conversation(row)),
    "langsmith": lambda row: "run_type" in row or _has(row, "run_id", "key"),
    "open-webui": lambda row: (
        "snapshot" in row or isinstance(row.get("chat"), dict) or isinstance(row.get("history"), dict)
    ),
    "sft": lambda row: (
        _conversation(row) or _has(row, "prompt", "completion") or _has(row, "instruction", "output")
    ),
    "langfuse": lambda row: (
        any(name in row for name in ("traceId", "observations", "trace"))
        or _has(row, "id", "input")
        or _has(row, "name", "value")
    ),
}
"""What an object of each format has; the first that fits is taken."""
