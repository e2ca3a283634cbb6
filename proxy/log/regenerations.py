"""Regenerations: somebody asked the same again, so perhaps what came first was not what they wanted.

They are kept as candidates of a preference, and nothing learns from them: whoever means it says so with
``preferred_over``. A second answer to the same context is one of a person's only if

- both answers are whole, say something else, and are of the same caller and session: the rest are retries;
- the person could read the first one before they asked again: programs ask at once, or at the same time;
- it opens a turn: within one, agents repeat what a tool or a parser did not like;
- it is part of a conversation, which came from an answer before or went on from one of these; and no more than some
  ask for it: who samples one prompt many times goes on from none.
"""

from __future__ import annotations

import sqlite3

from burnish.proxy.log.side_requests import is_side_request
from burnish.proxy.log.store import Reader, row_of
from burnish.proxy.records import Regeneration

LEAST_READING_S = 1.0
MOST_READING_S = 3600.0
"""After an hour it is a new attempt rather than a second opinion."""
MOST_ANSWERS = 10
"""To one context."""

# The + keeps SQLite from walking through all answers of a caller.
AGAIN = """WITH answer AS NOT MATERIALIZED (
    SELECT *, created_at + total_s AS ended_at FROM completion
    WHERE outcome = 'complete' AND status = 200 AND reply IS NOT NULL
)
SELECT id, (
    SELECT max(+first.id) FROM answer AS first
    WHERE first.node = again.node AND first.n < again.n AND first.reply != again.reply
        AND +first.caller = again.caller AND first.session IS again.session
        AND again.created_at - first.ended_at BETWEEN ? AND ?
) AS instead_of, continues
FROM answer AS again
WHERE node IN (SELECT node FROM completion WHERE node IS NOT NULL GROUP BY node HAVING count(*) BETWEEN 2 AND ?)
    AND retry = 0 AND begins_turn AND instead_of IS NOT NULL
    AND (? IS NULL OR id < ?) AND (? IS NULL OR conversation_id = ?)
ORDER BY n DESC"""
WENT_ON = """SELECT continues, later.id FROM completion AS later WHERE continues IN (
    SELECT sibling.id FROM completion AS sibling JOIN completion AS again ON sibling.node = again.node
    WHERE again.id = ? AND +sibling.caller = again.caller AND sibling.session IS again.session
)"""


def regenerations(
    connection: sqlite3.Connection, limit: int, before: str | None, conversation: str | None
) -> list[Regeneration]:
    """Return what was asked for again, latest first; ``before`` is an id to go on from."""
    reader = Reader(connection)
    found: list[Regeneration] = []
    values = (LEAST_READING_S, MOST_READING_S, MOST_ANSWERS, before, before, conversation, conversation)
    for again, instead_of, continues in connection.execute(AGAIN, values):
        asked = reader.completion(row_of(connection, again), full=True)
        went_on = {
            answer
            for answer, later in connection.execute(WENT_ON, (again,))
            if not is_side_request(reader.completion(row_of(connection, later), full=True))
        }
        if (continues or went_on) and not is_side_request(asked):
            chosen = went_on.pop() if len(went_on) == 1 else None
            found.append(
                Regeneration(again, instead_of, asked.conversation_id, asked.asked.created_at, chosen)
            )
        if len(found) == limit:
            break
    return found
