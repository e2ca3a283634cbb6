"""The single writer: one thread, one connection, group commit.

Entries are stored in the order in which they were put in. A batch is committed when it is full, when it is old
enough, or at once when somebody waits for it. A faulty entry is rolled back alone. While the database cannot be
written (full disk, locked or deleted file), entries move into files (``queue.Relief``) and are read back in order
later; calls fail with Unavailable.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from burnish.proxy.http.errors import ConfigError, Unavailable
from burnish.proxy.log.batch import Result, Stopping, Stored, Transactions, WriteBatch, WriterCall
from burnish.proxy.log.files import locked
from burnish.proxy.log.place import DatabasePlace, Displaced
from burnish.proxy.log.queue import SPILL_BYTES, WINDOW_S, Bell, Queue, Relief
from burnish.proxy.log.search import Lag
from burnish.proxy.log.spill import Entry, Journal, Spill
from burnish.system import memory
from burnish.system.apart import WorkerProcess

logger = logging.getLogger(__name__)

BATCH_ROWS = 512
BATCH_AGE_S = 0.4 * WINDOW_S
"""How long the first entry of a batch waits for others; the rest of the window is for writing them."""

LOCK_WAIT_MS = 50
"""How long SQLite waits for another program's lock: after it, entries move into files, so that the window holds."""
PATIENCE_S = 2.0
"""Another program (a backup, a sqlite3 shell) may lock the file for a moment; a longer lock is a fault to report."""
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0
CHECK_EVERY_S = 1.0
"""Before each batch, and in idle times so often, the database must be where it was opened."""
CLOSE_LIMIT_S = 2.0
"""When burnish stops, entries are stored for so long; the rest moves into files, for the next start."""

READ_LIMIT_S = 5.0
"""CPU time for reading one large capture; 32 MiB of small events take one to two seconds."""
STUCK_S = 10.0
"""A batch takes milliseconds, and on a busy machine a large capture not much longer than this."""

STOPPING = "burnish is stopping: try again when it is back"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Entries and calls that are not stored yet."""

    entries: int
    size_bytes: int
    lag_s: float
    """How long the oldest of them has waited."""
    dropped: int
    """Requests that were lost since the start, because there was no room for them."""


def ignore(_: Stored) -> None:
    """Do nothing with a stored entry."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """A database that can't be opened yet."""

    why: str
    open: Callable[[], sqlite3.Connection]
    """Raises sqlite3.Error, ConfigError."""


class LogWriter:
    """Owns the connection that writes: puts the entries and calls of its queue into the database."""

    def __init__(
        self,
        database: sqlite3.Connection | NotYet,
        path: Path,
        spill: Spill,
        journal: Journal,
        on_stored: Callable[[Stored], None] = ignore,
    ) -> None:
        self._on_stored = on_stored
        self._apart = WorkerProcess(READ_LIMIT_S)
        self._path = path
        self._transactions: Transactions | None = None
        self._queue = Queue()
        self._bell = Bell()
        self._relief = Relief(self._queue, spill, journal)
        self._stored = self._dropped = 0
        self._wrote_large = False
        self._search_lag = Lag()
        self._early_upto = 0
        """Number of the last capture that was stored before its turn."""
        self._close_by: float | None = None
        """On the monotonic clock; None until it closes."""
        self._failing_since: float | None = None
        self._trouble: str | None = None
        """Why the database cannot be written."""
        self._retry_s = FIRST_RETRY_S
        self._not_yet: NotYet | None = None
        if isinstance(database, NotYet):
            self._not_yet, self._failing_since = database, time.monotonic()
            self._trouble = f"the log cannot be written: {database.why}"
            logger.error("%s. burnish tries again", self._trouble)
        else:
            self._use(database)
        self._thread = threading.Thread(target=self._run, name="burnish-log", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Take an entry; returns at once. From any thread."""
        queue = self._queue
        with queue.lock:
            if self._close_by is not None or not queue.put(entry):
                self._dropped += 1
                logger.error("the log dropped %s: %s", entry.id, self._why_dropped())
                return
            length = queue.count - queue.taken
            if length in (1, BATCH_ROWS):
                self._bell.ring()
            if queue.size_bytes > SPILL_BYTES or self._relief.rests:
                self._relief.wake()

    def submit(
        self, call: Callable[[sqlite3.Connection], Result], *, deletes: bool = False, early: bool = False
    ) -> Future[Result]:
        """Run a call in a transaction behind everything that was put in before; done when it is on the disk.

        It may be run again, from the start, when a faulty entry shares its transaction. ``deletes``: it deletes
        messages. ``early``: it may be done while a large capture is read, if what it names is stored. The future fails
        with what the call raises, and with Unavailable when nothing can be written now.
        """
        with self._queue.lock:
            entry = WriterCall(call, self._queue.count, deletes, early)
            if self._closing:
                entry.future.set_exception(Unavailable(STOPPING))
                return entry.future
            self._queue.calls.append(entry)
            self._bell.ring()
        return entry.future

    @property
    def has_database(self) -> bool:
        """False while the database can't be opened."""
        return self._transactions is not None

    @property
    def behind(self) -> bool:
        """True if there are entries in files, which no query finds yet."""
        return self._relief.waiting

    def healthy(self) -> str | None:
        """Return why nothing can be stored now, or that entries were lost; None when all is well."""
        lost = f"{self._dropped} requests were not logged: {self._why_dropped()}" if self._dropped else None
        reasons = (self._trouble, self._stuck(), lost, self._refused())
        return "; ".join(reason for reason in reasons if reason) or None

    def _refused(self) -> str | None:
        transactions = self._transactions
        return (
            f"{transactions.refused} requests can't be stored ({transactions.refusal})"
            if transactions and transactions.refused
            else None
        )

    def _stuck(self) -> str | None:
        since = self._queue.busy_since
        busy_s = time.monotonic() - since if since else 0.0
        return f"the log has been busy with one batch for {busy_s:.0f} s" if busy_s > STUCK_S else None

    def backlog(self) -> Backlog:
        """From any thread."""
        queue = self._queue
        with queue.lock:
            since = self._failing_since or queue.oldest_at()
            lag_s = time.monotonic() - since if since else 0.0
            # Files that a killed burnish left hold entries that were never put in here.
            unstored = max(0, queue.count - self._stored)
            return Backlog(unstored + len(queue.calls), queue.size_bytes, lag_s, self._dropped)

    def close(self) -> None:
        """Store what is waiting, in files if need be, and end the threads."""
        with self._queue.lock:
            self._close_by = time.monotonic() + CLOSE_LIMIT_S
            self._bell.ring()
        self._relief.stop()
        self._thread.join()

    @property
    def _closing(self) -> bool:
        return self._close_by is not None

    def _why_dropped(self) -> str:
        if self._closing:
            return "the log is closed"
        return f"its queue is full ({self._relief.trouble or self._trouble or 'the disk is too slow'})"

    def _run(self) -> None:
        while self._wait():
            self._write()  # whose batch may be large, and is gone when it returns
            if self._wrote_large:
                memory.give_back()
        self._end()

    def _write(self) -> None:
        batch = self._take()
        first = self._queue.writing[0] if self._queue.writing else None
        self._wrote_large = first is not None and first.is_large  # it is alone then
        batch.again = first is not None and first.number <= self._early_upto
        if self._wrote_large:
            early = [call for call in batch.calls if call.early]
            batch.calls = [call for call in batch.calls if not call.early]
            self._put_back(early)
        try:
            transactions = self._open()
            self._place.check()
            reports = [] if batch.empty and not self._failing_since else transactions.write(batch)
        except (sqlite3.Error, ConfigError, Displaced, Stopping) as error:
            self._failed(batch, error)
            return
        self._succeeded(batch)
        for report in reports:
            report()
        count = len(batch.read_back) + len(batch.captures) + len(batch.calls)
        if self._search_lag.is_due(count, idle=batch.empty):
            self._queue.busy_since = time.monotonic()  # what comes meanwhile waits as during a batch
            self._search_lag.step(self._connection)
            self._queue.busy_since = None

    def _write_early(self) -> None:
        """Store what needn't wait for the large capture that is being read. Raises Stopping.

        The captures stay in the queue, so they are found to be stored when it is their turn.
        """
        if self._close_by and time.monotonic() > self._close_by:
            raise Stopping("a large capture is read at the next start")
        calls = self._queue.calls
        with self._queue.lock:
            early = [call for call in calls if call.early and call.begin()]
            for call in early:
                calls.remove(call)
            later = (slot for slot in self._queue.entries if slot.number > self._early_upto)
            short = [slot for slot in later if not (slot.is_large or slot.is_packed)]
        if not (early or short):
            return
        batch = WriteBatch([], False, [slot.entry for slot in short[:BATCH_ROWS]], early, early=True)
        try:
            self._place.check()
            reports = self._open().write(batch)
        except (sqlite3.Error, ConfigError, Displaced):
            batch.missing, reports = early, []
        else:
            self._early_upto = max((slot.number for slot in short[:BATCH_ROWS]), default=self._early_upto)
        for call in batch.missing:
            call.early = False
        self._put_back(batch.missing)
        for report in reports:
            report()

    def _put_back(self, calls: Sequence[WriterCall]) -> None:
        with self._queue.lock:
            line = sorted((*calls, *self._queue.calls), key=attrgetter("captures_before"))
            self._queue.calls.clear()
            self._queue.calls.extend(line)

    def _use(self, connection: sqlite3.Connection) -> Transactions:
        connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")
        self._connection = connection
        self._place = DatabasePlace(self._path)
        self._transactions = Transactions(connection, self._on_stored, self._apart, self._write_early)
        return self._transactions

    def _open(self) -> Transactions:
        """Return what writes, and open the database first if need be. Raises sqlite3.Error, ConfigError."""
        if self._transactions:
            return self._transactions
        assert self._not_yet
        try:
            return self._use(self._not_yet.open())
        except sqlite3.OperationalError as error:
            raise sqlite3.OperationalError(self._not_yet.why) from error

    def _wait(self) -> bool:
        """Wait until there is something to write; False when closed and nothing more can be done."""
        if self._trouble:
            self._wait_for_retry()
        queue = self._queue
        if not (self._failing_since or self.behind):
            rest_s = 0.0 if self._search_lag.more else CHECK_EVERY_S
            self._bell.wait(lambda: queue.entries or queue.calls or self._closing or self.behind, rest_s)
            with queue.lock:  # a crowded queue may be emptied into files meanwhile
                due_at = queue.entries[0].at + BATCH_AGE_S if queue.entries else 0.0
            if due_at:
                self._bell.wait(self._batch_is_full, due_at - time.monotonic())
        if self._close_by is None:
            return True
        work = queue.entries or queue.calls or self.behind
        safe = self._trouble and not self._relief.trouble
        return bool(work) and not safe and time.monotonic() < self._close_by

    def _batch_is_full(self) -> bool:
        queue = self._queue
        return bool(queue.calls) or self._close_by is not None or len(queue.entries) >= BATCH_ROWS

    def _wait_for_retry(self) -> None:
        """Move entries into files as they come, until it is time to try again, or a call waits."""
        closing = self._closing
        until = time.monotonic() + (FIRST_RETRY_S if closing else self._retry_s)
        while (rest_s := until - time.monotonic()) > 0:
            if self._bell.wait(
                lambda: self._queue.calls or self._closing is not closing, min(rest_s, BATCH_AGE_S)
            ):
                return
            self._relief.shelter()

    def _take(self) -> WriteBatch:
        with self._relief.moving:
            read_back = self._relief.read_back(BATCH_ROWS)
            has_backlog = self._relief.more
            with self._queue.lock:
                entries, calls = self._queue.begin(0 if read_back else BATCH_ROWS)
        return WriteBatch(read_back, has_backlog, entries, calls)

    def _succeeded(self, batch: WriteBatch) -> None:
        with self._queue.lock:
            self._stored += len(batch.read_back) + len(batch.captures)
            self._trouble = self._relief.trouble = self._failing_since = None
            self._retry_s = FIRST_RETRY_S
        self._relief.stored(read_back=bool(batch.read_back))

    def _failed(self, batch: WriteBatch, error: Exception) -> None:
        """Keep the entries of a batch that could not be written, and fail the calls, unless it was a short lock."""
        self._relief.put_back()
        self._relief.shelter()
        moment = time.monotonic()
        self._failing_since = self._failing_since or moment
        with self._queue.lock:
            self._queue.busy_since = None
            self._queue.calls.extendleft(reversed(batch.calls))
            if locked(error) and moment - self._failing_since < PATIENCE_S:
                return
            if self._trouble:
                self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            else:
                logger.error("the log cannot be written: %s. burnish tries again", error)
            self._trouble = f"the log cannot be written: {error}"
        advice = "" if isinstance(error, Displaced) else ". Free the disk or the file and try again"
        refusal = Unavailable(f"nothing was stored: {self._trouble}{advice}")
        self._refuse(refusal)
        if isinstance(error, Displaced):
            self._place.secure(self._connection, lambda: self._meanwhile(refusal))

    def _meanwhile(self, refusal: Unavailable) -> None:
        """Let nobody wait for a long copy."""
        self._refuse(refusal)
        self._relief.shelter()

    def _refuse(self, error: Unavailable) -> None:
        """Fail all calls that wait."""
        with self._queue.lock:
            calls = [call for call in self._queue.calls if call.begin()]
            self._queue.calls.clear()
        for call in calls:
            call.future.set_exception(error)

    def _end(self) -> None:
        if not self._relief.shelter():
            logger.error("the log closes with %d requests unwritten", len(self._queue.entries))
        self._refuse(Unavailable(STOPPING))
        self._relief.close()
        self._apart.close()
        if self._transactions:
            self._place.secure(self._connection, lambda: None)
            self._connection.close()
            self._place.close()
