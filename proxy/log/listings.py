"""Lists of completions, and the filters of the history. Each filter has an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from burnish.proxy.log import feedback
from burnish.proxy.log.queries import judged
from burnish.proxy.log.search import Search
from burnish.proxy.log.store import Reader, as_json, select
from burnish.proxy.records import Completion, Feedback

RatingFilter = Literal["good", "bad", "unrated", "commented"]
STATED: dict[str | None, str] = {
    "good": "reward > 0",
    "bad": "reward < 0",
    "commented": "comment IS NOT NULL",
    None: "1",
}
"""What feedback says that an answer is listed for. The words are those of the partial indexes."""
LOOKED_AT = 100
"""Rows of other filters in which a search for a common word looks together."""
STANDS = "NOT EXISTS (SELECT 1 FROM undo WHERE undo.feedback = feedback.id)"


class Filters(NamedTuple):
    """None: any."""

    conversation: str | None = None
    rater: str | None = None
    """Only answers that this rater said something about; with ``rating``: what they said."""
    rating: RatingFilter | None = None
    """By what all ratings of an answer come to, unless a rater is given."""
    version: int | None = None
    """The version that answered; 0: the base model."""
    agent: str | None = None
    q: str | None = None
    """Words that the prompt and the reply have, in any order."""
    failed: bool | None = None
    """Whether the answer is an error, broke off or never came. Answers that the client stopped haven't failed."""


FAILED = "(outcome IN ('cut', 'failed') OR coalesce(status, 0) >= 400)"
"""The words are those of the partial index."""
ANY = Filters()


def completions(
    connection: sqlite3.Connection, limit: int = 50, before_id: str | None = None, filters: Filters = ANY
) -> list[Completion]:
    """Return completions, latest first; ``before_id`` is an ID to continue from.

    Only those that something was said of have their contexts and parameters, which decide whether it can teach.
    Filters by feedback list the answers that it names, and not others of the same turn.
    """
    reader, page = Reader(connection), list[Completion]()
    for rows in _pages(connection, limit, before_id, filters):
        reader.load(rows)
        # SQL finds what was said; what counts of it is decided here, and is nearly always the same.
        page += [
            completion
            for completion in judged(connection, reader, rows, full=False)
            if _fits(completion, filters)
        ]
        if len(page) >= limit:
            break
    return page[:limit]


def _pages(
    connection: sqlite3.Connection, limit: int, before_id: str | None, filters: Filters
) -> Iterator[Sequence[Any]]:
    """Yield rows that may fit, latest first."""
    if filters.q is None:
        yield from _filtered(connection, limit, before_id, filters)
        return
    search = Search(connection, filters.q)
    if filters == Filters(q=filters.q) or search.is_rare(before_id):
        for numbers in search.matches(before_id):
            yield from _filtered(connection, limit, before_id, filters, numbers)
        return
    for rows in _filtered(connection, LOOKED_AT, before_id, filters):
        names = as_json(row[0] for row in rows)
        among = "SELECT n, id FROM completion WHERE id IN (SELECT value FROM json_each(?))"
        numbered = dict(connection.execute(among, (names,)).fetchall())
        matches = {numbered[number] for number in search.among(numbered)}
        fitting = [row for row in rows if row[0] in matches]
        yield from (fitting[start : start + limit] for start in range(0, len(fitting), limit))


def _filtered(
    connection: sqlite3.Connection,
    limit: int,
    before_id: str | None,
    filters: Filters,
    numbers: Sequence[int] | None = None,
) -> Iterator[list[Any]]:
    """Yield rows by all filters but the search, latest first. ``numbers``: as of ``_rows``."""
    has_more = True
    while has_more:
        rows = _rows(connection, limit, before_id, filters, numbers)
        yield rows
        has_more = len(rows) == limit
        before_id = rows[-1][0] if rows else None


def named(connection: sqlite3.Connection, completion_ids: Collection[str]) -> list[Completion]:
    """Return these completions as ``completions`` does, but earliest first; without those that aren't there."""
    where = "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
    rows, reader = select(connection, where, (as_json(completion_ids),)), Reader(connection)
    reader.load(rows)
    return judged(connection, reader, rows, full=False)


COVERED = 100
"""Latest answers of a conversation of which a change of ratings is looked for."""


def covered(connection: sqlite3.Connection, statement: Feedback) -> list[str]:
    """Return the IDs of the latest completions that feedback may be about by its scope."""
    latest = "SELECT id FROM completion WHERE conversation_id = ? ORDER BY id DESC LIMIT ?"
    rows = connection.execute(latest, (statement.conversation_id, COVERED)).fetchall()
    return [statement.draft.completion_id, *(name for (name,) in rows)]


def _rows(
    connection: sqlite3.Connection,
    limit: int,
    before_id: str | None,
    filters: Filters,
    numbers: Sequence[int] | None,
) -> list[Any]:
    """``numbers``: None, or those of the completions that may be returned."""
    operands = {
        "completion.id < ?": before_id,
        "completion.conversation_id = ?": filters.conversation,
        "completion.adapter_version = ?": filters.version,
        "completion.agent = ?": filters.agent,
    }
    bound = {clause: operand for clause, operand in operands.items() if operand is not None}
    clauses, values = [*bound], list[Any](bound.values())
    if numbers is not None:
        clauses.append("completion.n IN (SELECT value FROM json_each(?))")
        values.append(as_json(numbers))
    if filters.failed is not None:
        clauses.append(FAILED if filters.failed else f"NOT {FAILED}")
    rater = ["rater = ?"] if filters.rater is not None else []
    raters = [filters.rater] if rater else []
    if filters.rating == "unrated":
        terms = " AND ".join(["completion_id = completion.id", "reward IS NOT NULL", STANDS, *rater])
        where = " AND ".join([*clauses, f"NOT EXISTS (SELECT 1 FROM feedback WHERE {terms})"])  # noqa: S608
        return select(connection, f"WHERE {where} ORDER BY id DESC LIMIT ?", [*values, *raters, limit])
    if filters.rating is None and not rater:
        where = " AND ".join(clauses) or "1"
        return select(connection, f"WHERE {where} ORDER BY id DESC LIMIT ?", [*values, limit])
    logged = " AND ".join(["completion.id = completion_id", *clauses])
    conditions = [STATED[filters.rating], STANDS, *rater, f"EXISTS (SELECT 1 FROM completion WHERE {logged})"]  # noqa: S608
    values = [*raters, *values]
    if before_id is not None:  # once more, for the index
        conditions.append("completion_id < ?")
        values.append(before_id)
    answers = f"""SELECT DISTINCT completion_id FROM feedback WHERE {" AND ".join(conditions)}
        ORDER BY completion_id DESC LIMIT ?"""  # noqa: S608
    return select(connection, f"WHERE id IN ({answers}) ORDER BY id DESC", [*values, limit])


def _fits(completion: Completion, filters: Filters) -> bool:
    """Whether what counts of the feedback on a completion is what the filters ask for."""
    if filters.rating is None and filters.rater is None:
        return True
    statements = [
        record.feedback
        for record in completion.feedback
        if record.feedback.undone_at is None and filters.rater in (None, record.feedback.draft.rater)
    ]
    if filters.rater is None:
        ratings = [completion.rating, *(choice.rating for choice in completion.choices)]
    else:
        ratings = [statement.draft.reward for statement in statements if statement.superseded_by is None]
    rewards = [reward for reward in ratings if reward is not None]
    fits = {
        "good": any(reward > 0 for reward in rewards),
        "bad": any(reward < 0 for reward in rewards),
        "unrated": not rewards,
        "commented": any(statement.draft.comment for statement in statements),
        None: bool(statements),
    }
    return fits[filters.rating]


def feedbacks(
    connection: sqlite3.Connection, /, *, limit: int = 50, **filters: object
) -> list[tuple[Feedback, Completion | None]]:
    """Return feedback as ``feedback.latest`` does, with the completions that it names; None: no longer in the log."""
    statements = feedback.latest(connection, limit=limit, **filters)
    names = as_json({statement.draft.completion_id for statement in statements})
    rows = select(connection, "WHERE id IN (SELECT value FROM json_each(?))", (names,))
    completions = {
        completion.id: completion for completion in judged(connection, Reader(connection), rows, full=True)
    }
    return [(statement, completions.get(statement.draft.completion_id)) for statement in statements]
