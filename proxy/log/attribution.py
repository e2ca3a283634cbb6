"""Whose turn is it, and which answer is meant: completions found by what a client sends back. No header needed.

First by key: the path to the reply, message by message. If the client rewrote earlier messages (a time in the
system prompt, a compaction), by the reply's own identity, with the words before it as a witness.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from burnish.proxy.errors import Conflict, NotFound
from burnish.proxy.log.capture import Captured
from burnish.proxy.log.tree import Step, loaded, path, step

TELLING_BYTES = 40
"""A stored reply at least this long names its conversation by itself; "OK." is said in many."""

RETRY_WINDOW = 1000
"""Completions; a client's retry follows its first attempt closely."""

MAX_CANDIDATES = 200
"""Equal replies that are compared, latest first."""

CANDIDATES = f"""SELECT id, conversation_id, session, caller, node, prompt, created_at
    FROM completion WHERE %s = ? ORDER BY n DESC LIMIT {MAX_CANDIDATES}"""  # noqa: S608
BY_KEY, BY_IDENTITY, BY_RESPONSE = (
    CANDIDATES % column for column in ("reply_key", "reply_identity", "response_id")
)


class Candidate(NamedTuple):
    """A completion that may be the one."""

    id: str
    conversation_id: str
    session: str | None
    caller: str
    node: int | None
    prompt: int | None
    created_at: float


def conversation_of(connection: sqlite3.Connection, captured: Captured) -> str | None:
    """Return the conversation that a request continues: that of its nearest reply which the log knows."""
    exchange = captured.exchange
    replies = [index for index, said in enumerate(captured.context) if said.role == "assistant"]
    for index in reversed(replies):
        found = _by_key(connection, captured.context[index])
        if found:
            return preferred(found, exchange.session, exchange.caller)[0].conversation_id
    for index in reversed(replies):
        found = _kindred(connection, captured.context, index, exchange.session, exchange.caller)
        if found:
            return found[0].conversation_id
    return _first_attempt(connection, captured) if exchange.retry else None


def answer_before(
    connection: sqlite3.Connection, messages: Sequence[dict[str, Any]], caller: str, session: str | None
) -> str:
    """Return the id of the completion that is the last assistant message of a history.

    Raises NotFound, and Conflict when several are equally likely.
    """
    context = path(messages)
    index = next((i for i in reversed(range(len(context))) if context[i].role == "assistant"), None)
    if index is None:
        raise NotFound("there is no answer in this conversation yet")
    found = _by_key(connection, context[index])
    if found:
        return preferred(found, session, caller)[0].id
    found = preferred(_by_identity(connection, context[index]), session, caller)
    if not found:
        raise NotFound(
            "the last answer of this conversation is not in the log: it did not come through burnish"
        )
    witnessed = [candidate for candidate in found if _same_question(connection, context, index, candidate)]
    in_session = [candidate for candidate in found if session and candidate.session == session]
    chosen = _both(witnessed, in_session) or witnessed or in_session or found
    if not witnessed and not in_session and len({candidate.node for candidate in chosen}) > 1:
        raise Conflict(
            "several logged answers read exactly like the last one here, in different conversations: "
            "rate it by its completion_id",
            candidates=candidates(chosen),
        )
    return chosen[0].id


def candidates(found: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return what an error says of the completions to choose from."""
    return [
        {"completion_id": each.id, "conversation_id": each.conversation_id, "created_at": each.created_at}
        for each in found
    ]


def by_response(connection: sqlite3.Connection, response_id: str) -> list[Candidate]:
    """Return the completions whose response body carried this id, latest first."""
    return [Candidate(*row) for row in connection.execute(BY_RESPONSE, (response_id,))]


def preferred(found: Sequence[Candidate], session: str | None, caller: str) -> list[Candidate]:
    """Sort by session, then caller, then time (latest first, as they come)."""
    return sorted(found, key=lambda each: (not session or each.session != session, each.caller != caller))


def _by_key(connection: sqlite3.Connection, reply: Step) -> list[Candidate]:
    return [Candidate(*row) for row in connection.execute(BY_KEY, (reply.key,))]


def _by_identity(connection: sqlite3.Connection, reply: Step) -> list[Candidate]:
    if reply.empty:
        return []
    return [Candidate(*row) for row in connection.execute(BY_IDENTITY, (reply.identity,))]


def _both(one: Sequence[Candidate], other: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in one if candidate in other]


def _kindred(
    connection: sqlite3.Connection, context: Sequence[Step], index: int, session: str | None, caller: str
) -> list[Candidate]:
    """Return the completions that said this reply and may belong to the same conversation."""
    telling = len(context[index].body) >= TELLING_BYTES
    same_people = [
        candidate
        for candidate in preferred(_by_identity(connection, context[index]), session, caller)
        if candidate.caller == caller
        and (candidate.session == session or not (candidate.session and session))
    ]
    witnessed = [each for each in same_people if _same_question(connection, context, index, each)]
    return witnessed or (same_people if telling else [])


def _same_question(
    connection: sqlite3.Connection, context: Sequence[Step], index: int, candidate: Candidate
) -> bool:
    """Whether the last user message before a reply is the one that the candidate answered."""
    asked = next((said for said in reversed(context[:index]) if said.role == "user"), None)
    if asked is None or candidate.prompt is None:
        return False
    (body,) = connection.execute("SELECT body FROM content WHERE id = ?", (candidate.prompt,)).fetchone()
    return step(loaded(body), None).identity == asked.identity


def _first_attempt(connection: sqlite3.Connection, captured: Captured) -> str | None:
    """Return the conversation of the request that this one repeats."""
    if not captured.context:
        return None
    row = connection.execute(
        """SELECT conversation_id FROM completion JOIN node ON node.id = completion.node
        WHERE node.digest = ? AND caller = ? AND n > (SELECT max(n) FROM completion) - ?
        ORDER BY n DESC LIMIT 1""",
        (captured.context[-1].node, captured.exchange.caller, RETRY_WINDOW),
    ).fetchone()
    return row[0] if row else None
