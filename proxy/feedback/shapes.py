"""The log's records as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Literal

import orjson

from burnish.proxy.described import flat, list_of, optional
from burnish.proxy.feedback.usability import obstacle_of, overruled, usability
from burnish.proxy.log.duels import Duel
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.transfer import Record
from burnish.proxy.messages import text_of
from burnish.proxy.records import (
    Answerer,
    AppliedFeedback,
    Choice,
    Completion,
    CompletionEnd,
    Fate,
    Feedback,
    FeedbackDraft,
    Passthrough,
    Regeneration,
    RequestFacts,
    Tokens,
    Usability,
    answer_name,
)

QUOTED_CHARACTERS = 200
LISTED_ERROR, LISTED_PROMPT, LISTED_REPLY = 200, 500, 10_000
"""Characters of a text in a list."""
LISTED_REPLY_BYTES = 16 * 1024
"""A reply of more JSON is shortened in a list."""
LISTED_CALLS, LISTED_ARGUMENTS = 20, 200
"""Tool calls of a shortened reply, and characters of their arguments."""

Fates = Callable[[str, Feedback], Fate | None]
"""Takes the name of an answer and feedback that counts for it; returns what the latest run did with it."""

# -- types of what the functions below return --------------------------------------------------------------------------

_UNSHOWN = frozenset({"asked", "served", "ended", "wire", "rating", "feedback", "fault", "retry"})
"""Fields of a completion that are not in JSON, or elsewhere."""
_USABILITY: dict[str, Any] = {"object": Literal["feedback"], "usable": bool, "reason": str | None}
QUOTED = flat("Quoted", prompt=str, reply=str)
FEEDBACK = flat(
    "Feedback", Feedback, FeedbackDraft, without=frozenset({"draft"}), **_USABILITY, learnt_by=int | None
)
UNDONE = flat("Undone", FEEDBACK, rated=str | None, about=QUOTED | None)
RATING_RECEIPT = flat(
    "Rated",
    Feedback,
    FeedbackDraft,
    without=frozenset({"draft"}),
    **_USABILITY,
    id=str | None,
    created_at=float | None,
    repeated=bool,
    about=QUOTED | None,
    dry_run=optional(bool),
    rated=optional(str | None),
)
COMPLETION = flat(
    "Completion",
    Completion,
    RequestFacts,
    Answerer,
    CompletionEnd,
    without=_UNSHOWN,
    object=Literal["completion"],
    choices=list_of(flat("Choice", Choice, rated=str | None)),
    rating=float | None,
    rated=str | None,
    usable=bool,
    reason=str | None,
    feedback=list_of(FEEDBACK),
)
ROW = flat("CompletionRow", COMPLETION, shortened=bool)
TOKENS = flat(
    "ShownTokens",
    prompt=int | list[int],
    reply=int | list[int],
    logprobs=optional(list[float | None]),
    missing=str | None,
)
FULL_COMPLETION = flat("ShownCompletion", COMPLETION, next_turn=Any, tokens=TOKENS | None)
PASSTHROUGH = flat("Passthrough", Passthrough, object=Literal["passthrough"])
REGENERATION = flat("Regeneration", Regeneration, object=Literal["regeneration"])

# ----------------------------------------------------------------------------------------------------------------------


def feedback_json(feedback: Feedback) -> dict[str, Any]:
    record = asdict(feedback)
    draft = record.pop("draft")
    return {"object": "feedback", **record, **draft}


def quoted(completion: Completion, choice: int) -> dict[str, str]:
    answer = completion.with_choice(choice)
    texts = {"prompt": answer.prompt, "reply": text_of(answer.reply or {})}
    return {name: " ".join(text[:QUOTED_CHARACTERS].split()) for name, text in texts.items()}


def completion_json(completion: Completion) -> dict[str, Any]:
    """Return a completion as one flat object, without what was said of it."""
    record = completion._asdict()
    for name in ("wire", "rating", "feedback", "fault"):
        del record[name]
    for part in ("asked", "served", "ended"):
        record |= record.pop(part)._asdict()
    del record["retry"]
    record["choices"] = [asdict(choice) for choice in completion.choices]
    return {"object": "completion", **record}


def judged_json(completion: Completion, rules: Rules, fates: Fates) -> dict[str, Any]:
    """Return a completion with what was said of it, and whether that can teach."""
    record = completion_json(completion)
    for choice in record["choices"]:
        choice["rated"] = completion.rated(choice["index"])
    obstacle = obstacle_of(completion, rules)
    return record | {
        "rating": completion.rating,
        "rated": completion.rated(),
        "usable": obstacle is None,
        "reason": obstacle,
        "feedback": [
            _applied_json(applied_feedback, completion, rules, fates)
            for applied_feedback in completion.feedback
        ],
    }


def tokens_json(tokens: Tokens | None, *, full: bool) -> dict[str, Any] | None:
    """Return how many tokens were captured; ``full``: which. None: they weren't to be captured."""
    if tokens is None:
        return None
    if full:
        return tokens._asdict()
    return {"prompt": len(tokens.prompt), "reply": len(tokens.reply), "missing": tokens.missing}


def told_json(
    feedback: Feedback, completion: Completion | None, rules: Rules, fates: Fates
) -> dict[str, Any]:
    """Return a record with whether it can teach; ``completion``: the one that it names, if it is still there."""
    for applied_feedback in completion.feedback if completion else ():
        if completion and applied_feedback.feedback.id == feedback.id:
            return _applied_json(applied_feedback, completion, rules, fates)
    verdict = Usability(usable=False, reason="the answer is no longer in the log")
    return feedback_json(feedback) | verdict._asdict() | {"learnt_by": None}


def _applied_json(
    applied_feedback: AppliedFeedback, completion: Completion, rules: Rules, fates: Fates
) -> dict[str, Any]:
    verdict, fate = _usability(applied_feedback, completion, rules), None
    if verdict.usable:
        choice = applied_feedback.feedback.draft.choice
        fate = fates(answer_name(completion.id, choice), applied_feedback.feedback)
    if fate and fate.reason:
        verdict = Usability(fate.held_out, fate.reason)
    learnt_by = fate.version if fate and not fate.reason else None
    return feedback_json(applied_feedback.feedback) | verdict._asdict() | {"learnt_by": learnt_by}


def _usability(applied_feedback: AppliedFeedback, completion: Completion, rules: Rules) -> Usability:
    """Return whether feedback teaches something about a completion, unless other feedback counts instead."""
    feedback = applied_feedback.feedback
    if feedback.undone_at is not None:
        return Usability(usable=False, reason="taken back")
    if feedback.superseded_by:
        return Usability(usable=False, reason=f"replaced by a later rating, {feedback.superseded_by}")
    if not applied_feedback.counts and not overruled(feedback.draft, completion):
        return Usability(
            usable=False, reason="later feedback, or a rating of this answer alone, counts instead"
        )
    return usability(feedback.draft, completion, applied_feedback.worse, rules=rules)


def brief(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a list, with the beginning of its error: an upstream may have answered with a whole page."""
    return record | {"error": record["error"] and _cut(record["error"], LISTED_ERROR)}


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Return a completion of a list: without context and parameters, and with the beginnings of long texts."""
    reply, shortened = _shortened(record["reply"])
    choices = [(choice, *_shortened(choice["reply"])) for choice in record["choices"]]
    return brief(record) | {
        "messages": [],
        "params": {},
        "prompt": _cut(record["prompt"], LISTED_PROMPT),
        "reply": reply,
        "choices": [choice | {"reply": short} for choice, short, _ in choices],
        "shortened": shortened or any(cut for _, _, cut in choices),
    }


def _shortened(reply: dict[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """Return a reply for a list, and whether something is left out."""
    if reply is None or len(orjson.dumps(reply)) <= LISTED_REPLY_BYTES:
        return reply, False
    calls = [call for call in reply.get("tool_calls") or () if isinstance(call, dict)][:LISTED_CALLS]
    short: dict[str, Any] = {"role": "assistant", "content": _cut(text_of(reply), LISTED_REPLY)}
    return short | ({"tool_calls": [_shortened_call(call) for call in calls]} if calls else {}), True


def _shortened_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = (str(function.get(member) or "") for member in ("name", "arguments"))
    return {
        "id": _cut(str(call.get("id") or ""), LISTED_ARGUMENTS),
        "type": "function",
        "function": {"name": _cut(name, LISTED_ARGUMENTS), "arguments": _cut(arguments, LISTED_ARGUMENTS)},
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def rows_json(completions: Iterable[Completion], rules: Rules, fates: Fates) -> list[dict[str, Any]]:
    return [_row(judged_json(completion, rules, fates)) for completion in completions]


def record_json(record: Record) -> dict[str, Any]:
    if isinstance(record, Completion):
        return completion_json(record)
    if isinstance(record, Feedback):
        return feedback_json(record)
    if isinstance(record, Passthrough):
        return {"object": "passthrough", **record._asdict()}
    return {"object": "duel" if isinstance(record, Duel) else "instruction", **asdict(record)}


def page(records: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    return {"object": "list", "data": records[:limit], "has_more": len(records) > limit}
