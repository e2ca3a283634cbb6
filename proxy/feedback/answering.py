"""Run a ``/rl`` command on the turn before it, and answer it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from burnish.proxy.access.access import Action as Access
from burnish.proxy.access.access import may
from burnish.proxy.feedback.usability import usability
from burnish.proxy.http.errors import Conflict, NotFound, Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.attribution import HISTORY_AT_SERVER
from burnish.proxy.log.faults import Rules
from burnish.proxy.messages import text_of
from burnish.proxy.records import (
    LIKERT_IN_WORDS,
    Completion,
    Feedback,
    FeedbackDraft,
    RaterKey,
    counting_in_words,
    rating_word,
)
from burnish.proxy.rl.commands import CommandRequest, without_command
from burnish.proxy.rl.grammar import Command
from burnish.proxy.rl.own_words import PREFIX, QUOTE_CHARACTERS, UNDO_HINT, UNTAKEN, one_line, quote

FEEDBACK_SEARCHED = 50
"""How many pieces of feedback under one name ``/rl undo`` searches for the caller's own, latest first."""
CANDIDATES_NAMED = 5
OTHER_POINTS = re.compile(r"[+\-\u2212]?\d{1,9}(?:[.,]\d{1,9})?(?=/|\s|\Z)")
"""A number where points were expected, at the start of an unknown command."""

Action = Callable[[str], Awaitable[str]]
"""Runs an owner's command (train, promote, rollback, reset, on, off) with its argument; returns the answer."""

HELP = """rate the last answer:
  /rl good [comment]   also 👍 +1 yes up
  /rl bad [comment]    also 👎 -1 no down
  /rl 1 … /rl 5 [comment]   1 Terrible, 2 Poor, 3 Okay, 4 Good, 5 Excellent
  /rl fix <the reply you wanted>
  /rl undo             take back your last rating here
  /rl status           show ratings, live version and training
  /rl help"""
ACTION_HELP = {
    "train": "\n  /rl train            train now",
    "promote": "\n  /rl promote          use the version that waits for you",
    "rollback": "\n  /rl rollback [version | base]",
    "reset": "\n  /rl reset            start learning over: back to the base model, without the ratings so far",
    "on": "\n  /rl on               continue training",
    "off": "\n  /rl off              stop training",
}


async def answer_command(
    request: CommandRequest,
    log: Log,
    *,
    rules: Rules,
    status: Callable[[], Awaitable[str]],
    on_feedback: Callable[[Feedback], None],
    actions: Mapping[str, Action] | None = None,
) -> str:
    """Run a command and return the answer, in one of the forms of ``own_words``. Errors become part of it.

    ``actions`` are the owner's commands by name, if the request may give them.
    """
    actions, command, identity = actions or {}, request.command, request.identity
    try:
        if command.name == "status":
            answer = f"/rl status: {one_line(await status())}"
        elif command.name in actions:
            answer = f"/rl {command.name}: {one_line(await _done(actions[command.name], command.text))}"
        elif command.name == "fix" and not command.text:
            answer = "nothing was saved: /rl fix needs the reply that you wanted, for example  /rl fix It is Paris."
        elif command.name == "help" and (points := OTHER_POINTS.match(command.text)):
            answer = f"nothing was rated: a rating is 1 to 5, not {points[0]}: {LIKERT_IN_WORDS}"
        elif command.name in ("rate", "fix", "undo"):
            target, voice = await _target(log, request), (request.caller, identity.key)
            client_messages = None if may(identity, Access.AS_NAMED) else request.messages or ()
            if command.name == "undo":
                answer = await _undo(log, target, voice, on_feedback, client_messages)
            else:
                confirmation = await _add(log, target, _draft(command, target, voice), rules, on_feedback)
                answer = f"{confirmation} – {_quote(target, client_messages)} ({UNDO_HINT})"
        else:
            answer = _help(command, actions)
    except NotFound as error:
        answer = f"nothing was rated: {error.message}"
    except Conflict as error:
        ids = "\n".join(
            f"  {candidate['completion_id']}"
            for candidate in error.details.get("candidates", ())[:CANDIDATES_NAMED]
        )
        answer = f"nothing was rated: {error.message}\n{ids}"
    except Unavailable as error:
        answer = f"the command failed: {one_line(error.message)}"
    untaken = [UNTAKEN, *(f"  {line}" for line in command.remainder.split("\n"))] if command.remainder else ()
    return "\n".join((PREFIX + answer, *untaken))


async def _done(action: Action, text: str) -> str:
    try:
        return await action(text)
    except (NotFound, Conflict) as error:
        return error.message


async def _target(log: Log, request: CommandRequest) -> Completion:
    if request.previous:
        return await log.resolve(response_id=request.previous)
    if request.messages is None:
        return await log.resolve(last_of=request.caller, session=request.session)
    history = without_command(request.messages)
    if request.remote_context and not any(message.get("role") == "assistant" for message in history):
        raise NotFound(HISTORY_AT_SERVER)
    return await log.resolve_history(history, request.caller, request.session)


async def _add(
    log: Log, target: Completion, draft: FeedbackDraft, rules: Rules, on_feedback: Callable[[Feedback], None]
) -> str:
    receipt = await log.add_feedback(draft)
    if receipt.created:
        on_feedback(receipt.feedback)
    repetition = "" if receipt.created else ", as before"
    teaches = usability(receipt.feedback.draft, target, None, receipt.covered_answers, rules=rules).in_words()
    return f"{_confirmation(draft)}{repetition}{teaches}"


def _help(command: Command, actions: Mapping[str, Action]) -> str:
    problem = f"unknown command: /rl {one_line(command.text)[:QUOTE_CHARACTERS]}. " if command.text else ""
    if command.name in ACTION_HELP:
        problem = (
            f"Only owners may use /rl {command.name}: add yourself to `owners` in burnish's configuration. "
            "If it has an admin_key, the request must send that, too. "
        )
    return problem + HELP + "".join(ACTION_HELP.get(name, "") for name in actions)


def _draft(command: Command, target: Completion, voice: RaterKey) -> FeedbackDraft:
    fix = command.name == "fix"
    rater, given_with = voice
    return FeedbackDraft(
        completion_id=target.id,
        target="rl",
        reward=command.reward,
        scale=command.scale,
        comment=None if fix else command.text or None,
        correction=command.text if fix else None,
        scope="completion" if fix else "turn",
        rater=rater,
        given_with=given_with,
    )


def _confirmation(draft: FeedbackDraft) -> str:
    if draft.reward is None:
        return "saved the reply that you wanted"
    return f"rated {rating_word(draft.reward, draft.scale)}" + (" with your comment" if draft.comment else "")


async def _undo(
    log: Log,
    target: Completion,
    voice: RaterKey,
    on_feedback: Callable[[Feedback], None],
    client_messages: Sequence[dict[str, Any]] | None,
) -> str:
    """Take back what a rater said last in the conversation of an answer. ``client_messages``: as of ``_quote``."""
    feedbacks: Sequence[Feedback] = await log.feedbacks(
        conversation_id=target.conversation_id, rater=voice[0], limit=FEEDBACK_SEARCHED
    )
    own = next(
        (feedback for feedback in feedbacks if feedback.draft.voice == voice and feedback.undone_at is None),
        None,
    )
    if own is None:
        return f"you have no rating to take back on {_quote(target, client_messages)} or before it"
    on_feedback(await log.undo_feedback(own.id))
    answer = await log.completion(own.draft.completion_id)
    rating = answer.rated(own.draft.choice)
    return f"taken back; {counting_in_words(rating)} – {_quote(answer, client_messages)}"


def _quote(completion: Completion, client_messages: Sequence[dict[str, Any]] | None) -> str:
    """Quote an answer.

    ``client_messages``: messages that the client has sent itself, if its name isn't proved; else None.
    """
    reply = completion.reply or {}
    words = text_of(reply)
    if client_messages is not None and not any(
        words.strip() in text_of(message) for message in client_messages
    ):
        return f"the answer {completion.id}"
    if not words.strip():
        return "a tool call" if reply.get("tool_calls") else "an empty answer"
    return quote(words)
