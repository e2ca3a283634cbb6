"""Foreign exports → records of ours, as lines of JSON. Pure.

The same answer gets the same ID, and the same statement the same key, so a file can be imported again. Raters and
callers are named after the source: "langfuse", or "langfuse:ann".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from burnish.parts.datasets.parsed import ForeignAnswer, ParsedExport, Statement
from burnish.parts.datasets.spool import Spool
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


class Metric(NamedTuple):
    """The values of a metric."""

    times: int
    low: float
    high: float
    likert: bool
    """Whether all are 1, 2, 3, 4 or 5."""

    @property
    def range(self) -> Range | None:
        """The range of 0 to 1, -1 to 1 or 1 to 5 that the values lie in."""
        if self.low >= 0 and self.high <= 1:
            return Range(0, 1)
        if self.low >= -1 and self.high <= 1:
            return Range(-1, 1)
        return Range(LIKERT[0], LIKERT[-1]) if self.likert else None


def record_lines(export: ParsedExport, metrics: Mapping[str, Range | None]) -> Iterator[Line]:
    """Return the records of an export, answers first; what can't be one is counted in its ``left_out``.

    ``metrics``: which metrics are the rating; none given: the only one. Raises SeveralMetrics.
    """
    measured = _measured(export)
    if not metrics and len(measured) > 1:
        counts = ", ".join(f"{name} ({metric.times})" for name, metric in measured.items())
        raise SeveralMetrics(
            f"the files measure several things: {counts}. Say which is the rating: --metric NAME"
        )
    ranges = {name: bounds or measured[name].range for name, bounds in metrics.items() if name in measured}
    if not metrics:
        ranges = {name: metric.range for name, metric in measured.items()}
    return _lines(export, ranges, measured)


def _measured(export: ParsedExport) -> dict[str, Metric]:
    measured: dict[str, Metric] = {}
    for _, statement in export.statements.rows():
        if statement.metric is not None and statement.value is not None:
            number = statement.value
            times, low, high, likert = measured.get(statement.metric, (0, number, number, True))
            measured[statement.metric] = Metric(
                times + 1, min(low, number), max(high, number), likert and number in LIKERT
            )
    return measured


def _lines(
    export: ParsedExport, ranges: Mapping[str, Range | None], measured: Mapping[str, Metric]
) -> Iterator[Line]:
    ids: Spool[str] = Spool()
    for _, statement in _used(export, ranges, measured, export.left_out):
        for name in filter(None, (statement.about, statement.better_than)):
            if name not in ids:
                placed = export.answers.get(name)
                assert placed  # else the statement isn't used
                ids.put(name, identifier := _completion_id(export.source, placed.record))
                yield Line(placed.place, _completion(export.source, placed.record, identifier))
    for place, statement in _used(export, ranges, measured, Counter()):
        yield Line(place, _feedback(export.source, statement, ids))


def _used(
    export: ParsedExport,
    ranges: Mapping[str, Range | None],
    measured: Mapping[str, Metric],
    left_out: Counter[str],
) -> Iterator[tuple[str, Statement]]:
    """Yield the statements that are used, earliest first, with rewards as their values."""
    for place, statement in export.statements.rows():
        if any(name not in export.answers for name in filter(None, (statement.about, statement.better_than))):
            left_out[UNREAD] += 1
            continue
        scaled, why = _in_range(statement, ranges, measured)
        if why:
            left_out[why] += 1
        if scaled.value is not None or scaled.comment or scaled.correction or scaled.better_than:
            yield place, scaled


def _in_range(
    statement: Statement, ranges: Mapping[str, Range | None], measured: Mapping[str, Metric]
) -> tuple[Statement, str | None]:
    """Return a statement with a reward as its value, or without a value and why."""
    if statement.metric is None or statement.value is None:
        return statement, None
    bare = statement._replace(value=None)
    if statement.metric not in ranges:
        return bare, f"values of another metric ({statement.metric})"
    bounds = ranges[statement.metric]
    if bounds is None:
        metric = measured[statement.metric]
        return bare, (
            f"{statement.metric} has values from {metric.low:g} to {metric.high:g}, not from 0 to 1, -1 to 1, "
            f"or 1, 2, 3, 4, 5: give its range, --metric {statement.metric}=WORST..BEST"
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


def _feedback(source: str, statement: Statement, ids: Spool[str]) -> dict[str, Any]:
    completion_id = ids.get(statement.about)
    content = orjson.dumps([source, *statement, completion_id])
    scale = None if statement.value is None else statement.metric or "binary"
    return {
        "object": "feedback",
        "created_at": statement.created_at,
        "completion_id": completion_id,
        "target": "completion_id",
        "reward": statement.value,
        "scale": scale,
        "comment": statement.comment,
        "correction": statement.correction,
        "preferred_over": ids.get(statement.better_than) if statement.better_than else None,
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
