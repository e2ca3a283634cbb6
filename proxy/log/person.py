"""All that the log has of one person, in the order in which it came. Only reads."""

from __future__ import annotations

import sqlite3

from burnish.proxy.ids import LENGTH
from burnish.proxy.log import feedback
from burnish.proxy.log.store import Reader, select
from burnish.proxy.records import Completion, Feedback, Passthrough

Said = Completion | Feedback | Passthrough


def said_by(connection: sqlite3.Connection, caller: str, after: str, limit: int) -> list[Said]:
    """Return what a caller asked and was answered, what they said of answers, and what was passed through for them.

    Earliest first, with contexts; undone and superseded feedback too. ``after``: the id to go on from, "" for none.
    """
    moment = after[-LENGTH:]
    rows = select(
        connection, "WHERE caller = ? AND id > ? ORDER BY id LIMIT ?", (caller, f"cmpl_{moment}", limit)
    )
    reader = Reader(connection)
    found: list[Said] = [reader.completion(row, None, full=True) for row in rows]
    found += feedback.select(
        connection,
        "id IN (SELECT id FROM feedback WHERE rater = ? AND id > ? ORDER BY id LIMIT ?)",
        caller,
        f"fb_{moment}",
        limit,
    )
    columns = ", ".join(Passthrough._fields)
    passthroughs = connection.execute(
        f"SELECT {columns} FROM passthrough WHERE caller = ? AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (caller, f"pass_{moment}", limit),
    )
    found += [Passthrough(*row) for row in passthroughs]
    return sorted(found, key=lambda each: each.id[-LENGTH:])[:limit]
