"""Which logged answers a judge is asked about: the latest that no person said anything of. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from burnish.proxy.feedback.usability import obstacle_of
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.ratings import PEOPLE
from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.messages import text_of
from burnish.proxy.records import Completion, Feedback

RATER = "judge"
TAG = "principles:"
"""The beginning of the tag on a judge's feedback; the digest of the principles follows."""
MAX_REPLY = 8_000
"""Characters. Two such replies and the conversation are about 6,000 tokens."""

BY_A_PERSON = "a person said something of them"
ALREADY_JUDGED = "judged by these principles before"
SIDE = "an agent asked for itself"
CALLS = "the model called tools"
LONG = f"longer than {MAX_REPLY:,} characters"


class Case(NamedTuple):
    """An answer to be judged."""

    completion: Completion
    reply: str
    replaced: tuple[Feedback, ...]
    """What was said of it by earlier principles, which the new judgement replaces."""


def why_not(completion: Completion, rules: Rules, tag: str, undecided: Collection[str]) -> str | None:
    """Return why a judge isn't asked about an answer. ``completion`` was read in full."""
    feedback = [rating.feedback for rating in completion.feedback]
    if any(statement.undone_at is None and statement.draft.source in PEOPLE for statement in feedback):
        return BY_A_PERSON
    # Also if it was taken back: then a person disagreed.
    if completion.id in undecided or any(
        _by_judge(statement) and tag in statement.draft.tags for statement in feedback
    ):
        return ALREADY_JUDGED
    if is_side_request(completion):
        return SIDE
    if obstacle := obstacle_of(completion, rules):
        return obstacle
    if (completion.reply or {}).get("tool_calls"):
        return CALLS
    return LONG if len(text_of(completion.reply or {})) > MAX_REPLY else None


def case(completion: Completion) -> Case:
    replaced = [
        rating.feedback
        for rating in completion.feedback
        if _by_judge(rating.feedback) and rating.feedback.undone_at is None
    ]
    return Case(completion, text_of(completion.reply or {}).strip(), tuple(replaced))


def _by_judge(feedback: Feedback) -> bool:
    """Whether burnish's own judge said it, not a program that calls itself one."""
    return feedback.draft.source == "judge" and any(tag.startswith(TAG) for tag in feedback.draft.tags)
