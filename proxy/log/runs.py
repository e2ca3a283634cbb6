"""Training runs in SQLite: functions on a connection. Transactions belong to the caller."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import astuple
from typing import Any, NamedTuple

from burnish.proxy.http.errors import NotFound
from burnish.proxy.records import Run

COLUMNS = "id, started_at, ended_at, status, reason, version, ratings"


class RunTotal(NamedTuple):
    """All runs that ended in one way."""

    outcome: str
    runs: int
    seconds: float


def start(connection: sqlite3.Connection, run: Run) -> None:
    connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(run))


def update(connection: sqlite3.Connection, run: Run) -> None:
    """Replace the record of a run. Raises NotFound."""
    one(connection, run.id)
    connection.execute("REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(run))


def one(connection: sqlite3.Connection, run_id: str) -> Run:
    """Raises NotFound."""
    row = connection.execute(f"SELECT {COLUMNS} FROM run WHERE id = ?", (run_id,)).fetchone()  # noqa: S608
    if row is None:
        raise NotFound(f"there is no run {run_id!r} in the log", param="id")
    return Run(*row)


def latest(connection: sqlite3.Connection, limit: int = 50) -> list[Run]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM run ORDER BY id DESC LIMIT ?", (limit,))  # noqa: S608
    return [Run(*row) for row in rows]


def keep_curve(connection: sqlite3.Connection, run_id: str, points: dict[str, Any]) -> None:
    """Store the curve of a run, in place of an earlier one."""
    connection.execute("REPLACE INTO curve VALUES (?, ?)", (run_id, json.dumps(points, allow_nan=False)))


def curve(connection: sqlite3.Connection, run_id: str) -> dict[str, Any] | None:
    """Return the curve of a run; None if it made no step, or if an earlier release carried it out."""
    row = connection.execute("SELECT points FROM curve WHERE run = ?", (run_id,)).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def totals(connection: sqlite3.Connection) -> list[RunTotal]:
    rows = connection.execute(
        """SELECT status, count(*), sum(max(ended_at - started_at, 0)) FROM run
        WHERE ended_at IS NOT NULL GROUP BY status ORDER BY status"""
    )
    return [RunTotal(*row) for row in rows]
