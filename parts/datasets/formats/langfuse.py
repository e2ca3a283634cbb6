"""Langfuse: traces, observations and scores, from the tables' export, a trace's download, or the API. Pure.

A score of a trace is about its last generation, whose input is what the model really saw. If the export holds no
generation of that trace, it is about the trace's own input and output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from burnish.parts.datasets.messages import moment_of, parsed, prompt_of, reply_of, text_or_none, tools_of
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable
from burnish.parts.datasets.spool import Spool
from burnish.proxy.records import Source

NOT_RATED = "generations and traces without a score"
NO_NUMBER = "scores without a number"
NO_TARGET = "scores of traces or observations that the files don't hold"
TARGETS = ("observationId", "traceId", "sessionId")


class _Tables:
    def __init__(self) -> None:
        self.traces: Spool[FileRow] = Spool()
        self.generations: Spool[FileRow] = Spool()
        self.scores: Spool[FileRow] = Spool()
        self._score_count = 0
        self._last: dict[str, tuple[str, str]] = {}
        """Start and name of the last generation of each trace."""
        self._traces_of: dict[str, set[str]] = {}
        """By their sessions."""

    def add(self, place: str, row: dict[str, Any], trace: str | None = None) -> None:
        """Keep a row and the rows in it. Raises Unusable."""
        if isinstance(row.get("trace"), dict):
            inner = {name: cell for name, cell in row.items() if name != "trace"}
            self.add(place, row["trace"] | inner)
        elif _is_score(row):
            self._add_score(place, {"traceId": trace} | row)
        elif isinstance(row.get("type"), str) and (trace or row.get("traceId")):
            if row["type"].upper() == "GENERATION":
                self._add_generation(place, {"traceId": trace} | row)
        elif isinstance(row.get("id"), str) and ("input" in row or "output" in row):
            self.traces.put(row["id"], FileRow(place, row))
            self._traces_of.setdefault(str(row.get("sessionId")), set()).add(row["id"])
            self._add_inner(place, row)
        else:
            raise Unusable("it isn't a trace, an observation or a score of Langfuse")

    def _add_score(self, place: str, score: dict[str, Any]) -> None:
        self._score_count += 1
        self.scores.put(str(self._score_count), FileRow(place, score), self._score_count)

    def _add_generation(self, place: str, row: dict[str, Any]) -> None:
        name, trace = str(row.get("id")), str(row.get("traceId"))
        self.generations.put(name, FileRow(place, row))
        self._last[trace] = max(self._last.get(trace, ("", "")), (str(row.get("startTime")), name))

    def _add_inner(self, place: str, row: dict[str, Any]) -> None:
        observations, scores = parsed(row.get("observations")), parsed(row.get("scores"))
        for inner_row in [*_objects(observations), *_objects(scores)]:
            self.add(place, inner_row, row["id"])
        if isinstance(scores, dict):  # the table's export: values by name
            for name, values in scores.items():
                for number, score_value in enumerate(values if isinstance(values, list) else [values]):
                    score = {"id": f"{row['id']}:{name}:{number}", "traceId": row["id"], "name": name}
                    self._add_score(place, score | {"value": score_value})

    def target(self, score: Mapping[str, Any]) -> tuple[str, bool] | None:
        """Return the name of the row that a score is about, and whether it is about the whole session."""
        if (name := str(score.get("observationId"))) in self.generations:
            return name, False
        if score.get("observationId"):
            return None
        if trace := score.get("traceId"):
            _, generation = self._last.get(str(trace), ("", None))
            return (generation or str(trace), False) if generation or str(trace) in self.traces else None
        in_session = self._traces_of.get(str(score.get("sessionId")), set())
        generations = [self._last[trace] for trace in in_session if trace in self._last]
        return (max(generations)[1] if generations else max(in_session), True) if in_session else None

    def row(self, name: str) -> FileRow:
        row = self.generations.get(name) or self.traces.get(name)
        assert row  # ``target`` returned the name
        return row

    def trace_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        trace = self.traces.get(str(row.get("traceId")))
        return trace.content if trace else {}


def read(file_rows: Iterable[FileRow], export: ParsedExport) -> None:
    tables = _Tables()
    for file_row in file_rows:
        with export.line(file_row):
            tables.add(file_row.place, file_row.content)
    rated_names: set[str] = set()
    for score in tables.scores.rows():
        with export.line(score):
            _read_score(score, tables, export, rated_names)
    traces_rated = {tables.row(name).content.get("traceId") or name for name in rated_names}
    generations, traces = set(tables.generations), set(tables.traces)
    unrated = len(generations - rated_names) + (
        0 if generations else len(traces - traces_rated - rated_names)
    )
    if unrated:
        export.left_out[NOT_RATED] += unrated


def _read_score(score: FileRow, tables: _Tables, export: ParsedExport, rated_names: set[str]) -> None:
    """Raises Unusable."""
    if (target := tables.target(score.content)) is None:
        export.left_out[NO_TARGET] += 1
        return
    name, whole = target
    row = tables.row(name)
    rated_names.add(name)
    if name not in export.answers:
        export.add(row.place, _answer(tables, name, row.content))
    if statement := _statement(score.content, name, whole=whole):
        export.add(score.place, statement)
    else:
        export.left_out[NO_NUMBER] += 1


def _answer(tables: _Tables, name: str, row: dict[str, Any]) -> ForeignAnswer:
    prompt, trace = parsed(row.get("input")), tables.trace_of(row)
    session = row.get("sessionId") or trace.get("sessionId") or row.get("traceId") or row.get("id")
    return ForeignAnswer(
        name,
        prompt_of(prompt),
        reply_of(row.get("output")),
        tools_of(prompt),
        moment_of(row.get("startTime") or row.get("timestamp")),
        text_or_none(row.get("model")),
        text_or_none(row.get("userId")) or text_or_none(trace.get("userId")),
        text_or_none(session),
    )


def _statement(score: Mapping[str, Any], about: str, *, whole: bool) -> Statement | None:
    name, kind = str(score.get("name")), str(score.get("dataType") or "").upper()
    words = text_or_none(score.get("stringValue") or score.get("value"))
    score_value = score.get("value")
    number = (
        float(score_value)
        if isinstance(score_value, int | float) and kind not in ("TEXT", "CORRECTION")
        else None
    )
    comment = text_or_none(score.get("comment")) or (words if kind == "TEXT" else None)
    correction = words if kind == "CORRECTION" else None
    if number is None and not comment and not correction:
        return None
    source: Source = "judge" if str(score.get("source")).upper() == "EVAL" else "human"
    return Statement(
        str(score.get("id") or f"{about}:{name}"),
        about,
        metric=name if number is not None else None,
        value=number,
        comment=comment,
        correction=correction,
        source=source,
        user=text_or_none(score.get("authorUserId")),
        created_at=moment_of(score.get("timestamp") or score.get("createdAt")),
        scope="conversation" if whole and number is not None else "completion",
    )


def _is_score(row: Mapping[str, Any]) -> bool:
    return (
        isinstance(row.get("name"), str)
        and ("value" in row or "stringValue" in row)
        and "input" not in row
        and "output" not in row
    )


def _objects(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
