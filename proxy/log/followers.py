"""Completions as those read them who follow the log: reward models and signals. Functions on a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from burnish.proxy.ids import first_completion_id_at
from burnish.proxy.log.store import COLUMNS, Reader
from burnish.proxy.records import Completion

LONGEST_BRANCH = 10_000
"""Answers that are looked at."""


class Unrewarded(NamedTuple):
    """A part of the log."""

    upto: int
    """Number of its last row, to continue from."""
    completions: list[Completion]
    """Those with a whole reply and no reward."""


def rewarded_upto(connection: sqlite3.Connection, model: str, since: float) -> int:
    """Return the number of the last row that a reward model needn't see, on since a moment."""
    boundary = "SELECT n FROM completion WHERE id < ? ORDER BY id DESC LIMIT 1"
    (upto,) = connection.execute(
        f"""SELECT max(coalesce((SELECT max(n) FROM completion WHERE rewarded_by = ?), 0),
            coalesce(({boundary}), 0))""",  # noqa: S608
        (model, first_completion_id_at(since)),
    ).fetchone()
    return int(upto)


def unrewarded(connection: sqlite3.Connection, start: int, limit: int, *, full: bool) -> Unrewarded:
    """Read on behind a row. ``full``: with contexts."""
    query = f"SELECT n, {COLUMNS} FROM completion WHERE n > ? ORDER BY n LIMIT ?"  # noqa: S608
    rows = connection.execute(query, (start, limit)).fetchall()
    reader = Reader(connection)
    reader.load(row[1:] for row in rows)
    completions = [reader.completion(row[1:], full=full) for row in rows]
    whole = [
        completion
        for completion in completions
        if completion.reply and completion.ended.outcome == "complete" and completion.ended.reward is None
    ]
    return Unrewarded(rows[-1][0] if rows else start, whole)


def set_rewards(connection: sqlite3.Connection, model: str, rewards: Iterable[tuple[str, float]]) -> None:
    """Store (completion, reward). Those that were deleted meanwhile are passed over."""
    connection.executemany(
        "UPDATE completion SET reward = ?, rewarded_by = ? WHERE id = ?",
        [(reward, model, name) for name, reward in rewards],
    )


class ToolResults(NamedTuple):
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


def told_results(connection: sqlite3.Connection, start: int, limit: int) -> ToolResults:
    """Read on behind a row."""
    inner = "continues IS NOT NULL AND NOT begins_turn"
    query = f"SELECT n, {inner}, {COLUMNS} FROM completion WHERE n > ? ORDER BY n LIMIT ?"  # noqa: S608
    rows = connection.execute(query, (start, limit)).fetchall()
    reader = Reader(connection)
    completions = [reader.completion(row[2:], full=True) for row in rows if row[1]]
    return ToolResults(
        rows[-1][0] if rows else start, [completion for completion in completions if _has_results(completion)]
    )


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
