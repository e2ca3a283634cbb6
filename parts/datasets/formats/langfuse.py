"""Langfuse: traces, observations and scores, from the tables' export, a trace's download, or the API. Pure.

A score of a trace is about its last generation, whose input is what the model really saw. If the export holds no
generation of that trace, it is about the trace's own input and output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.parts.datasets.messages import moment_of, parsed, prompt_of, reply_of, text_or_none, tools_of
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable
from burnish.proxy.records import Source

NOT_RATED = "generations and traces without a score"
NO_NUMBER = "scores without a number"
NO_TARGET = "scores of traces or observations that the files don't hold"
TARGETS = ("observationId", "traceId", "sessionId")
Rows = dict[str, tuple[FileRow, dict[str, Any]]]


class _Tables:
    def __init__(self) -> None:
        self.traces: Rows = {}
        self.generations: Rows = {}
        self.scores: list[tuple[FileRow, dict[str, Any]]] = []

    def add(self, file_row: FileRow, row: dict[str, Any], trace: str | None = None) -> None:
        """Keep a row and the rows in it. Raises Unusable."""
        if isinstance(row.get("trace"), dict):
            inner = {name: cell for name, cell in row.items() if name != "trace"}
            self.add(file_row, row["trace"] | inner)
        elif _is_score(row):
            self.scores.append((file_row, {"traceId": trace} | row))
        elif isinstance(row.get("type"), str) and (trace or row.get("traceId")):
            if row["type"].upper() == "GENERATION":
                self.generations[str(row.get("id"))] = file_row, {"traceId": trace} | row
        elif isinstance(row.get("id"), str) and ("input" in row or "output" in row):
            self.traces[row["id"]] = file_row, row
            self._add_inner(file_row, row)
        else:
            raise Unusable("it isn't a trace, an observation or a score of Langfuse")

    def _add_inner(self, file_row: FileRow, row: dict[str, Any]) -> None:
        observations, scores = parsed(row.get("observations")), parsed(row.get("scores"))
        for inner_row in [*_objects(observations), *_objects(scores)]:
            self.add(file_row, inner_row, row["id"])
        if isinstance(scores, dict):  # the table's export: values by name
            for name, values in scores.items():
                for number, score_value in enumerate(values if isinstance(values, list) else [values]):
                    score = {"id": f"{row['id']}:{name}:{number}", "traceId": row["id"], "name": name}
                    self.scores.append((file_row, score | {"value": score_value}))

    def target(self, score: Mapping[str, Any]) -> tuple[str, bool] | None:
        """Return the name of the row that a score is about, and whether it is about the whole session."""
        if (name := str(score.get("observationId"))) in self.generations:
            return name, False
        if score.get("observationId"):
            return None
        if trace := score.get("traceId"):
            generation = self._last_of(lambda row: row.get("traceId") == trace)
            return (generation or str(trace), False) if generation or str(trace) in self.traces else None
        session = score.get("sessionId")
        in_session = {name for name, (_, row) in self.traces.items() if row.get("sessionId") == session}
        generation = self._last_of(lambda row: str(row.get("traceId")) in in_session)
        return (generation or max(in_session), True) if in_session else None

    def _last_of(self, matches: Any) -> str | None:
        rows = [
            (str(row.get("startTime")), name) for name, (_, row) in self.generations.items() if matches(row)
        ]
        return max(rows)[1] if rows else None

    def row(self, name: str) -> tuple[FileRow, dict[str, Any]]:
        return self.generations.get(name) or self.traces[name]

    def session_of(self, row: Mapping[str, Any]) -> str | None:
        trace = self.traces.get(str(row.get("traceId")))
        session = row.get("sessionId") or (trace[1].get("sessionId") if trace else None)
        return text_or_none(session or row.get("traceId") or row.get("id"))

    def user_of(self, row: Mapping[str, Any]) -> str | None:
        trace = self.traces.get(str(row.get("traceId")))
        return text_or_none(row.get("userId")) or (text_or_none(trace[1].get("userId")) if trace else None)


def read(file_rows: list[FileRow], export: ParsedExport) -> None:
    tables = _Tables()
    for file_row in file_rows:
        with export.line(file_row):
            tables.add(file_row, file_row.content)
    rated_names = set()
    for file_row, score in tables.scores:
        with export.line(file_row):
            if (target := tables.target(score)) is None:
                export.left_out[NO_TARGET] += 1
                continue
            name, whole = target
            answer_row, row = tables.row(name)
            rated_names.add(name)
            if name not in export.answers:
                export.add(answer_row.place, _answer(tables, name, row))
            if statement := _statement(score, name, whole=whole):
                export.add(file_row.place, statement)
            else:
                export.left_out[NO_NUMBER] += 1
    traces_rated = {tables.row(name)[1].get("traceId") or name for name in rated_names}
    unrated = [name for name in tables.generations if name not in rated_names]
    unrated += [name for name in tables.traces if name not in traces_rated and not tables.generations]
    if unrated:
        export.left_out[NOT_RATED] += len(unrated)


def _answer(tables: _Tables, name: str, row: dict[str, Any]) -> ForeignAnswer:
    prompt = parsed(row.get("input"))
    return ForeignAnswer(
        name,
        prompt_of(prompt),
        reply_of(row.get("output")),
        tools_of(prompt),
        moment_of(row.get("startTime") or row.get("timestamp")),
        text_or_none(row.get("model")),
        tables.user_of(row),
        tables.session_of(row),
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
