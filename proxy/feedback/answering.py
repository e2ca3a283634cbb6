"""Carry out a ``/rl`` command on the turn before it, and say what was done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from burnish.proxy.errors import Conflict, NotFound, Unavailable
from burnish.proxy.feedback.commands import ANSWER_PREFIX, Command, without_command
from burnish.proxy.log import Log
from burnish.proxy.log.tree import text_of
from burnish.proxy.records import Completion, Feedback, FeedbackDraft

QUOTE_CHARACTERS = 60
FEEDBACK_SEARCHED = 50
"""Latest pieces of feedback on one answer among which ``/rl undo`` looks for the caller's own."""
CANDIDATES_NAMED = 5

Action = Callable[[str], Awaitable[str]]
"""Carries out an owner's command (train, rollback, on, off) with its argument; returns what was done."""

HELP = """rate the answer before:
  /rl good [comment]   also 👍 +1 yes up
  /rl bad [comment]    also 👎 -1 no down
  /rl 1 … /rl 5 [comment]
  /rl fix <the reply you wanted>
  /rl undo             take your last rating of it back
  /rl status           how far the learning is
  /rl help"""
ACTION_HELP = {
    "train": "\n  /rl train            train now",
    "rollback": "\n  /rl rollback [version | base]",
    "on": "\n  /rl on               go on training",
    "off": "\n  /rl off              stop training",
}


async def answer_command(
    command: Command,
    messages: list[dict[str, Any]] | None,
    log: Log,
    caller: str,
    session: str | None,
    *,
    previous: str | None = None,
    status: Callable[[], Awaitable[str]],
    on_feedback: Callable[[Feedback], None],
    actions: Mapping[str, Action] | None = None,
) -> str:
    """Carry out a command and return the text that answers it; what goes wrong is said, not raised.

    ``messages`` is the whole request, the command included, and ``previous`` the response that it goes on from, where
    the upstream holds the history; without messages the caller's last answer is meant, in the session if one is given.
    ``actions`` are those of an owner by name.
    """
    actions = actions or {}
    try:
        if command.name == "status":
            said = await status()
        elif command.name in actions:
            said = await _done(actions[command.name], command.text)
        elif command.name == "fix" and not command.text:
            said = "nothing was stored: /rl fix needs the reply that you wanted, e.g.  /rl fix It is Paris."
        elif command.name in ("rate", "fix", "undo"):
            meant = await _meant(log, messages, caller, session, previous)
            said = await _on_answer(command, meant, log, caller, on_feedback)
        else:
            said = _help(command, actions)
    except NotFound as error:
        said = f"nothing was rated: {error.message}"
    except Conflict as error:
        ids = "\n".join(
            f"  {each['completion_id']}" for each in error.details.get("candidates", ())[:CANDIDATES_NAMED]
        )
        said = f"nothing was rated: {error.message}\n{ids}"
    except Unavailable as error:
        said = f"that did not work: {error.message}"
    return ANSWER_PREFIX + said


async def _done(action: Action, text: str) -> str:
    try:
        return await action(text)
    except (NotFound, Conflict) as error:
        return error.message


async def _meant(
    log: Log, messages: list[dict[str, Any]] | None, caller: str, session: str | None, previous: str | None
) -> Completion:
    if previous:
        return await log.resolve(response_id=previous)
    if messages is None:
        return await log.resolve(last_of=caller, session=session)
    return await log.resolve_history(without_command(messages), caller, session)


async def _on_answer(
    command: Command, meant: Completion, log: Log, caller: str, on_feedback: Callable[[Feedback], None]
) -> str:
    if command.name == "undo":
        return await _undo(log, meant, caller, on_feedback)
    feedback, _ = await log.add_feedback(_draft(command, meant, caller))
    on_feedback(feedback)
    return f"{_said(command)} – {_quote(meant)} (/rl undo takes it back)"


def _help(command: Command, actions: Mapping[str, Action]) -> str:
    problem = f"I don't know /rl {command.text[:QUOTE_CHARACTERS]}. " if command.text else ""
    if command.name in ACTION_HELP:
        problem = f"/rl {command.name} is for those whom `owners` in burnish's configuration names. "
    return problem + HELP + "".join(ACTION_HELP.get(name, "") for name in actions)


def _draft(command: Command, meant: Completion, caller: str) -> FeedbackDraft:
    fix = command.name == "fix"
    return FeedbackDraft(
        completion_id=meant.id,
        target="rl",
        reward=command.reward,
        scale=command.scale,
        comment=None if fix else command.text or None,
        correction=command.text if fix else None,
        scope="completion" if fix else "turn",
        rater=caller,
    )


def _said(command: Command) -> str:
    if command.name == "fix":
        return "kept the reply that you wanted"
    if command.scale == "likert":
        rating = f"{round(2 * (command.reward or 0.0) + 3)} of 5"
    else:
        rating = "good" if command.reward == 1.0 else "bad"
    return f"rated {rating}" + (" with your comment" if command.text else "")


async def _undo(log: Log, meant: Completion, caller: str, on_feedback: Callable[[Feedback], None]) -> str:
    given: Sequence[Feedback] = await log.feedbacks(completion_id=meant.id, limit=FEEDBACK_SEARCHED)
    own = next((each for each in given if each.draft.rater == caller and each.undone_at is None), None)
    if own is None:
        return f"there is nothing to take back on {_quote(meant)}"
    on_feedback(await log.undo_feedback(own.id))
    return f"taken back – {_quote(meant)}"


def _quote(completion: Completion) -> str:
    reply = completion.reply or {}
    words = " ".join(text_of(reply).split())
    if not words:
        return "the call of a tool" if reply.get("tool_calls") else "an empty answer"
    return f"“{words[:QUOTE_CHARACTERS].rstrip()}{'…' if len(words) > QUOTE_CHARACTERS else ''}”"
