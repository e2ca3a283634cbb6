"""Completions as signals need them: functions on a connection."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from burnish.proxy.log.store import COLUMNS, Reader
from burnish.proxy.records import Completion

LONGEST_BRANCH = 10_000
"""Answers that are looked at."""


class Told(NamedTuple):
    """A part of the log."""

    upto: int
    """Number of its last row, to continue from."""
    completions: list[Completion]
    """Those whose contexts end with results of tools, with their contexts."""


class Above(NamedTuple):
    """A completion on the way from another one to the beginning of its branch."""

    id: str
    begins_turn: bool


def last_row(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT coalesce(max(n), 0) FROM completion").fetchone()
    return int(last)


def told_results(connection: sqlite3.Connection, after: int, limit: int) -> Told:
    """Read on behind a row."""
    inner = "continues IS NOT NULL AND NOT begins_turn"
    query = f"SELECT n, {inner}, {COLUMNS} FROM completion WHERE n > ? ORDER BY n LIMIT ?"  # noqa: S608
    rows = connection.execute(query, (after, limit)).fetchall()
    reader = Reader(connection)
    found = [reader.completion(row[2:], full=True) for row in rows if row[1]]
    return Told(rows[-1][0] if rows else after, [each for each in found if _has_results(each)])


def _has_results(completion: Completion) -> bool:
    """Whether results of tools stand behind the last answer; a client may add something after them."""
    for message in reversed(completion.messages):
        if (role := message.get("role")) in ("tool", "assistant"):
            return bool(role == "tool")
    return False


def branch(connection: sqlite3.Connection, completion_id: str) -> list[Above]:
    """Return a completion and those that it continues, latest first."""
    rows = connection.execute(
        """WITH RECURSIVE above(id, continues, begins_turn, depth) AS (
            SELECT id, continues, begins_turn, 0 FROM completion WHERE id = ?
            UNION ALL
            SELECT completion.id, completion.continues, completion.begins_turn, depth + 1
            FROM completion JOIN above ON completion.id = above.continues WHERE depth < ?
        ) SELECT id, begins_turn FROM above ORDER BY depth""",
        (completion_id, LONGEST_BRANCH),
    )
    return [Above(name, bool(begins)) for name, begins in rows]
