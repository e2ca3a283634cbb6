"""Foreign exports → records of ours, as lines of JSON. Pure.

The same answer gets the same ID, and the same statement the same key, so a file can be imported again. Raters and
callers are named after the source: "langfuse", or "langfuse:ann".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from burnish.parts.datasets.parsed import ForeignAnswer, ParsedExport, Statement
from burnish.proxy.feedback.targets import MAX_NAME
from burnish.proxy.ids import made_id
from burnish.proxy.log.tree import digest
from burnish.proxy.plain import plain

DEMONSTRATION = "demonstration"
"""The tag of ratings of answers that no model gave."""
UNREAD = "feedback on an answer that can't be read"
LIKERT = range(1, 6)
METRIC = re.compile(r"(?P<name>.+?)(?:=(?P<worst>-?\d+(?:\.\d+)?)\.\.(?P<best>-?\d+(?:\.\d+)?))?")


class Line(NamedTuple):
    """A record on its way to the log."""

    place: str
    content: dict[str, Any]


class Range(NamedTuple):
    worst: float
    best: float

    def reward(self, score: float) -> float | None:
        """Return a value in [-1, 1]; None if it is outside."""
        share = (score - self.worst) / (self.best - self.worst)
        return 2 * share - 1 if 0 <= share <= 1 else None


class SeveralMetrics(ValueError):
    """The export measures several things, and nobody said which of them is the rating."""


def read_metric(text: str) -> tuple[str, Range | None]:
    """Return a metric's name and its range, from "NAME" or "NAME=WORST..BEST". Raises ValueError."""
    match = METRIC.fullmatch(text)
    if match is None or match["worst"] is None:
        return text, None
    bounds = Range(float(match["worst"]), float(match["best"]))
    if bounds.worst == bounds.best:
        raise ValueError(f"the worst and the best value of {match['name']!r} are the same")
    return match["name"], bounds


def record_lines(export: ParsedExport, metrics: Mapping[str, Range | None]) -> list[Line]:
    """Return the records of an export, answers first; what can't be one is counted in its ``left_out``.

    ``metrics``: which metrics are the rating; none given: the only one. Raises SeveralMetrics.
    """
    statements = _rated(export, metrics)
    used = {name for statement in statements for name in (statement.about, statement.better_than) if name}
    ids = {name: _completion_id(export.source, export.answers[name]) for name in sorted(used)}
    answers = [
        Line(export.places[name], _completion(export.source, export.answers[name], ids[name])) for name in ids
    ]
    return [
        *answers,
        *(
            Line(export.places[statement.name], _feedback(export.source, statement, ids))
            for statement in statements
        ),
    ]


def _rated(export: ParsedExport, metrics: Mapping[str, Range | None]) -> list[Statement]:
    """Return the statements that are used, earliest first, with rewards as their values."""
    values: dict[str, list[float]] = defaultdict(list)
    for statement in export.statements.values():
        if statement.metric is not None and statement.value is not None:
            values[statement.metric].append(statement.value)
    if not metrics and len(values) > 1:
        counts = ", ".join(f"{name} ({len(numbers)})" for name, numbers in values.items())
        raise SeveralMetrics(
            f"the files measure several things: {counts}. Say which is the rating: --metric NAME"
        )
    ranges = {name: bounds or _guessed(values[name]) for name, bounds in metrics.items() if name in values}
    if not metrics:
        ranges = {name: _guessed(numbers) for name, numbers in values.items()}
    used = []
    for statement in sorted(export.statements.values(), key=lambda row: (row.created_at or 0.0, row.name)):
        if not {statement.about, statement.better_than or statement.about} <= export.answers.keys():
            export.left_out[UNREAD] += 1
            continue
        scaled, why = _in_range(statement, ranges, values)
        if why:
            export.left_out[why] += 1
        if scaled.value is not None or scaled.comment or scaled.correction or scaled.better_than:
            used.append(scaled)
    return used


def _guessed(values: Sequence[float]) -> Range | None:
    """Return the range of 0 to 1, -1 to 1 or 1 to 5 that the values lie in."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return Range(0, 1)
    if low >= -1 and high <= 1:
        return Range(-1, 1)
    return Range(LIKERT[0], LIKERT[-1]) if all(number in LIKERT for number in values) else None


def _in_range(
    statement: Statement, ranges: Mapping[str, Range | None], values: Mapping[str, Sequence[float]]
) -> tuple[Statement, str | None]:
    """Return a statement with a reward as its value, or without a value and why."""
    if statement.metric is None or statement.value is None:
        return statement, None
    bare = statement._replace(value=None)
    if statement.metric not in ranges:
        return bare, f"values of another metric ({statement.metric})"
    bounds = ranges[statement.metric]
    if bounds is None:
        low, high = min(values[statement.metric]), max(values[statement.metric])
        return bare, (
            f"{statement.metric} has values from {low:g} to {high:g}, not from 0 to 1, -1 to 1, or 1, 2, 3, 4, 5: give "
            f"its range, --metric {statement.metric}=WORST..BEST"
        )
    reward = bounds.reward(statement.value)
    if reward is None:
        return bare, f"values of {statement.metric} outside {bounds.worst:g}..{bounds.best:g}"
    return statement._replace(value=reward, metric=_scale(bounds, statement.value)), None


def _scale(bounds: Range, score: float) -> str:
    if bounds == (LIKERT[0], LIKERT[-1]) and score in LIKERT:
        return "likert"
    return "binary" if score in bounds else "scalar"


def _completion_id(source: str, answer: ForeignAnswer) -> str:
    content = orjson.dumps([source, answer.name, answer.messages, answer.reply, answer.tools])
    return made_id("cmpl_", answer.created_at or 0.0, content)


def _completion(source: str, answer: ForeignAnswer, identifier: str) -> dict[str, Any]:
    """Return an answer as a record; which version of ours gave it is unknown, so no version is named."""
    place = orjson.dumps([source, answer.conversation or answer.messages])
    model = _name(answer.model or source)
    return {
        "object": "completion",
        "id": identifier,
        "conversation_id": made_id("conv_", 0.0, place),
        "created_at": answer.created_at or 0.0,
        "surface": "chat",
        "model_asked": model,
        "caller": _person(source, answer.user),
        "agent": source,
        "upstream": source,
        "model_served": model,
        "imported_from": source,
        "outcome": "complete",
        "status": 200,
        "total_s": 0.0,
        "finish_reason": "tool_calls" if answer.reply.get("tool_calls") else "stop",
        "messages": answer.messages,
        "params": {"tools": answer.tools} if answer.tools else {},
        "reply": answer.reply,
    }


def _feedback(source: str, statement: Statement, ids: Mapping[str, str]) -> dict[str, Any]:
    content = orjson.dumps([source, *statement, ids[statement.about]])
    scale = None if statement.value is None else statement.metric or "binary"
    return {
        "object": "feedback",
        "created_at": statement.created_at,
        "completion_id": ids[statement.about],
        "target": "completion_id",
        "reward": statement.value,
        "scale": scale,
        "comment": statement.comment,
        "correction": statement.correction,
        "preferred_over": ids[statement.better_than] if statement.better_than else None,
        "scope": statement.scope,
        "source": statement.source,
        "rater": _person(source, statement.user),
        "weight": 1.0,
        "tags": [DEMONSTRATION] if statement.demonstration else [],
        "idempotency_key": f"import:{digest(content).hex()}",
    }


def _person(source: str, user: str | None) -> str:
    return _name(f"{source}:{user}" if user else source)


def _name(text: str) -> str:
    """Return a name that a list can show."""
    return " ".join(plain(text).split())[:MAX_NAME]
