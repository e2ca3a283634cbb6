"""Rewards of completions in SQLite: functions on a connection. Transactions belong to the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from burnish.proxy.ids import first_completion_id_at
from burnish.proxy.log.store import COLUMNS, Reader
from burnish.proxy.records import Completion


class Unrewarded(NamedTuple):
    """A part of the log."""

    upto: int
    """Number of its last row, to continue from."""
    completions: list[Completion]
    """Those with a whole reply and no reward."""


def rewarded_upto(connection: sqlite3.Connection, model: str, since: float) -> int:
    """Return the number of the last row that a reward model needn't see, on since a moment."""
    before = "SELECT n FROM completion WHERE id < ? ORDER BY id DESC LIMIT 1"
    (upto,) = connection.execute(
        f"""SELECT max(coalesce((SELECT max(n) FROM completion WHERE rewarded_by = ?), 0),
            coalesce(({before}), 0))""",  # noqa: S608
        (model, first_completion_id_at(since)),
    ).fetchone()
    return int(upto)


def unrewarded(connection: sqlite3.Connection, after: int, limit: int, *, full: bool) -> Unrewarded:
    """Read on behind a row. ``full``: with contexts."""
    query = f"SELECT n, {COLUMNS} FROM completion WHERE n > ? ORDER BY n LIMIT ?"  # noqa: S608
    rows = connection.execute(query, (after, limit)).fetchall()
    reader = Reader(connection)
    reader.load(row[1:] for row in rows)
    found = [reader.completion(row[1:], full=full) for row in rows]
    whole = [
        each
        for each in found
        if each.reply and each.ended.outcome == "complete" and each.ended.reward is None
    ]
    return Unrewarded(rows[-1][0] if rows else after, whole)


def set_rewards(connection: sqlite3.Connection, model: str, rewards: Iterable[tuple[str, float]]) -> None:
    """Store (completion, reward). Those that were deleted meanwhile are passed over."""
    connection.executemany(
        "UPDATE completion SET reward = ?, rewarded_by = ? WHERE id = ?",
        [(reward, model, name) for name, reward in rewards],
    )
