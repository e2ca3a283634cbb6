"""Duels in SQLite: functions on a connection. Transactions belong to the caller.

A pair of the gate's replies gets a row when it is judged, a prompt that somebody asked of two versions at once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass, fields, replace
from typing import Literal, NamedTuple

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log import feedback
from burnish.proxy.records import FeedbackDraft, FeedbackReceipt

DuelChoice = Literal["left", "right", "equal"]
SAMPLED_FOR_DUELS = "duels"
"""The caller of answers that the gate sampled and somebody judged: they belong to no conversation of a person."""


@dataclass(frozen=True, slots=True)
class Duel:
    """Answers of two versions to one prompt, which somebody judges without knowing which is which."""

    id: str
    """"duel_" + 26 characters that sort by time."""
    created_at: float
    """When the versions answered, seconds since the epoch, UTC."""
    asked_by: str
    """The user whose words the prompt quotes."""
    left_version: int
    """0 = the base model."""
    right_version: int
    left: str | None
    """The completion; None: it isn't in the log."""
    right: str | None
    choice: DuelChoice | None = None
    """None: not judged yet."""
    judged_at: float | None = None
    rater: str | None = None
    feedback_id: str | None = None
    """The preference; None if the answers were found equal."""


NAMES = tuple(field.name for field in fields(Duel))
COLUMNS = ", ".join(NAMES)
PLACES = ", ".join("?" * len(NAMES))


class DuelResult(NamedTuple):
    duel: Duel
    preference: FeedbackReceipt | None
    """The preference; None if the answers were found equal."""


def add(connection: sqlite3.Connection, duel: Duel) -> None:
    connection.execute(f"INSERT INTO duel ({COLUMNS}) VALUES ({PLACES})", astuple(duel))  # noqa: S608


def judge(
    connection: sqlite3.Connection, duel: Duel, draft: FeedbackDraft | None, *, new: bool
) -> DuelResult:
    """Store a judged duel with its preference. ``new``: it has no row yet.

    Raises Conflict if it was judged before, NotFound if it or its answers were erased meanwhile.
    """
    row = one(connection, duel.id)
    check_open(row)
    if row is None and not new:
        raise NotFound(f"there is no duel {duel.id!r} in the log", param="id")
    preference = feedback.add(connection, draft) if draft else None
    duel = replace(duel, feedback_id=preference.feedback.id if preference else None)
    connection.execute(f"REPLACE INTO duel ({COLUMNS}) VALUES ({PLACES})", astuple(duel))  # noqa: S608
    return DuelResult(duel, preference)


def check_open(duel: Duel | None) -> None:
    if duel is None or duel.choice is None:
        return
    verdict = "equal" if duel.choice == "equal" else f"the {duel.choice} one is better"
    undo = f". To take that back: DELETE /v1/feedback/{duel.feedback_id}" if duel.feedback_id else ""
    raise Conflict(f"this pair was judged before ({verdict}): judge another one{undo}", code="judged")


def one(connection: sqlite3.Connection, duel_id: str) -> Duel | None:
    return next(iter(select(connection, "WHERE id = ?", duel_id)), None)


def open_ones(connection: sqlite3.Connection, limit: int) -> list[Duel]:
    return select(connection, "WHERE choice IS NULL ORDER BY id DESC LIMIT ?", limit)


def judged(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT id FROM duel WHERE choice IS NOT NULL")}


def close(connection: sqlite3.Connection) -> None:
    """Delete the duels that nobody has judged."""
    connection.execute("DELETE FROM duel WHERE choice IS NULL")


def answers_erased(connection: sqlite3.Connection, completion_ids: str) -> None:
    """Delete the open duels of erased completions (a JSON list); judged ones keep their versions and choice."""
    for side in ("left", "right"):
        among = f"{side} IN (SELECT value FROM json_each(?))"  # noqa: S608
        connection.execute(f"DELETE FROM duel WHERE choice IS NULL AND {among}", (completion_ids,))  # noqa: S608
        connection.execute(f"UPDATE duel SET {side} = NULL WHERE {among}", (completion_ids,))  # noqa: S608


def sampled_for(connection: sqlite3.Connection, user: str, limit: int) -> list[str]:
    """Return some completions that the gate sampled and that duels of a user brought into the log."""
    rows = connection.execute(
        """SELECT completion.id FROM duel JOIN completion ON completion.id IN (duel.left, duel.right)
        WHERE (asked_by = ? OR rater = ?) AND completion.caller = ? LIMIT ?""",
        (user, user, SAMPLED_FOR_DUELS, limit),
    )
    return [name for (name,) in rows]


def forget(connection: sqlite3.Connection, user: str) -> None:
    connection.execute("DELETE FROM duel WHERE asked_by = ? OR rater = ?", (user, user))


def select(connection: sqlite3.Connection, clauses: str, *values: object) -> list[Duel]:
    """``clauses`` are one of our own literals, with its values bound."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM duel {clauses}", values)  # noqa: S608
    return [Duel(*row) for row in rows]
