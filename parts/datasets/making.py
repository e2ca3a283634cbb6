"""From what was found in a foreign export to records of ours, as lines of JSON. Pure.

The same answer gets the same ID, and the same statement the same key, so a file can be imported again. Raters and
callers are named after the source: "langfuse", or "langfuse:ann".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from burnish.parts.datasets.found import Answer, Found, Said
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
    """The values of a metric."""

    worst: float
    best: float

    def reward(self, value: float) -> float | None:
        """Return a value in [-1, 1]; None if it is outside."""
        share = (value - self.worst) / (self.best - self.worst)
        return 2 * share - 1 if 0 <= share <= 1 else None


class SeveralMetrics(ValueError):
    """The export measures several things, and nobody said which of them is the rating."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__(f"{len(counts)} metrics")
        self.counts = counts


def read_metric(given: str) -> tuple[str, Range | None]:
    """Return a metric's name and its range, from "NAME" or "NAME=WORST..BEST". Raises ValueError."""
    found = METRIC.fullmatch(given)
    if found is None or found["worst"] is None:
        return given, None
    bounds = Range(float(found["worst"]), float(found["best"]))
    if bounds.worst == bounds.best:
        raise ValueError(f"the worst and the best value of {found['name']!r} are the same")
    return found["name"], bounds


def made(found: Found, metrics: Mapping[str, Range | None]) -> list[Line]:
    """Return the records of all that was found, answers first; what can't be one is counted in ``found``.

    ``metrics``: which metrics are the rating; none given: the only one. Raises SeveralMetrics.
    """
    statements = _rated(found, metrics)
    used = {name for each in statements for name in (each.about, each.better_than) if name}
    ids = {name: _completion_id(found.source, found.answers[name]) for name in sorted(used)}
    answers = [
        Line(found.places[name], _completion(found.source, found.answers[name], ids[name])) for name in ids
    ]
    return [
        *answers,
        *(Line(found.places[each.name], _feedback(found.source, each, ids)) for each in statements),
    ]


def _rated(found: Found, metrics: Mapping[str, Range | None]) -> list[Said]:
    """Return the statements that are used, earliest first, with rewards as their values."""
    values: dict[str, list[float]] = defaultdict(list)
    for each in found.said.values():
        if each.metric is not None and each.value is not None:
            values[each.metric].append(each.value)
    if not metrics and len(values) > 1:
        raise SeveralMetrics({name: len(each) for name, each in values.items()})
    ranges = {name: bounds or _guessed(values[name]) for name, bounds in metrics.items() if name in values}
    if not metrics:
        ranges = {name: _guessed(each) for name, each in values.items()}
    used = []
    for each in sorted(found.said.values(), key=lambda said: (said.created_at or 0.0, said.name)):
        if not {each.about, each.better_than or each.about} <= found.answers.keys():
            found.left_out[UNREAD] += 1
            continue
        said, why = _in_range(each, ranges, values)
        if why:
            found.left_out[why] += 1
        if said.value is not None or said.comment or said.correction or said.better_than:
            used.append(said)
    return used


def _guessed(values: Sequence[float]) -> Range | None:
    """Return the range of 0 to 1, -1 to 1 or 1 to 5 that the values lie in."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return Range(0, 1)
    if low >= -1 and high <= 1:
        return Range(-1, 1)
    return Range(LIKERT[0], LIKERT[-1]) if all(value in LIKERT for value in values) else None


def _in_range(
    said: Said, ranges: Mapping[str, Range | None], values: Mapping[str, Sequence[float]]
) -> tuple[Said, str | None]:
    """Return a statement with a reward as its value, or without a value and why."""
    if said.metric is None or said.value is None:
        return said, None
    bare = said._replace(value=None)
    if said.metric not in ranges:
        return bare, f"values of another metric ({said.metric})"
    bounds = ranges[said.metric]
    if bounds is None:
        low, high = min(values[said.metric]), max(values[said.metric])
        return bare, (
            f"{said.metric} has values from {low:g} to {high:g}, not from 0 to 1, -1 to 1, or 1, 2, 3, 4, 5: give its "
            f"range, --metric {said.metric}=WORST..BEST"
        )
    reward = bounds.reward(said.value)
    if reward is None:
        return bare, f"values of {said.metric} outside {bounds.worst:g}..{bounds.best:g}"
    return said._replace(value=reward, metric=_scale(bounds, said.value)), None


def _scale(bounds: Range, value: float) -> str:
    if bounds == (LIKERT[0], LIKERT[-1]) and value in LIKERT:
        return "likert"
    return "binary" if value in bounds else "scalar"


def _completion_id(source: str, answer: Answer) -> str:
    content = orjson.dumps([source, answer.name, answer.messages, answer.reply, answer.tools])
    return made_id("cmpl_", answer.created_at or 0.0, content)


def _completion(source: str, answer: Answer, identifier: str) -> dict[str, Any]:
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


def _feedback(source: str, said: Said, ids: Mapping[str, str]) -> dict[str, Any]:
    content = orjson.dumps([source, *said, ids[said.about]])
    scale = None if said.value is None else said.metric or "binary"
    return {
        "object": "feedback",
        "created_at": said.created_at,
        "completion_id": ids[said.about],
        "target": "completion_id",
        "reward": said.value,
        "scale": scale,
        "comment": said.comment,
        "correction": said.correction,
        "preferred_over": ids[said.better_than] if said.better_than else None,
        "scope": said.scope,
        "source": said.source,
        "rater": _person(source, said.user),
        "weight": 1.0,
        "tags": [DEMONSTRATION] if said.demonstration else [],
        "idempotency_key": f"import:{digest(content).hex()}",
    }


def _person(source: str, user: str | None) -> str:
    return _name(f"{source}:{user}" if user else source)


def _name(given: str) -> str:
    """Return a name that a list can show."""
    return " ".join(plain(given).split())[:MAX_NAME]
