"""The single writer: one thread, one connection, group commit.

What is put in comes out in order. A batch is committed when it is full, when it is old enough, or at once when
somebody waits for it. One faulty entry is rolled back alone. When the database itself cannot be written (full
disk, locked file) captures are kept and tried again, and those who wait are told so: nothing is pretended.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from burnish.proxy.errors import Unavailable
from burnish.proxy.log.capture import Captured, misunderstood, understand
from burnish.proxy.log.store import add_completion
from burnish.proxy.records import Exchange

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

BATCH_ROWS = 512
BATCH_AGE_S = 0.05
"""The group-commit window: what kill -9 may take of completions, never of ratings."""

QUEUE_LIMIT_BYTES = 256 * 1024 * 1024
"""Captures waiting for a disk that does not take them; beyond it the newest are dropped, and health says so."""

ENTRY_OVERHEAD_BYTES = 2048
"""Python's own cost of one exchange, roughly."""

FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0
CLOSE_RETRIES = 3


@dataclass(slots=True)
class Entry:
    """Something to do in a transaction: a capture, or a call that somebody waits for."""

    exchange: Exchange | None = None
    call: Callable[[sqlite3.Connection], Any] | None = None
    future: Future[Any] = field(default_factory=Future)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not yet on the disk."""

    entries: int
    size_bytes: int
    lag_s: float
    """How long the oldest completion among it has been over."""
    dropped: int
    """Completions that were lost since the start, because there was no room for them."""


def nobody(captured: Captured) -> None:
    """Tell nobody."""


class Writer:
    """Owns the connection that writes."""

    def __init__(
        self, connection: sqlite3.Connection, on_stored: Callable[[Captured], None] = nobody
    ) -> None:
        self._connection = connection
        self._on_stored = on_stored
        self._waiting: deque[Entry] = deque()
        self._pending: list[Entry] = []
        self._changed = threading.Condition()
        self._queued_bytes = 0
        self._urgent = 0
        self._closing = False
        self._dropped = 0
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="burnish-log", daemon=True)
        self._thread.start()

    def put(self, exchange: Exchange) -> None:
        """Take a capture; returns at once. From any thread."""
        size = len(exchange.request_body) + sum(map(len, exchange.chunks)) + ENTRY_OVERHEAD_BYTES
        with self._changed:
            if self._closing or self._queued_bytes + size > QUEUE_LIMIT_BYTES:
                self._dropped += 1
                logger.error("the log dropped completion %s: %s", exchange.completion_id, self._why_dropped())
                return
            self._queued_bytes += size
            self._waiting.append(Entry(exchange=exchange, size_bytes=size))
            if len(self._waiting) == 1 or len(self._waiting) >= BATCH_ROWS:
                self._changed.notify()

    def submit(self, call: Callable[[sqlite3.Connection], Result]) -> Future[Result]:
        """Run a call in a transaction behind everything that was put in before; done when it is on the disk.

        The future fails with what the call raises, and with Unavailable when nothing can be written now.
        """
        entry = Entry(call=call)
        with self._changed:
            if self._closing:
                entry.future.set_exception(Unavailable("burnish is stopping: try again when it is back"))
                return entry.future
            self._urgent += 1
            self._waiting.append(entry)
            self._changed.notify()
        return entry.future

    def healthy(self) -> str | None:
        """Say why nothing can be stored at the moment, or that captures were lost; None when all is well."""
        if self._trouble:
            return self._trouble
        return (
            f"{self._dropped} completions were not logged: {self._why_dropped()}" if self._dropped else None
        )

    def backlog(self) -> Backlog:
        """Return what is not yet on the disk. From any thread."""
        with self._changed:
            entries = len(self._pending) + len(self._waiting)
            oldest = next(
                (each.exchange for each in chain(self._pending, self._waiting) if each.exchange), None
            )
            size, dropped = self._queued_bytes, self._dropped
        lag_s = max(0.0, time.time() - oldest.started_at - oldest.total_s) if oldest else 0.0
        return Backlog(entries, size, lag_s, dropped)

    def close(self) -> None:
        """Store what is waiting and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _why_dropped(self) -> str:
        return (
            "the log is closed"
            if self._closing
            else f"its queue is full ({self._trouble or 'the disk is too slow'})"
        )

    def _run(self) -> None:
        retry_s, failures = FIRST_RETRY_S, 0
        while self._collect(retry_s if self._trouble else None):
            try:
                self._commit()
            except sqlite3.Error as error:
                failures += 1
                self._suffer(error)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
                if self._closing and failures > CLOSE_RETRIES:
                    logger.error("the log closes with %d captures unwritten: %s", len(self._pending), error)
                    break
            else:
                retry_s, failures = FIRST_RETRY_S, 0
        self._connection.close()

    def _collect(self, retry_s: float | None) -> bool:
        """Wait until there is a batch to commit and take it; False when closed and empty."""
        with self._changed:
            if retry_s is not None:
                self._changed.wait_for(lambda: self._urgent or self._closing, retry_s)
            else:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                self._changed.wait_for(self._full, BATCH_AGE_S)
            while self._waiting and len(self._pending) < BATCH_ROWS:
                entry = self._waiting.popleft()
                if entry.call:
                    self._urgent -= 1
                    if not entry.future.set_running_or_notify_cancel():
                        continue  # nobody waits for it any more
                self._pending.append(entry)
            return bool(self._pending) or not self._closing

    def _full(self) -> bool:
        return bool(self._urgent) or self._closing or len(self._waiting) >= BATCH_ROWS

    def _commit(self) -> None:
        """Write all that is pending in one transaction. Raises sqlite3.Error with nothing written."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            reports = [self._apply(entry) for entry in self._pending]
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        with self._changed:
            self._queued_bytes -= sum(entry.size_bytes for entry in self._pending)
        self._pending = []
        self._trouble = None
        for report in reports:
            report()

    def _apply(self, entry: Entry) -> Callable[[], None]:
        """Do one entry; returns how to report it once it is on the disk. Raises sqlite3.Error."""
        if entry.exchange:
            return partial(self._on_stored, self._store(entry.exchange))
        assert entry.call
        try:
            result = self._alone(entry.call)
        except Exception as error:
            # Whatever a call raises belongs to the one who waits for it; the thread goes on.
            if _concerns_database(error):
                raise
            return partial(entry.future.set_exception, error)
        return partial(entry.future.set_result, result)

    def _store(self, exchange: Exchange) -> Captured:
        """Store a capture, or its bytes with the reason why it can't be understood. Raises sqlite3.Error."""
        try:
            captured = understand(exchange)
            self._alone(lambda connection: add_completion(connection, captured))
            return captured
        except Exception as error:
            # A body that breaks the parser in a new way must neither stop the writer nor be lost.
            if _concerns_database(error):
                raise
            logger.warning("completion %s is stored raw: %s", exchange.completion_id, error)
            raw = misunderstood(exchange, error)
        try:
            self._alone(lambda connection: add_completion(connection, raw))
        except sqlite3.Error as error:
            if _concerns_database(error):
                raise
            logger.error("completion %s cannot be stored: %s", exchange.completion_id, error)
        return raw

    def _alone(self, call: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a call so that its failure takes back its own changes only."""
        self._connection.execute("SAVEPOINT entry")
        try:
            return call(self._connection)
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO entry")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE entry")

    def _suffer(self, error: sqlite3.Error) -> None:
        """Tell those who wait, keep the captures."""
        if self._trouble is None:
            logger.error("the log cannot be written: %s; it will be tried again", error)
        self._trouble = f"the log cannot be written: {error}"
        with self._changed:
            waiting = [
                entry for entry in self._waiting if entry.call and entry.future.set_running_or_notify_cancel()
            ]
            failed = [entry for entry in self._pending if entry.call] + waiting
            self._pending = [entry for entry in self._pending if entry.exchange]
            self._waiting = deque(entry for entry in self._waiting if entry.exchange)
            self._urgent = 0
        for entry in failed:
            entry.future.set_exception(
                Unavailable(f"nothing was stored: {self._trouble}. Free the disk or the file and try again")
            )


def _concerns_database(error: Exception) -> bool:
    """Whether an error is the database's (full, locked, damaged), not the fault of one row."""
    row_faults = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
    return isinstance(error, sqlite3.Error) and not isinstance(error, row_faults)
