"""The log's records as lines of JSON, and back: what `burnish data export --as jsonl` writes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from burnish.proxy.feedback import shapes
from burnish.proxy.feedback.targets import MAX_TAGS, MAX_WEIGHT, Label, Text
from burnish.proxy.http.errors import Unprocessable
from burnish.proxy.ids import ALPHABET, LENGTH, first_completion_id_at
from burnish.proxy.log.duels import Duel
from burnish.proxy.log.instructions import InstructionRow
from burnish.proxy.log.transfer import Record
from burnish.proxy.plain import Line
from burnish.proxy.records import (
    Answerer,
    Choice,
    Completion,
    CompletionEnd,
    Feedback,
    FeedbackDraft,
    Passthrough,
    RequestFacts,
)
from burnish.proxy.surfaces import SURFACES

AHEAD_S = 24 * 60 * 60
"""How far the clock of another machine may be ahead. Later IDs of ours would sort before an ID from the future."""
ORIGIN = "burnish"
"""The origin of answers that burnish itself exported."""
DERIVED = ("prompt", "superseded_by", "quotes", "sampled")
"""Follow from the other members, or hold only while a duel is open."""
ANSWER = re.compile(rf"cmpl_[{ALPHABET}]{{{LENGTH}}}(/\d{{1,4}})?")


def record_json(record: Record) -> dict[str, Any]:
    """Return a record as a line that ``read_record`` understands."""
    line = shapes.record_json(record)
    if isinstance(record, Completion):
        line["retry"] = record.asked.retry
        # Where an answer first came from stays; that it went through burnish's own export doesn't count.
        line["imported_from"] = None if line["imported_from"] == ORIGIN else line["imported_from"]
    return {name: member for name, member in line.items() if name not in DERIVED}


def read_record(line: Any) -> Record:
    """Return the record of a line. Raises Unprocessable, which says what is wrong with it."""
    kind = line.get("object") if isinstance(line, dict) else None
    if not isinstance(kind, str) or kind not in READERS:
        raise Unprocessable(f"it isn't a record of burnish: object must be one of {', '.join(READERS)}")
    try:
        return READERS[kind]({name: line[name] for name in line if name not in ("object", *DERIVED)})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # A positional argument's place comes before its name, and a type's before a branch of it.
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        raise Unprocessable(f"{where or kind}: {first['msg'].removeprefix('Value error, ')}") from error


# ----------------------------------------------------------------------------------------------------------------------

Part = TypeVar("Part")
Moment = Annotated[float, Field(ge=0, lt=1e11)]


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the types of the records don't say. Each member is optional."""

    created_at: Moment | None = None
    caller: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] = "local"
    conversation_id: Annotated[Line, StringConstraints(max_length=256)] = ""
    imported_from: Label | None = None
    agent: Line | None = None
    rater: Label = "local"
    reward: Annotated[float, Field(ge=-1, le=1)] | None = None
    comment: Text | None = None
    correction: Text | None = None
    weight: Annotated[float, Field(gt=0, le=MAX_WEIGHT)] = 1.0
    tags: Annotated[tuple[Label, ...], Field(max_length=MAX_TAGS)] = ()
    messages: tuple[dict[str, Any], ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    reply: dict[str, Any] | None = None


_LIMITS = TypeAdapter(_Limits)
_PARTS: dict[Any, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind)
    for kind in (RequestFacts, Answerer, CompletionEnd, FeedbackDraft, Passthrough, Duel, InstructionRow)
}
_CHOICES = TypeAdapter(tuple[Choice, ...])


def _names(kind: Any) -> tuple[str, ...]:
    """Return the members of a kind of record."""
    return getattr(kind, "_fields", None) or tuple(member.name for member in fields(kind))


def _part(kind: type[Part], line: Mapping[str, Any]) -> Part:
    """Return the part of a line that is of some kind. Raises ValidationError."""
    part: Part = _PARTS[kind].validate_python({name: line[name] for name in _names(kind) if name in line})
    return part


def _checked(line: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> _Limits:
    """Raises Unprocessable, ValidationError."""
    if unknown := next((name for name in line if name not in names), None):
        raise Unprocessable(
            f"unknown member {str(unknown)[:40]!r}: the line is from a newer burnish, or isn't its own"
        )
    _check_id(line.get("id"), prefix)
    limits: _Limits = _LIMITS.validate_python({name: line[name] for name in _names(_Limits) if name in line})
    return limits


def _check_id(identifier: Any, prefix: str) -> None:
    if not isinstance(identifier, str) or not re.fullmatch(rf"{prefix}[{ALPHABET}]{{{LENGTH}}}", identifier):
        raise Unprocessable(
            f"id must be {prefix} and {LENGTH} letters and digits, not {str(identifier)[:60]!r}"
        )
    if identifier[len(prefix) :] > first_completion_id_at(time.time() + AHEAD_S)[-LENGTH:]:
        raise Unprocessable(f"the ID {identifier} lies in the future: one of the two clocks is wrong")


COMPLETION = (
    *("id", "conversation_id", "continues", "instructions", "messages", "params", "reply", "choices"),
    *(*RequestFacts._fields, *Answerer._fields, *CompletionEnd._fields),
)


def _completion(line: dict[str, Any]) -> Completion:
    limits = _checked(line, COMPLETION, "cmpl_")
    request, server = _part(RequestFacts, line), _part(Answerer, line)
    if request.surface not in SURFACES:
        raise Unprocessable(f"surface must be one of {', '.join(SURFACES)}, not {request.surface[:40]!r}")
    for message in (*limits.messages, limits.reply or {}):
        check_message(message)
    for name in ("continues", "instructions"):
        if not isinstance(line.get(name), str | None):
            raise Unprocessable(f"{name} must be a text or null")
    return Completion(
        line["id"],
        request,
        server._replace(imported_from=server.imported_from or ORIGIN),
        _part(CompletionEnd, line),
        instructions=line.get("instructions"),
        conversation_id=limits.conversation_id,
        continues=line.get("continues"),
        messages=limits.messages,
        params=limits.params,
        reply=limits.reply,
        choices=_CHOICES.validate_python(line.get("choices", ())),
    )


def check_message(message: Mapping[str, Any]) -> None:
    """Raises Unprocessable."""
    role, content, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
    if message and not isinstance(role, str):
        raise Unprocessable("a message has no role")
    if not isinstance(content, str | list | None):
        raise Unprocessable("the content of a message must be a text, a list of parts, or null")
    if not isinstance(calls, list | None):
        raise Unprocessable("tool_calls of a message must be a list")


FEEDBACK = ("id", "created_at", "conversation_id", "undone_at", *_names(FeedbackDraft))


def _feedback(line: dict[str, Any]) -> Feedback:
    own = line.get("id") is not None
    limits = _checked(line if own else line | {"id": "fb_" + "0" * LENGTH}, FEEDBACK, "fb_")
    draft = _part(FeedbackDraft, line)
    for name in filter(None, (draft.completion_id, draft.preferred_over)):
        if not ANSWER.fullmatch(name):
            raise Unprocessable(f"{name[:60]!r} isn't an answer of burnish")
    if not own and draft.idempotency_key is None:
        raise Unprocessable(
            "feedback needs an id or an idempotency_key: without either it would be stored twice"
        )
    if own and limits.created_at is None:
        raise Unprocessable("feedback with an id needs created_at")
    undone_at = line.get("undone_at")
    if not isinstance(undone_at, int | float | None):
        raise Unprocessable("undone_at must be a number or null")
    return Feedback(line.get("id") or "", limits.created_at or 0.0, "", draft, undone_at)


def _whole(kind: type[Part], prefix: str, line: dict[str, Any]) -> Part:
    _checked(line, _names(kind), prefix)
    return _part(kind, line)


def _instruction(line: dict[str, Any]) -> InstructionRow:
    instruction = _part(InstructionRow, line)
    if not re.fullmatch(r"inst_[0-9a-f]{10}", instruction.id):
        raise Unprocessable(f"id must be inst_ and 10 hexadecimal digits, not {instruction.id[:60]!r}")
    return instruction


READERS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "completion": _completion,
    "feedback": _feedback,
    "passthrough": partial(_whole, Passthrough, "pass_"),
    "duel": partial(_whole, Duel, "duel_"),
    "instruction": _instruction,
}
