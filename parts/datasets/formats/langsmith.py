"""LangSmith: runs and feedback, as the SDK lists them or a bulk export holds them, one object per line. Pure.

Feedback on a chain is about the last LLM run in it, whose inputs are what the model really saw. If the files hold no
such run, it is about the chain's own inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from burnish.parts.datasets.messages import (
    moment_of,
    object_or_empty,
    parsed,
    prompt_of,
    reply_of,
    text_or_none,
    tools_in,
    tools_of,
)
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable
from burnish.parts.datasets.spool import Spool
from burnish.proxy.messages import text_of
from burnish.proxy.records import Source

NOT_RATED = "LLM runs without feedback"
NO_RUN = "feedback on runs that the files don't hold"
NO_NUMBER = "feedback without a score, a comment or a correction"
ONLY_STATISTICS = "runs with averages only (feedback_stats): export their feedback, too"
JUDGES = frozenset({"model", "auto_eval"})
"""Types of the source of feedback that a program gave."""
THREADS = ("session_id", "thread_id", "conversation_id")
"""Names in a run's metadata of what LangSmith calls a thread."""
MOST_DEPTH = 100


class Place(NamedTuple):
    """Of a run among the others."""

    run_type: str
    start: str
    parent: str
    trace: str | None


def read(rows: Iterable[FileRow], export: ParsedExport) -> None:
    runs: Spool[FileRow] = Spool()
    feedback_rows: Spool[FileRow] = Spool()
    places: dict[str, Place] = {}
    feedback_count = only_statistics = 0
    for row in rows:
        with export.line(row):
            run = row.content
            if "run_type" in run:
                name = str(run.get("id"))
                runs.put(name, row)
                places[name] = Place(
                    str(run["run_type"]), str(run.get("start_time")), str(run.get("parent_run_id")),
                    str(run["trace_id"]) if run.get("trace_id") else None,
                )  # fmt: skip
                only_statistics += bool(run.get("feedback_stats"))
            elif "run_id" in run and "key" in run:
                feedback_count += 1
                feedback_rows.put(str(feedback_count), row, feedback_count)
            else:
                raise Unusable("it is neither a run nor feedback of LangSmith")
    last = _last_below(places)
    for row in feedback_rows.rows():
        with export.line(row):
            _read_feedback(row, export, runs, last)
    if not feedback_count and only_statistics:
        export.left_out[ONLY_STATISTICS] += only_statistics
    unrated = sum(place.run_type == "llm" and name not in export.answers for name, place in places.items())
    if unrated:
        export.left_out[NOT_RATED] += unrated


def _read_feedback(
    row: FileRow, export: ParsedExport, runs: Spool[FileRow], last: Mapping[str, tuple[str, str]]
) -> None:
    feedback = row.content
    run_id = str(feedback.get("run_id"))
    name = last[run_id][1] if run_id in last else run_id
    if (run := runs.get(name)) is None:
        export.left_out[NO_RUN] += 1
        return
    statement = _statement(feedback, name)
    if statement is None:
        export.left_out[NO_NUMBER] += 1
        return
    export.add(run.place, _answer(name, run.content))
    export.add(row.place, statement)


def _last_below(places: Mapping[str, Place]) -> dict[str, tuple[str, str]]:
    """Return start and name of the last LLM run at or below each run that has one."""
    last: dict[str, tuple[str, str]] = {}
    for name, place in places.items():
        if place.run_type != "llm":
            continue
        above, runs = place.parent, {name}
        for _ in range(MOST_DEPTH):
            if above not in places or above in runs:
                break
            runs.add(above)
            above = places[above].parent
        for run in runs | {place.trace or name}:
            # Feedback on an LLM run is about that run.
            if run == name or (run in places and places[run].run_type != "llm"):
                last[run] = max(last.get(run, ("", "")), (place.start, name))
    return last


def _answer(name: str, run: dict[str, Any]) -> ForeignAnswer:
    inputs, extra = parsed(run.get("inputs")), parsed(run.get("extra"))
    extra = extra if isinstance(extra, dict) else {}
    metadata, settings = (object_or_empty(extra.get(key)) for key in ("metadata", "invocation_params"))
    model = metadata.get("ls_model_name") or settings.get("model") or settings.get("model_name")
    thread = next((metadata[key] for key in THREADS if metadata.get(key)), run.get("trace_id"))
    return ForeignAnswer(
        name,
        prompt_of(inputs),
        reply_of(run.get("outputs")),
        tools_of(inputs) or tools_in(settings.get("tools")),
        moment_of(run.get("start_time")),
        text_or_none(model),
        text_or_none(metadata.get("user_id")),
        text_or_none(thread),
    )


def _statement(feedback: Mapping[str, Any], about: str) -> Statement | None:
    score = feedback.get("score")
    number = float(score) if isinstance(score, int | float) else None
    comment, correction = text_or_none(feedback.get("comment")), _correction(feedback.get("correction"))
    if number is None and not comment and not correction:
        return None
    origin = object_or_empty(parsed(feedback.get("feedback_source")))
    source: Source = "judge" if origin.get("type") in JUDGES else "human"
    return Statement(
        str(feedback.get("id") or f"{about}:{feedback['key']}"),
        about,
        metric=str(feedback["key"]) if number is not None else None,
        value=number,
        comment=comment,
        correction=correction,
        source=source,
        user=text_or_none(origin.get("user_name") or origin.get("user_id")),
        created_at=moment_of(feedback.get("created_at")),
    )


def _correction(output: Any) -> str | None:
    if not output:
        return None
    try:
        return text_or_none(text_of(reply_of(output)))
    except Unusable:
        return None
