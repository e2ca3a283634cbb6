"""Training runs, and what the log knows of versions: who taught them, how many answers each gave a day.

Functions on a connection. Transactions belong to the caller.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from burnish.proxy.http.errors import NotFound
from burnish.proxy.ids import first_completion_id_at
from burnish.proxy.log.store import as_json


@dataclass(frozen=True, slots=True)
class Run:
    """One training run."""

    id: str
    """"run_" + 26 characters that sort by time."""
    started_at: float
    ended_at: float | None
    status: Literal[
        "training", "evaluating", "swapping", "live", "candidate", "rejected", "failed", "interrupted"
    ]
    reason: str
    version: int | None
    """The version that it made, if it got that far."""
    ratings: int
    """How many ratings it was given."""


COLUMNS = "id, started_at, ended_at, status, reason, version, ratings"


class RunTotal(NamedTuple):
    outcome: str
    runs: int
    seconds: float


def start(connection: sqlite3.Connection, run: Run) -> None:
    connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(run))


def update(connection: sqlite3.Connection, run: Run) -> None:
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


class Teacher(NamedTuple):
    """What one rater said of the answers that a version learnt from."""

    rater: str
    good: int
    bad: int
    comments: int
    corrections: int
    preferences: int


class Day(NamedTuple):
    """How many requests each version answered on one day of this machine's clock."""

    date: str
    """ISO 8601, such as "2026-11-25"."""
    answers: dict[int, int]
    """Version → answers, without versions that answered nothing; 0: the base model."""


def teachers(connection: sqlite3.Connection, feedback_ids: Collection[str]) -> list[Teacher]:
    """Return who gave this feedback, those with most first. Erased feedback isn't counted."""
    rows = connection.execute(
        """SELECT rater, total(reward > 0), total(reward < 0), count(comment), count(correction), count(preferred_over)
        FROM feedback WHERE id IN (SELECT value FROM json_each(?))
        GROUP BY rater ORDER BY count(*) DESC, rater""",
        (as_json(feedback_ids),),
    )
    return [Teacher(rater, *map(int, counts)) for rater, *counts in rows]


def answers_by_day(
    connection: sqlite3.Connection, versions: Collection[int], days: int, moment: datetime
) -> list[Day]:
    """Return the answers of these versions on the last days, earliest first; the last one is today.

    IDs begin with their time, so the index by version and ID counts a day without reading a completion.
    """
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [midnight - timedelta(days=ago) for ago in range(days - 1, -2, -1)]
    edges = [first_completion_id_at(begin.timestamp()) for begin in begins]
    rows = connection.execute(
        """SELECT day.key, version.value, (
            SELECT count(*) FROM completion WHERE adapter_version = version.value
            AND id >= day.value ->> 0 AND id < day.value ->> 1
        ) FROM json_each(?) AS day, json_each(?) AS version""",
        (as_json(list(pairwise(edges))), as_json(sorted(versions))),
    )
    answers: dict[int, dict[int, int]] = defaultdict(dict)
    for day, version, count in rows:
        if count:
            answers[day][version] = count
    return [Day(begin.date().isoformat(), answers[day]) for day, begin in enumerate(begins[:-1])]
