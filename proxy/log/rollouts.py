"""Rollouts in SQLite: functions on a connection. Transactions belong to the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import orjson

from burnish.proxy.http.errors import Conflict, NotFound, Unprocessable
from burnish.proxy.log.store import SENT, Reader, as_json, select
from burnish.proxy.records import Completion, Reward, Rollout, RolloutStatus, Step

NAMES = [field.name for field in fields(Rollout) if field.name not in ("rewards", "steps")]
COLUMNS = ", ".join(f'"{name}"' for name in NAMES)
PLACES = ", ".join("?" * len(NAMES))
READY = """learnt_in IS NULL AND status != 'open' AND NOT held_out
    AND EXISTS (SELECT 1 FROM rollout_reward WHERE rollout = rollout.id)"""
"""Whether a run could learn from a rollout."""
AMONG = "IN (SELECT value FROM json_each(?))"


class Filter(NamedTuple):
    """Which rollouts a listing has; None: all."""

    task: str | None = None
    group: str | None = None
    status: RolloutStatus | None = None
    held_out: bool | None = None
    after: str | None = None
    """Only earlier ones than this."""


def add(connection: sqlite3.Connection, rollout: Rollout) -> None:
    connection.execute(
        f"INSERT INTO rollout ({COLUMNS}) VALUES ({PLACES})",  # noqa: S608
        [orjson.dumps(value).decode() if name == "tags" else value for name, value in _facts(rollout)],
    )


def _facts(rollout: Rollout) -> list[tuple[str, Any]]:
    return [(name, getattr(rollout, name)) for name in NAMES]


def one(connection: sqlite3.Connection, rollout_id: str) -> Rollout:
    """Raises NotFound."""
    for found in _select(connection, "WHERE id = ?", rollout_id):
        return found
    raise NotFound(
        f"there is no rollout {rollout_id!r}: POST /v1/rollouts begins one, GET /v1/rollouts lists them",
        code="rollout_not_found",
    )


def latest(connection: sqlite3.Connection, wanted: Filter, limit: int) -> list[Rollout]:
    """Return rollouts, latest first."""
    given = {
        "task = ?": wanted.task,
        '"group" = ?': wanted.group,
        "status = ?": wanted.status,
        "held_out = ?": wanted.held_out,
        "id < ?": wanted.after,
    }
    used = {clause: value for clause, value in given.items() if value is not None}
    where = f"WHERE {' AND '.join(used)}" if used else ""
    return _select(connection, f"{where} ORDER BY id DESC LIMIT ?", *used.values(), limit)


def earliest(
    connection: sqlite3.Connection, after: str, limit: int, task: str | None = None
) -> list[Rollout]:
    """Return rollouts behind an ID, earliest first; ``task``: only of this one."""
    return _select(
        connection, "WHERE id > ?1 AND (?2 IS NULL OR task = ?2) ORDER BY id LIMIT ?3", after, task, limit
    )


def open_ones(connection: sqlite3.Connection) -> list[Rollout]:
    return _select(connection, "WHERE status = 'open' ORDER BY id")


def reward(
    connection: sqlite3.Connection, rollout_id: str, given: Reward, step: int | None
) -> tuple[Rollout, bool]:
    """Store a reward; ``step`` counts the rollout's completions from 0, None: the rollout as a whole.

    Returns the rollout, and whether the same had been said before. Raises NotFound, Conflict, Unprocessable.
    """
    rollout = one(connection, rollout_id)
    completion_id = None if step is None else _step(rollout, step)
    about = "the rollout as a whole" if step is None else f"step {step}"
    for each in rollout.rewards:
        if each.completion_id != completion_id:
            continue
        if (each.value, each.reason) == (given.value, given.reason):
            return rollout, True
        raise Conflict(
            f"{about} has its reward already: {each.value:g}. Rewards of different steps add up; one can't be changed",
            code="rewarded",
        )
    if rollout.status != "open":
        raise Conflict(
            f"rollout {rollout_id} {in_words(rollout)}, so it takes no more rewards: give them before its end",
            code="rollout_ended",
        )
    connection.execute(
        "INSERT INTO rollout_reward VALUES (?, ?, ?, ?, ?)",
        (rollout_id, given.created_at, given.value, completion_id, given.reason),
    )
    return one(connection, rollout_id), False


def in_words(rollout: Rollout) -> str:
    """Return how a rollout ended."""
    return "timed out" if rollout.status == "timed_out" else "has ended"


def _step(rollout: Rollout, step: int) -> str:
    count = len(rollout.steps)
    if step < count:
        return rollout.steps[step].completion_id
    steps = f"its steps are 0 to {count - 1}" if count else "it has no step yet: ask the model first"
    raise Unprocessable(f"rollout {rollout.id} has no step {step}; {steps}", param="step")


def end(connection: sqlite3.Connection, rollout_id: str, at: float, status: RolloutStatus) -> Rollout:
    """End a rollout; one that has ended stays as it is. Raises NotFound."""
    connection.execute(
        "UPDATE rollout SET ended_at = ?, status = ? WHERE id = ? AND status = 'open'",
        (at, status, rollout_id),
    )
    return one(connection, rollout_id)


def unlearnt(connection: sqlite3.Connection, task: str) -> list[Rollout]:
    """Return the rollouts of a task that ended with a reward and that no run has learnt from, earliest first."""
    return _select(connection, f"WHERE {READY} AND task = ? ORDER BY id", task)


class Tally(NamedTuple):
    """How many rollouts there are."""

    open: int
    ready: dict[str, int]
    """Those that a run could learn from, by task."""


def tally(connection: sqlite3.Connection) -> Tally:
    ((under_way,),) = connection.execute("SELECT count(*) FROM rollout WHERE status = 'open'")
    ready = connection.execute(f"SELECT task, count(*) FROM rollout WHERE {READY} GROUP BY task")  # noqa: S608
    return Tally(under_way, dict(ready.fetchall()))


def held_out(connection: sqlite3.Connection, task: str, versions: Collection[int]) -> list[Rollout]:
    """Return the held-out rollouts of a task and of these versions that ended with a reward, earliest first."""
    return _select(
        connection,
        f"""WHERE task = ? AND held_out AND status != 'open' AND version {AMONG}
            AND EXISTS (SELECT 1 FROM rollout_reward WHERE rollout = rollout.id) ORDER BY id""",  # noqa: S608
        task,
        as_json(versions),
    )


def learnt(connection: sqlite3.Connection, rollout_ids: Iterable[str], run: str) -> None:
    """Record the run that learnt from rollouts."""
    connection.execute(f"UPDATE rollout SET learnt_in = ? WHERE id {AMONG}", (run, as_json(rollout_ids)))  # noqa: S608


def steps(connection: sqlite3.Connection, rollout_ids: Iterable[str]) -> dict[str, Completion]:
    """Return the completions of rollouts with their contexts, by ID."""
    rows = select(connection, f"WHERE rollout {AMONG} AND {SENT} ORDER BY n", [as_json(rollout_ids)])
    reader = Reader(connection)
    reader.load(rows)
    return {row[0]: reader.completion(row, full=True) for row in rows}


def completions_erased(connection: sqlite3.Connection, completion_ids: str, rollouts: str) -> None:
    """Delete the rewards of erased completions, and the rollouts of which nothing is left; both JSON lists of IDs."""
    connection.execute(f"DELETE FROM rollout_reward WHERE completion_id {AMONG}", (completion_ids,))  # noqa: S608
    unused = "NOT EXISTS (SELECT 1 FROM completion WHERE rollout = rollout.id)"
    _delete(connection, f"id {AMONG} AND status != 'open' AND {unused}", rollouts)


def forget(connection: sqlite3.Connection, caller: str) -> None:
    _delete(connection, "caller = ?", caller)


def _delete(connection: sqlite3.Connection, where: str, value: str) -> None:
    some = f"SELECT id FROM rollout WHERE {where}"  # noqa: S608
    connection.execute(f"DELETE FROM rollout_reward WHERE rollout IN ({some})", (value,))  # noqa: S608
    connection.execute(f"DELETE FROM rollout WHERE {where}", (value,))  # noqa: S608


def _select(connection: sqlite3.Connection, clauses: str, *values: object) -> list[Rollout]:
    """``clauses`` are one of our own literals, with its values bound."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM rollout {clauses}", values).fetchall()  # noqa: S608
    ids = as_json(row[0] for row in rows)
    rewards = _by_rollout(
        connection,
        f"""SELECT rollout, created_at, value, completion_id, reason FROM rollout_reward
        WHERE rollout {AMONG} ORDER BY rowid""",  # noqa: S608
        ids,
    )
    steps = _by_rollout(
        connection,
        f"SELECT rollout, id, continues FROM completion WHERE rollout {AMONG} AND {SENT} ORDER BY n",  # noqa: S608
        ids,
    )
    return [_rollout(row, rewards.get(row[0], ()), steps.get(row[0], ())) for row in rows]


def _by_rollout(connection: sqlite3.Connection, query: str, ids: str) -> Mapping[str, list[Sequence[Any]]]:
    found: dict[str, list[Sequence[Any]]] = {}
    for rollout, *facts in connection.execute(query, (ids,)):
        found.setdefault(rollout, []).append(facts)
    return found


def _rollout(row: Sequence[Any], rewards: Iterable[Sequence[Any]], steps: Iterable[Sequence[Any]]) -> Rollout:
    facts = dict(zip(NAMES, row, strict=True))
    return Rollout(
        **facts | {"tags": orjson.loads(facts["tags"]), "held_out": bool(facts["held_out"])},
        rewards=tuple(Reward(*each) for each in rewards),
        steps=tuple(Step(*each) for each in steps),
    )
