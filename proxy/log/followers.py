"""Following the log a moment behind its writer, so no request waits: for reward models, signals and open pages."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from burnish.proxy.http.errors import BurnishError
from burnish.proxy.ids import first_completion_id_at
from burnish.proxy.log.store import COLUMNS, Reader
from burnish.proxy.records import Completion

logger = logging.getLogger(__name__)

GATHER_S = 0.2
"""What is stored within this time is read together."""
FAULT_PAUSE_S = 5.0
LONGEST_BRANCH = 10_000
"""Answers that are looked at."""


class Follower:
    """Reads on whenever it is woken, and first of all what was stored before it ran. Its user keeps the position."""

    def __init__(self, work: str, read: Callable[[], Awaitable[bool]], gather_s: float = GATHER_S) -> None:
        """``read`` reads some of what is new, and returns whether there may be more.

        ``work``: what stops while that fails, for the program's log. Call this in the event loop.
        """
        self._work = work
        self._read = read
        self._gather_s = gather_s
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Call this when something was stored; from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Read for ever."""
        trouble = ""
        while True:
            self._news.clear()
            try:
                more, trouble = await self._read(), ""
            except Exception as error:
                # What can't be read must not end what comes after it.
                if str(error) != trouble:
                    trace = None if isinstance(error, BurnishError | OSError) else error
                    logger.warning("%s: %s. burnish tries again", self._work, error, exc_info=trace)
                trouble = str(error)
                await asyncio.sleep(FAULT_PAUSE_S)
                continue
            if not more:
                await self._news.wait()
                await asyncio.sleep(self._gather_s)


class LogPage(NamedTuple):
    upto: int
    """Number of its last row, to continue from."""
    completions: list[Completion]


def behind(
    connection: sqlite3.Connection, start: int, limit: int, *, full: bool, within_turns: bool = False
) -> LogPage:
    """Read on behind a row. ``full``: with contexts. ``within_turns``: only what goes on without a person's words."""
    query = f"""SELECT n, continues IS NOT NULL AND NOT begins_turn, {COLUMNS} FROM completion
        WHERE n > ? ORDER BY n LIMIT ?"""  # noqa: S608
    rows = connection.execute(query, (start, limit)).fetchall()
    reader = Reader(connection)
    completions = [reader.completion(row[2:], full=full) for row in rows if row[1] or not within_turns]
    return LogPage(rows[-1][0] if rows else start, completions)


def last_row(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT coalesce(max(n), 0) FROM completion").fetchone()
    return int(last)


def rewarded_upto(connection: sqlite3.Connection, model: str, since: float) -> int:
    """Return the number of the last row that a reward model needn't see, on since a moment."""
    boundary = "SELECT n FROM completion WHERE id < ? ORDER BY id DESC LIMIT 1"
    (upto,) = connection.execute(
        f"""SELECT max(coalesce((SELECT max(n) FROM completion WHERE rewarded_by = ?), 0),
            coalesce(({boundary}), 0))""",  # noqa: S608
        (model, first_completion_id_at(since)),
    ).fetchone()
    return int(upto)


def set_rewards(connection: sqlite3.Connection, model: str, rewards: Iterable[tuple[str, float]]) -> None:
    """Store (completion, reward). Those that were deleted meanwhile are passed over."""
    connection.executemany(
        "UPDATE completion SET reward = ?, rewarded_by = ? WHERE id = ?",
        [(reward, model, name) for name, reward in rewards],
    )


class Above(NamedTuple):
    """A completion on the way from another one to the beginning of its branch."""

    id: str
    begins_turn: bool


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
