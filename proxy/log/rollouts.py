"""Rollouts in SQLite: functions on a connection. Transactions belong to the caller."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import orjson

from burnish.proxy.http.errors import Conflict, NotFound, Unprocessable
from burnish.proxy.log.store import IS_BEST, Reader, as_json, select
from burnish.proxy.records import Completion

RolloutStatus = Literal["open", "ended", "timed_out"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt of an agent at a task: its completions, and the rewards that the environment gave."""

    id: str
    """"ro_" + 26 characters that sort by time."""
    created_at: float
    """Seconds since the epoch, UTC, as the other times."""
    ends_at: float
    """When it times out."""
    task: str
    group: str | None
    """Rollouts of one group are compared: attempts at the same thing."""
    seed: int | None
    tags: Mapping[str, str]
    version: int | None
    """The version that answers it; 0 = the base model; None = burnish doesn't choose the model."""
    held_out: bool
    """Nothing is learnt from it: versions are judged by it."""
    caller: str
    ended_at: float | None = None
    status: RolloutStatus = "open"
    learnt_in: str | None = None
    """The training run that learnt from it."""
    rewards: tuple[Reward, ...] = ()
    """In the order in which they came."""
    steps: tuple[RolloutStep, ...] = ()
    """In the order in which they were logged."""

    @property
    def reward(self) -> float | None:
        """The sum of its rewards; None if there are none."""
        return math.fsum(reward.value for reward in self.rewards) if self.rewards else None


class RolloutStep(NamedTuple):
    """One completion of a rollout."""

    completion_id: str
    continues: str | None
    """The completion that it goes on from. A client that rewrites its history makes a branch."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What an environment gave for a rollout, or for one step of it."""

    created_at: float
    value: float
    completion_id: str | None
    """The step: one of the rollout's completions. None: the rollout as a whole."""
    reason: str | None = None


NAMES = [field.name for field in fields(Rollout) if field.name not in ("rewards", "steps")]
COLUMNS = ", ".join(f'"{name}"' for name in NAMES)
PLACES = ", ".join("?" * len(NAMES))
LEARNABLE = """learnt_in IS NULL AND status != 'open' AND NOT held_out
    AND EXISTS (SELECT 1 FROM rollout_reward WHERE rollout = rollout.id)"""
"""Whether a run could learn from a rollout."""
AMONG = "IN (SELECT value FROM json_each(?))"


class RolloutFilter(NamedTuple):
    """None: all."""

    task: str | None = None
    group: str | None = None
    status: RolloutStatus | None = None
    held_out: bool | None = None
    after: str | None = None
    """Only earlier ones than this."""


def add(connection: sqlite3.Connection, rollout: Rollout) -> None:
    facts = {name: getattr(rollout, name) for name in NAMES} | {"tags": orjson.dumps(rollout.tags).decode()}
    connection.execute(f"INSERT INTO rollout ({COLUMNS}) VALUES ({PLACES})", tuple(facts.values()))  # noqa: S608


def one(connection: sqlite3.Connection, rollout_id: str) -> Rollout:
    """Raises NotFound."""
    for rollout in _select(connection, "WHERE id = ?", rollout_id):
        return rollout
    raise NotFound(
        f"there is no rollout {rollout_id!r}: POST /v1/rollouts begins one, GET /v1/rollouts lists them",
        code="rollout_not_found",
    )


def latest(connection: sqlite3.Connection, filters: RolloutFilter, limit: int) -> list[Rollout]:
    operands = {
        "task = ?": filters.task,
        '"group" = ?': filters.group,
        "status = ?": filters.status,
        "held_out = ?": filters.held_out,
        "id < ?": filters.after,
    }
    used = {clause: operand for clause, operand in operands.items() if operand is not None}
    where = f"WHERE {' AND '.join(used)}" if used else ""
    return _select(connection, f"{where} ORDER BY id DESC LIMIT ?", *used.values(), limit)


def earliest(
    connection: sqlite3.Connection, after_id: str, limit: int, task: str | None = None
) -> list[Rollout]:
    """Return rollouts behind an ID, earliest first; ``task``: only of this one."""
    return _select(
        connection, "WHERE id > ?1 AND (?2 IS NULL OR task = ?2) ORDER BY id LIMIT ?3", after_id, task, limit
    )


def open_ones(connection: sqlite3.Connection) -> list[Rollout]:
    return _select(connection, "WHERE status = 'open' ORDER BY id")


def reward(
    connection: sqlite3.Connection, rollout_id: str, reward: Reward, step: int | None
) -> tuple[Rollout, bool]:
    """Store a reward; ``step`` counts the rollout's completions from 0, None: the rollout as a whole.

    Returns the rollout, and whether the same had been said before. Raises NotFound, Conflict, Unprocessable.
    """
    rollout = one(connection, rollout_id)
    completion_id = None if step is None else _step(rollout, step)
    about = "the rollout as a whole" if step is None else f"step {step}"
    for earlier in rollout.rewards:
        if earlier.completion_id != completion_id:
            continue
        if (earlier.value, earlier.reason) == (reward.value, reward.reason):
            return rollout, True
        raise Conflict(
            f"{about} has its reward already: {earlier.value:g}. "
            "Rewards of different steps add up; one can't be changed",
            code="rewarded",
        )
    if rollout.status != "open":
        raise Conflict(
            f"rollout {rollout_id} {in_words(rollout)}, so it takes no more rewards: give them before its end",
            code="rollout_ended",
        )
    connection.execute(
        "INSERT INTO rollout_reward VALUES (?, ?, ?, ?, ?)",
        (rollout_id, reward.created_at, reward.value, completion_id, reward.reason),
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
    return _select(connection, f"WHERE {LEARNABLE} AND task = ? ORDER BY id", task)


class Tally(NamedTuple):
    open: int
    ready: dict[str, int]
    """Those that a run could learn from, by task."""


def tally(connection: sqlite3.Connection) -> Tally:
    ((under_way,),) = connection.execute("SELECT count(*) FROM rollout WHERE status = 'open'")
    rows = connection.execute(f"SELECT task, count(*) FROM rollout WHERE {LEARNABLE} GROUP BY task")  # noqa: S608
    return Tally(under_way, dict(rows.fetchall()))


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
    connection.execute(f"UPDATE rollout SET learnt_in = ? WHERE id {AMONG}", (run, as_json(rollout_ids)))  # noqa: S608


def steps(connection: sqlite3.Connection, rollout_ids: Iterable[str]) -> dict[str, Completion]:
    rows = select(connection, f"WHERE rollout {AMONG} AND {IS_BEST} ORDER BY n", [as_json(rollout_ids)])
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


def _delete(connection: sqlite3.Connection, where: str, operand: str) -> None:
    some = f"SELECT id FROM rollout WHERE {where}"  # noqa: S608
    connection.execute(f"DELETE FROM rollout_reward WHERE rollout IN ({some})", (operand,))  # noqa: S608
    connection.execute(f"DELETE FROM rollout WHERE {where}", (operand,))  # noqa: S608


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
        f"SELECT rollout, id, continues FROM completion WHERE rollout {AMONG} AND {IS_BEST} ORDER BY n",  # noqa: S608
        ids,
    )
    rollouts = []
    for row in rows:
        facts = dict(zip(NAMES, row, strict=True))
        facts |= {"tags": orjson.loads(facts["tags"]), "held_out": bool(facts["held_out"])}
        own_rewards = tuple(Reward(*columns) for columns in rewards[row[0]])
        own_steps = tuple(RolloutStep(*columns) for columns in steps[row[0]])
        rollouts.append(Rollout(**facts, rewards=own_rewards, steps=own_steps))
    return rollouts


def _by_rollout(connection: sqlite3.Connection, query: str, ids: str) -> Mapping[str, list[Sequence[Any]]]:
    by_rollout: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for rollout, *facts in connection.execute(query, (ids,)):
        by_rollout[rollout].append(facts)
    return by_rollout
