"""Questions to the log: functions on a connection that only read."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log import feedback
from burnish.proxy.log.attribution import answer_before, by_response, candidates, with_answers
from burnish.proxy.log.ratings import effective
from burnish.proxy.log.side_requests import is_side_request, perhaps_side_request
from burnish.proxy.log.store import COLUMNS, IS_BEST, NODE, Reader, row_of
from burnish.proxy.records import (
    AppliedFeedback,
    Completion,
    Passthrough,
    Regeneration,
    RejectedAnswer,
    answer_name,
    answer_named,
)

MAX_SIDE_REQUESTS = 500
"""Side requests that are skipped to find the latest answer to the person."""
ANSWERS_QUOTED = 5
"""Latest answers that a side request may quote."""


def completion(connection: sqlite3.Connection, completion_id: str) -> Completion:
    """Return one completion with its context, by our ID or the upstream's. Raises NotFound, Conflict."""
    try:
        return stored(connection, completion_id)
    except NotFound:
        if not by_response(connection, completion_id):
            raise
        return _of_response(connection, completion_id)


def stored(connection: sqlite3.Connection, completion_id: str) -> Completion:
    """Return one completion with its context, by our ID. Raises NotFound."""
    return judged(connection, Reader(connection), [row_of(connection, completion_id)], full=True)[0]


def judged(
    connection: sqlite3.Connection, reader: Reader, rows: Sequence[Any], *, full: bool
) -> list[Completion]:
    """Build completions with what was said of them, and the rating that it comes to."""
    statements, places = feedback.in_conversations(connection, {row[1] for row in rows})
    ratings = effective(statements, places)
    by_id = {statement.id: statement for statement in statements}
    naming: dict[str, list[str]] = defaultdict(list)
    for statement in statements:
        naming[statement.draft.completion_id].append(statement.id)
    completions = []
    for row in rows:
        name = row[0]
        record = reader.completion(row, full=full or name in naming or name in ratings)
        indexes = [0, *(choice.index for choice in record.choices[1:])]
        own = [ratings.get(answer_name(name, index)) for index in indexes]
        counting = {feedback_id for rating in own if rating for feedback_id in rating.feedback_ids}
        records = tuple(
            AppliedFeedback(
                by_id[feedback_id],
                feedback_id in counting,
                reader.worse(
                    row[NODE], by_id[feedback_id].draft.answer, by_id[feedback_id].draft.preferred_over
                ),
            )
            for feedback_id in sorted(counting.union(naming[name]))
        )
        rewards = [rating.reward if rating else None for rating in own]
        each_choice = zip(record.choices, rewards, strict=False)  # a single answer has no choices
        choices = tuple(replace(choice, rating=reward) for choice, reward in each_choice)
        completions.append(record._replace(rating=rewards[0], choices=choices, feedback=records))
    return completions


def passthroughs(
    connection: sqlite3.Connection, limit: int = 50, before_id: str | None = None
) -> list[Passthrough]:
    clauses = "WHERE ? IS NULL OR id < ? ORDER BY id DESC LIMIT ?"
    return passthroughs_where(connection, clauses, (before_id, before_id, limit))


def passthroughs_where(
    connection: sqlite3.Connection, clauses: str, values: Sequence[object]
) -> list[Passthrough]:
    """``clauses`` are one of our own literals, with its values bound."""
    columns = ", ".join(Passthrough._fields)
    rows = connection.execute(f"SELECT {columns} FROM passthrough {clauses}", values)  # noqa: S608
    return [Passthrough(*row) for row in rows]


def resolve(
    connection: sqlite3.Connection,
    *,
    response_id: str | None = None,
    conversation_id: str | None = None,
    last_of: str | None = None,
    session: str | None = None,
) -> Completion:
    """Return the completion that a target names. Exactly one of the first three arguments must be given.

    ``conversation_id`` names its latest answer, ``last_of`` the latest answer to a caller,
    in ``session`` if that is given. Raises NotFound; Conflict with ``candidates`` if several completions have the
    response ID.
    """
    if response_id is not None:
        return _of_response(connection, response_id)
    if conversation_id is not None:
        turns = _turns(connection, "conversation_id = ?", conversation_id)
        completion_id = next((turn.id for turn in turns), None)
        missing = NotFound(
            f"there is no answer in a conversation {conversation_id!r}", param="conversation_id"
        )
    else:
        completion_id = _last_read(connection, last_of or "", session)
        missing = NotFound(f"{last_of!r} has no answer in the log yet", param="last")
    if completion_id is None:
        raise missing
    return completion(connection, completion_id)


def resolve_history(
    connection: sqlite3.Connection,
    messages: Sequence[dict[str, Any]],
    caller: str,
    session: str | None = None,
) -> Completion:
    """Return the completion that is the last assistant message of a history. Raises NotFound, Conflict."""
    history = with_answers(connection, messages, caller)
    answer = completion(connection, answer_before(connection, history, caller, session))
    if is_side_request(answer):
        raise NotFound(
            "the last answer here belongs to a request of the agent itself, such as a summary: "
            "rate it by its completion_id"
        )
    return answer


def rated_in_chat(
    connection: sqlite3.Connection,
    messages: Sequence[dict[str, Any]],
    caller: str,
    session: str | None = None,
) -> bool:
    """True if a caller rated the last assistant message of a history by ``/rl``, whether it counts or was undone."""
    try:
        answer = answer_before(connection, with_answers(connection, messages, caller), caller, session)
    except (NotFound, Conflict):
        return False
    query = "SELECT 1 FROM feedback WHERE completion_id = ? AND target = 'rl' AND rater = ?"
    return connection.execute(query, (answer, caller)).fetchone() is not None


def worse(connection: sqlite3.Connection, better: str, answer: str) -> RejectedAnswer | None:
    """Return another completion's answer, if it is to the same context. Raises NotFound."""
    return Reader(connection).worse(row_of(connection, answer_named(better)[0])[NODE], better, answer)


def _of_response(connection: sqlite3.Connection, response_id: str) -> Completion:
    matches = by_response(connection, response_id)
    if not matches:
        raise NotFound(
            f"there is no completion with response id {response_id!r} in the log", param="response_id"
        )
    if len(matches) > 1:
        raise Conflict(
            f"{len(matches)} completions have the response id {response_id!r}: name one by its completion_id",
            param="response_id",
            candidates=candidates(matches),
        )
    return completion(connection, matches[0].id)


def _turns(connection: sqlite3.Connection, where: str, *values: object) -> Iterator[Completion]:
    """Return the answers that aren't to side requests, latest first."""
    reader = Reader(connection)
    clauses = f"WHERE {where} AND reply IS NOT NULL AND {IS_BEST} ORDER BY id DESC LIMIT ?"
    latest = f"SELECT {COLUMNS} FROM completion {clauses}"  # noqa: S608
    for row in connection.execute(latest, (*values, MAX_SIDE_REQUESTS)):
        answer = reader.completion(row, full=True)
        if not is_side_request(answer):
            yield answer


def _last_read(connection: sqlite3.Connection, caller: str, session: str | None) -> str | None:
    """Return the ID of the latest answer to a person; of what may be a side request only if there is no other."""
    perhaps = None
    for answer in _turns(connection, "caller = ? AND (? IS NULL OR session = ?)", caller, session, session):
        earlier = _turns(connection, "caller = ? AND id < ?", caller, answer.id)
        if not perhaps_side_request(answer, islice(earlier, ANSWERS_QUOTED)):
            return answer.id
        perhaps = perhaps or answer.id
    return perhaps


LEAST_READING_S = 1.0
MOST_READING_S = 3600.0
"""After an hour it is a new attempt."""
MOST_ANSWERS = 10
"""Per context."""

PARAMETERS = """(SELECT json_group_array(key) FROM content, json_each(CAST(body AS TEXT))
    WHERE content.id = {}.settings)"""
"""Names of the small parameters. Their values, such as a seed, may change."""
# The + keeps SQLite from walking through all answers of a caller.
ALIKE = f"""+{{0}}.caller = again.caller AND {{0}}.session IS again.session AND {{0}}.continues IS again.continues
    AND {{0}}.surface = again.surface AND {PARAMETERS.format("{0}")} = {PARAMETERS.format("again")}"""
"""The same client asks at the same place of a conversation."""
AGAIN = f"""WITH answer AS NOT MATERIALIZED (
    SELECT *, created_at + total_s AS ended_at FROM completion
    WHERE outcome = 'complete' AND status = 200 AND reply IS NOT NULL
)
SELECT id, (
    SELECT max(+first.id) FROM answer AS first
    WHERE first.node = again.node AND first.n < again.n AND first.reply != again.reply
        AND {ALIKE.format("first")}
        AND again.created_at - first.ended_at BETWEEN ? AND ?
) AS instead_of, continues
FROM answer AS again
WHERE node IN (SELECT node FROM completion WHERE node IS NOT NULL GROUP BY node HAVING count(*) BETWEEN 2 AND ?)
    AND retry = 0 AND begins_turn AND instead_of IS NOT NULL
    AND (? IS NULL OR id < ?) AND (? IS NULL OR conversation_id = ?)
ORDER BY n DESC"""  # noqa: S608
WENT_ON = f"""SELECT continues, later.id FROM completion AS later WHERE continues IN (
    SELECT sibling.id FROM completion AS sibling JOIN completion AS again ON sibling.node = again.node
    WHERE again.id = ? AND {ALIKE.format("sibling")}
)"""  # noqa: S608


def regenerations(
    connection: sqlite3.Connection,
    limit: int = 50,
    before_id: str | None = None,
    conversation: str | None = None,
) -> list[Regeneration]:
    """Return requests that were made again, latest first; ``before_id`` is an id to continue from.

    Perhaps the first answer wasn't what the person wanted. These are candidates of a preference, and nothing learns
    from them: feedback with ``preferred_over`` states one. A second answer to the same context counts if

    - both answers are complete and differ: all others are retries;
    - the same client asked, in the same way and after the same answer: a program that is run again, or that asks what
      somebody asked in a chat, does not;
    - the person could read the first answer before asking again: programs ask at once, or at the same time;
    - it opens a turn: within one, agents repeat what a tool or a parser rejected;
    - it is part of a conversation, which came from an earlier answer or continued from one of these, and at most
      ``MOST_ANSWERS`` share the context: a program that samples one prompt many times continues from none.
    """
    reader = Reader(connection)
    repeats: list[Regeneration] = []
    values = (LEAST_READING_S, MOST_READING_S, MOST_ANSWERS, before_id, before_id, conversation, conversation)
    for again, instead_of, continues in connection.execute(AGAIN, values):
        request = reader.completion(row_of(connection, again), full=True)
        went_on = {
            answer
            for answer, later in connection.execute(WENT_ON, (again,))
            if not is_side_request(reader.completion(row_of(connection, later), full=True))
        }
        if (continues or went_on) and not is_side_request(request):
            choice = went_on.pop() if len(went_on) == 1 else None
            repeats.append(
                Regeneration(again, instead_of, request.conversation_id, request.asked.created_at, choice)
            )
        if len(repeats) == limit:
            break
    return repeats
