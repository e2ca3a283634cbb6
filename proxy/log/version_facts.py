"""What the log knows of versions: who taught them, and how many answers each gave a day. Functions on a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from burnish.proxy import ids
from burnish.proxy.log.store import as_json


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
    connection: sqlite3.Connection, versions: Collection[int], days: int, now: datetime
) -> list[Day]:
    """Return the answers of these versions on the last days, earliest first; the last one is today.

    IDs begin with their time, so the index by version and ID counts a day without reading a completion.
    """
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [midnight - timedelta(days=ago) for ago in range(days - 1, -2, -1)]
    edges = [ids.first_completion_id_at(each.timestamp()) for each in begins]
    rows = connection.execute(
        """SELECT day.key, version.value, (
            SELECT count(*) FROM completion WHERE adapter_version = version.value
            AND id >= day.value ->> 0 AND id < day.value ->> 1
        ) FROM json_each(?) AS day, json_each(?) AS version""",
        (as_json(list(pairwise(edges))), as_json(sorted(versions))),
    ).fetchall()
    return [_day(begin, place, rows) for place, begin in enumerate(begins[:-1])]


def _day(begin: datetime, place: int, rows: Sequence[tuple[int, int, int]]) -> Day:
    found = {version: count for day, version, count in rows if day == place and count}
    return Day(begin.date().isoformat(), found)
