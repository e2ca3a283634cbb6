"""Duels in SQLite: functions on a connection. Transactions belong to the caller.

A duel gets its row when two versions have answered: a prompt that somebody asked of both, or one of the gate's. The
gate's replies stay in the row, not among the completions, until somebody judges them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import orjson

from burnish.proxy.http.errors import Conflict, NotFound
from burnish.proxy.log import feedback
from burnish.proxy.log.store import as_json
from burnish.proxy.records import FeedbackDraft, FeedbackReceipt

DuelChoice = Literal["left", "right", "equal"]
SAMPLED_FOR_DUELS = "duels"
"""The caller of answers that the gate sampled and somebody judged: they belong to no conversation of a person."""


@dataclass(frozen=True, slots=True)
class SampledReplies:
    """Two replies of the gate to one prompt, as they are kept until somebody judges them."""

    messages: Sequence[dict[str, Any]]
    params: dict[str, Any]
    texts: Sequence[str]
    """Left and right."""
    cut: Sequence[bool]
    """Whether a token limit ended them."""


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
    left: str | None = None
    """The completion; None: the reply isn't logged as one, or it was erased."""
    right: str | None = None
    choice: DuelChoice | None = None
    """None: not judged yet."""
    judged_at: float | None = None
    rater: str | None = None
    feedback_id: str | None = None
    """The preference; None if the answers were found equal."""
    quotes: str | None = None
    """Of the gate's replies: the completion whose words the prompt quotes; None: it quotes nobody."""
    sampled: SampledReplies | None = None
    """The gate's replies; None: they, or what was asked for the duel, are in the log as completions."""


NAMES = tuple(field.name for field in fields(Duel))
COLUMNS = ", ".join(NAMES)
PLACES = ", ".join("?" * len(NAMES))
PAIR_GONE = "this pair is gone: what it quotes was erased, or learning started over. Judge another one"


def add(connection: sqlite3.Connection, *duels: Duel) -> None:
    """Store duels, unless they are stored already, or what they quote was erased meanwhile."""
    for duel in duels:
        asked_by = duel.asked_by
        if duel.quotes is not None:
            row = connection.execute("SELECT caller FROM completion WHERE id = ?", (duel.quotes,)).fetchone()
            if row is None:
                continue
            (asked_by,) = row
        connection.execute(
            f"INSERT INTO duel ({COLUMNS}) VALUES ({PLACES}) ON CONFLICT (id) DO NOTHING",  # noqa: S608
            _members(replace(duel, asked_by=asked_by)),
        )


def replace_sampled(
    connection: sqlite3.Connection, candidate: int, incumbent: int, duels: Iterable[Duel]
) -> None:
    """Store the gate's replies of two versions, instead of those from an earlier test that nobody has judged."""
    connection.execute(
        """DELETE FROM duel WHERE choice IS NULL AND sampled IS NOT NULL
        AND (left_version, right_version) IN (VALUES (?, ?), (?, ?))""",
        (candidate, incumbent, incumbent, candidate),
    )
    add(connection, *duels)


def judge(
    connection: sqlite3.Connection, duel: Duel, draft: FeedbackDraft | None
) -> tuple[Duel, FeedbackReceipt | None]:
    """Store a judged duel with its preference; None if the answers were found equal.

    Raises Conflict if it was judged before, NotFound if it or its answers were erased meanwhile.
    """
    check_open(one(connection, duel.id))
    preference = feedback.add(connection, draft) if draft else None
    duel = replace(duel, feedback_id=preference.feedback.id if preference else None)
    connection.execute(f"REPLACE INTO duel ({COLUMNS}) VALUES ({PLACES})", _members(duel))  # noqa: S608
    return duel, preference


def check_open(duel: Duel) -> None:
    """Raise Conflict if a duel was judged."""
    if duel.choice is None:
        return
    verdict = "equal" if duel.choice == "equal" else f"the {duel.choice} one is better"
    undo = f". To take that back: DELETE /v1/feedback/{duel.feedback_id}" if duel.feedback_id else ""
    raise Conflict(f"this pair was judged before ({verdict}): judge another one{undo}", code="judged")


def one(connection: sqlite3.Connection, duel_id: str) -> Duel:
    """Raises NotFound."""
    duels = select(connection, "WHERE id = ?", duel_id)
    if not duels:
        raise NotFound(PAIR_GONE, param="id")
    return duels[0]


def open_ones(connection: sqlite3.Connection, versions: Iterable[int], limit: int) -> list[Duel]:
    """Return the duels between these versions that nobody has judged, latest first."""
    among = "IN (SELECT value FROM json_each(?))"
    numbers = as_json(versions)
    clauses = (
        f"WHERE choice IS NULL AND left_version {among} AND right_version {among} ORDER BY id DESC LIMIT ?"
    )
    return select(connection, clauses, numbers, numbers, limit)


def judged_count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM duel WHERE choice IS NOT NULL").fetchone()
    return int(count)


def close(connection: sqlite3.Connection) -> None:
    """Delete the duels that nobody has judged."""
    connection.execute("DELETE FROM duel WHERE choice IS NULL")


def answers_erased(connection: sqlite3.Connection, completion_ids: str) -> None:
    """Delete the open duels of erased completions (a JSON list); judged ones keep their versions and choice."""
    for column in ("left", "right", "quotes"):
        among = f"{column} IN (SELECT value FROM json_each(?))"  # noqa: S608
        connection.execute(f"DELETE FROM duel WHERE choice IS NULL AND {among}", (completion_ids,))  # noqa: S608
        connection.execute(f"UPDATE duel SET {column} = NULL WHERE {among}", (completion_ids,))  # noqa: S608


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
    duels = []
    for *members, sampled in rows:
        members.append(SampledReplies(**orjson.loads(sampled)) if sampled else None)
        duels.append(Duel(*members))
    return duels


def _members(duel: Duel) -> list[Any]:
    *members, sampled = (getattr(duel, name) for name in NAMES)
    return [*members, orjson.dumps(sampled) if sampled else None]
