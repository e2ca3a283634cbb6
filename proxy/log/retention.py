"""Deletes completions that need not, or must not, be kept: some at a time.

The age of a completion follows from its place in the log, not from its time alone. So a wrong clock neither deletes new
completions nor keeps old ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Literal, NamedTuple

from burnish.proxy.log import duels, feedback, rollouts, search
from burnish.proxy.log.store import as_json
from burnish.proxy.records import answer_named

STEP_ROWS = 32
"""Completions a step, some milliseconds: captures and ratings are committed between two steps."""

PASSTHROUGH_STEP_ROWS = 1024
"""The same for passthroughs, which nothing refers to."""

DAY_S = 24 * 60 * 60


class Keep(NamedTuple):
    """Limits of what the log keeps; None: no limit."""

    days: float | None = None
    completions: int | None = None
    rated: bool = True
    """Completions with feedback that counts are kept whatever their age."""
    next_turns: bool = False
    """And so are the next turns of those, which hold what the user said of them."""

    @property
    def all(self) -> bool:
        """True if nothing is ever deleted."""
        return self.days is None and self.completions is None


def boundary(
    connection: sqlite3.Connection, keep: Keep, moment: float, table: Literal["completion", "passthrough"]
) -> int:
    """Return the number of the last row that is too old, or beyond the count to keep; 0 if all are kept."""
    by_place = by_age = 0
    if keep.completions is not None:
        row = connection.execute(
            f"SELECT n FROM {table} ORDER BY n DESC LIMIT 1 OFFSET ?",  # noqa: S608
            (keep.completions,),
        ).fetchone()
        by_place = row[0] if row else 0
    if keep.days is not None:
        oldest = moment - keep.days * DAY_S
        oldest_row = connection.execute(
            f"SELECT n FROM {table} WHERE created_at BETWEEN ? AND ? ORDER BY n LIMIT 1",  # noqa: S608
            (oldest, moment),
        ).fetchone()
        (by_age,) = connection.execute(
            f"SELECT coalesce(max(n), 0) FROM {table} WHERE created_at < ? AND (? IS NULL OR n < ?)",  # noqa: S608
            (oldest, *(oldest_row or (None,)), *(oldest_row or (None,))),
        ).fetchone()
    return int(max(by_place, by_age))


def prune(connection: sqlite3.Connection, keep: Keep, start: int, upto: int) -> tuple[int, int]:
    """Delete some completions with numbers in (after, upto]; returns the last number checked, and how many went.

    0 as the last number: there are no more.
    """
    rows = connection.execute(
        "SELECT n, id, conversation_id FROM completion WHERE n > ? AND n <= ? ORDER BY n LIMIT ?",
        (start, upto, STEP_ROWS),
    ).fetchall()
    ids = {row[1] for row in rows}
    if keep.rated:
        rated_ids = _rated(connection, {row[2] for row in rows})
        ids -= rated_ids
        if keep.next_turns:
            ids -= _next_turns(connection, rated_ids)
    if ids:
        erase(connection, ids)
    return (rows[-1][0] if rows else 0), len(ids)


def prune_passthroughs(connection: sqlite3.Connection, upto: int) -> int:
    return _delete_passthrough(connection, "n <= ?", upto)


def forget(connection: sqlite3.Connection, caller: str) -> int:
    """Delete some completions and passthroughs of a caller, then their duels, instructions and feedback.

    Returns how many rows went; 0: nothing is left.
    """
    rows = connection.execute("SELECT id FROM completion WHERE caller = ? LIMIT ?", (caller, STEP_ROWS))
    ids = [name for (name,) in rows]
    if ids:
        erase(connection, ids)
        return len(ids)
    if count := _delete_passthrough(connection, "caller = ?", caller):
        return count
    if ids := duels.sampled_for(connection, caller, STEP_ROWS):
        erase(connection, ids)
        return len(ids)
    duels.forget(connection, caller)
    rollouts.forget(connection, caller)
    connection.execute("DELETE FROM instruction WHERE caller = ?", (caller,))
    return erase_feedback(connection, "rater = ?", caller)


def _delete_passthrough(connection: sqlite3.Connection, where: str, operand: object) -> int:
    some = f"SELECT n FROM passthrough WHERE {where} LIMIT ?"  # noqa: S608
    statement = f"DELETE FROM passthrough WHERE n IN ({some})"  # noqa: S608
    return connection.execute(statement, (operand, PASSTHROUGH_STEP_ROWS)).rowcount


# Of the first choice, and of "ID/1" and so on; "0" is the character behind "/". Both bounds let the index be used.
PREFERRED_OVER = "feedback.preferred_over >= {0} AND feedback.preferred_over < {0} || '0'"
"""Whether feedback prefers something over any choice of the completion with this ID."""


def _rated(connection: sqlite3.Connection, conversations: set[str]) -> set[str]:
    """Return the completions that feedback is about, also as the worse one of two."""
    ratings = feedback.effective_ratings(connection, conversations)
    worse = {over for rating in ratings.values() for over in rating.preferred_over}
    compared = connection.execute(
        f"""SELECT feedback.preferred_over FROM completion JOIN feedback ON {PREFERRED_OVER.format("completion.id")}
        WHERE completion.conversation_id IN (SELECT value FROM json_each(?))
            AND feedback.id NOT IN (SELECT feedback FROM undo)""",  # noqa: S608 – names of our own
        (as_json(conversations),),
    )
    return {answer_named(answer)[0] for answer in (*ratings, *worse, *(name for (name,) in compared))}


def _next_turns(connection: sqlite3.Connection, completion_ids: set[str]) -> set[str]:
    rows = connection.execute(
        "SELECT id FROM completion WHERE begins_turn AND continues IN (SELECT value FROM json_each(?))",
        (as_json(completion_ids),),
    )
    return {name for (name,) in rows}


USED_BY_COMPLETIONS = ("reply", "settings", "definitions", "choices", "instructions")
"""Columns that refer to a message or to parameters. (So does ``prompt``, which is on the path to ``node`` as well.)"""

UNUSED = " AND ".join(
    ["NOT EXISTS (SELECT 1 FROM node WHERE node.content = content.id)"]
    + [
        f"NOT EXISTS (SELECT 1 FROM completion WHERE completion.{column} = content.id)"  # noqa: S608
        for column in USED_BY_COMPLETIONS
    ]
)


def erase(connection: sqlite3.Connection, completion_ids: Iterable[str]) -> None:
    """Delete completions, the feedback on them, and all messages that nothing else uses."""
    ids = as_json(completion_ids)
    among = "IN (SELECT value FROM json_each(?))"
    search.remove(connection, ids)
    columns = ", ".join(("node", "prompt", *USED_BY_COMPLETIONS))
    rows = connection.execute(f"SELECT {columns} FROM completion WHERE id {among}", (ids,)).fetchall()  # noqa: S608
    attempts = connection.execute(
        f"SELECT DISTINCT rollout FROM completion WHERE id {among} AND rollout IS NOT NULL",  # noqa: S608
        (ids,),
    ).fetchall()
    erase_feedback(connection, f"completion_id {among}", ids)
    compared = f"SELECT feedback.id FROM json_each(?) JOIN feedback ON {PREFERRED_OVER.format('value')}"  # noqa: S608
    connection.execute(f"UPDATE feedback SET preferred_over = NULL WHERE id IN ({compared})", (ids,))  # noqa: S608
    duels.answers_erased(connection, ids)
    for table in ("raw", "token_capture", "response_item"):
        connection.execute(f"DELETE FROM {table} WHERE completion {among}", (ids,))  # noqa: S608
    connection.execute(f"DELETE FROM completion WHERE id {among}", (ids,))  # noqa: S608
    if attempts:
        rollouts.completions_erased(connection, ids, as_json(name for (name,) in attempts))
    contents = {content for _, *used in rows for content in used if content is not None}
    for node in {row[0] for row in rows if row[0] is not None}:
        contents |= _prune_path(connection, node)
    unused = f"DELETE FROM content WHERE id {among} AND {UNUSED}"  # noqa: S608
    connection.execute(unused, (as_json(sorted(contents)),))


def erase_feedback(connection: sqlite3.Connection, where: str, *values: object) -> int:
    """Delete feedback, and return how much it was; ``where`` is one of our own literals, with its values bound."""
    connection.execute(f"DELETE FROM undo WHERE feedback IN (SELECT id FROM feedback WHERE {where})", values)  # noqa: S608
    return connection.execute(f"DELETE FROM feedback WHERE {where}", values).rowcount  # noqa: S608


def _prune_path(connection: sqlite3.Connection, node: int) -> set[int]:
    """Delete a node and those above it, up to one that is still used; returns the contents that they had."""
    contents: set[int] = set()
    while node:
        row = connection.execute(
            """DELETE FROM node WHERE id = :node
            AND NOT EXISTS (SELECT 1 FROM node AS child WHERE child.parent = :node)
            AND NOT EXISTS (SELECT 1 FROM completion WHERE completion.node = :node)
            RETURNING parent, content""",
            {"node": node},
        ).fetchone()
        if row is None:
            break
        node = row[0]
        contents.add(row[1])
    return contents
