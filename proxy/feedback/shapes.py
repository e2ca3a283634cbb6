"""The log's records as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from burnish.proxy.log.queries import PersonalRecord
from burnish.proxy.log.tree import text_of
from burnish.proxy.log.usability import Rules, obstacle_of, usability
from burnish.proxy.records import (
    Completion,
    Fate,
    Feedback,
    Heard,
    Passthrough,
    Regeneration,
    Usability,
    answer_name,
)

QUOTED_CHARACTERS = 200
LISTED_ERROR = 200
"""Characters of an error in a list."""

Fates = Callable[[str, Feedback], Fate | None]
"""Takes the name of an answer and feedback that counts for it; returns what the latest run did with it."""


def feedback_json(feedback: Feedback) -> dict[str, Any]:
    """Return a record as one flat object."""
    record = asdict(feedback)
    draft = record.pop("draft")
    return {"object": "feedback", **record, **draft}


def quoted(completion: Completion, choice: int) -> dict[str, str]:
    """Return the beginnings of a question and of an answer to it."""
    texts = {"prompt": completion.prompt, "reply": text_of(completion.with_choice(choice).reply or {})}
    return {name: " ".join(text[:QUOTED_CHARACTERS].split()) for name, text in texts.items()}


def completion_json(completion: Completion) -> dict[str, Any]:
    """Return a completion as one flat object, without what was said of it."""
    record = completion._asdict()
    for name in ("wire", "rating", "feedback", "fault"):
        del record[name]
    for part in ("asked", "served", "ended"):
        record |= record.pop(part)._asdict()
    del record["retry"]
    record["choices"] = [asdict(each) for each in completion.choices]
    return {"object": "completion", **record}


def judged_json(completion: Completion, rules: Rules, fates: Fates) -> dict[str, Any]:
    """Return a completion with what was said of it, and whether that can teach."""
    record = completion_json(completion)
    for each in record["choices"]:
        each["rated"] = completion.rated(each["index"])
    obstacle = obstacle_of(completion, rules)
    return record | {
        "rating": completion.rating,
        "rated": completion.rated(),
        "usable": obstacle is None,
        "reason": obstacle,
        "feedback": [_heard_json(each, completion, rules, fates) for each in completion.feedback],
    }


def told_json(
    feedback: Feedback, completion: Completion | None, rules: Rules, fates: Fates
) -> dict[str, Any]:
    """Return a record with whether it can teach; ``completion``: the one that it names, if it is still there."""
    for each in completion.feedback if completion else ():
        if completion and each.feedback.id == feedback.id:
            return _heard_json(each, completion, rules, fates)
    gone = Usability(usable=False, reason="the answer is no longer in the log")
    return feedback_json(feedback) | gone._asdict() | {"learnt_by": None}


def _heard_json(heard: Heard, completion: Completion, rules: Rules, fates: Fates) -> dict[str, Any]:
    told, fate = _usability(heard, completion, rules), None
    if told.usable:
        choice = heard.feedback.draft.choice
        fate = fates(answer_name(completion.id, choice), heard.feedback)
    if fate and fate.reason:
        told = Usability(fate.held_out, fate.reason)
    learnt_by = fate.version if fate and not fate.reason else None
    return feedback_json(heard.feedback) | told._asdict() | {"learnt_by": learnt_by}


def _usability(heard: Heard, completion: Completion, rules: Rules) -> Usability:
    """Return whether feedback teaches something about a completion, unless other feedback counts instead."""
    feedback = heard.feedback
    if feedback.undone_at is not None:
        return Usability(usable=False, reason="taken back")
    if feedback.superseded_by:
        return Usability(usable=False, reason=f"replaced by a later rating, {feedback.superseded_by}")
    if not heard.counts:
        return Usability(
            usable=False, reason="later feedback, or a rating of this answer alone, counts instead"
        )
    return usability(feedback.draft, completion, heard.worse, rules)


def brief(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a list, with the beginning of its error: an upstream may have answered with a whole page.

    A completion has no context and parameters there.
    """
    error = record["error"]
    if error and len(error) > LISTED_ERROR:
        error = error[: LISTED_ERROR - 1] + "…"
    shown: dict[str, Any] = {"error": error, "messages": [], "params": {}}
    return record | {name: value for name, value in shown.items() if name in record}


def personal_json(record: PersonalRecord) -> dict[str, Any]:
    if isinstance(record, Completion):
        return completion_json(record)
    return feedback_json(record) if isinstance(record, Feedback) else passthrough_json(record)


def passthrough_json(passthrough: Passthrough) -> dict[str, Any]:
    return {"object": "passthrough", **passthrough._asdict()}


def regeneration_json(regeneration: Regeneration) -> dict[str, Any]:
    return {"object": "regeneration", **asdict(regeneration)}


def page(records: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    return {"object": "list", "data": records[:limit], "has_more": len(records) > limit}
