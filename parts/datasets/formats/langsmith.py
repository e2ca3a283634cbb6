"""LangSmith: runs and feedback, as the SDK lists them or a bulk export holds them, one object per line. Pure.

Feedback on a chain is about the last LLM run in it, whose inputs are what the model really saw. If the files hold no
such run, it is about the chain's own inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def read(rows: list[FileRow], export: ParsedExport) -> None:
    runs: dict[str, tuple[FileRow, dict[str, Any]]] = {}
    feedback_rows: list[FileRow] = []
    for row in rows:
        with export.line(row):
            if "run_type" in row.content:
                runs[str(row.content.get("id"))] = row, row.content
            elif "run_id" in row.content and "key" in row.content:
                feedback_rows.append(row)
            else:
                raise Unusable("it is neither a run nor feedback of LangSmith")
    about = {name: _seen_by_model(name, runs) for name in runs}
    for row in feedback_rows:
        with export.line(row):
            _read_feedback(row, export, runs, about)
    if not feedback_rows:
        export.left_out[ONLY_STATISTICS] += sum(bool(run.get("feedback_stats")) for _, run in runs.values())
    unrated = [
        name for name, (_, run) in runs.items() if run["run_type"] == "llm" and name not in export.answers
    ]
    export.left_out[NOT_RATED] += len(unrated)


def _read_feedback(
    row: FileRow,
    export: ParsedExport,
    runs: Mapping[str, tuple[FileRow, dict[str, Any]]],
    about: Mapping[str, str],
) -> None:
    feedback = row.content
    if (run_id := str(feedback.get("run_id"))) not in runs:
        export.left_out[NO_RUN] += 1
        return
    name = about[run_id]
    run_row, run = runs[name]
    statement = _statement(feedback, name)
    if statement is None:
        export.left_out[NO_NUMBER] += 1
        return
    export.add(run_row.place, _answer(name, run))
    export.add(row.place, statement)


def _seen_by_model(name: str, runs: Mapping[str, tuple[FileRow, dict[str, Any]]]) -> str:
    """Return the last LLM run at or below a run; the run itself if there is none."""
    if runs[name][1]["run_type"] == "llm":
        return name
    inside = [
        (str(run.get("start_time")), run_id)
        for run_id, (_, run) in runs.items()
        if run["run_type"] == "llm" and _is_below(run_id, name, runs)
    ]
    return max(inside)[1] if inside else name


def _is_below(name: str, above: str, runs: Mapping[str, tuple[FileRow, dict[str, Any]]]) -> bool:
    run = runs[name][1]
    if run.get("trace_id") == above:
        return True
    for _ in range(MOST_DEPTH):
        parent = str(run.get("parent_run_id"))
        if parent == above:
            return True
        if parent not in runs:
            return False
        run = runs[parent][1]
    return False


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
