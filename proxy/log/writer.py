"""The single writer: one thread, one connection, group commit.

What is put in comes out in order. A batch is committed when it is full, when it is old enough, or at once when
somebody waits for it. A faulty entry is rolled back alone. What waits for longer than half the window, because the
writer shares its core with the requests, is copied into a file (``journal``). While the database cannot be written
(full disk, locked file), captures go into files beside it and are read back in order later; those who wait are told
so: nothing is pretended.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from burnish.proxy.errors import Unavailable
from burnish.proxy.log.batch import Batch, Call, Result, Stored, Transactions, locked
from burnish.proxy.log.journal import Journal
from burnish.proxy.log.spill import Entry, Spill, Unreadable
from burnish.proxy.records import Passthrough

logger = logging.getLogger(__name__)

BATCH_ROWS = 512
WINDOW_S = 0.05
"""The group-commit window: what kill -9 may take of completions, never of ratings."""
BATCH_AGE_S = 0.4 * WINDOW_S
"""So long the first capture of a batch waits for others; the rest of the window is for writing them."""

COPY_AGE_S = 0.5 * WINDOW_S
"""What has waited for so long and is not on the disk yet is copied into a file."""

LOCK_WAIT_MS = 50
"""SQLite's own patience with another program's lock: after it, captures go into files, so that the window holds."""
PATIENCE_S = 2.0
"""Someone else (a backup, a curious sqlite3 shell) may hold the file for a moment; longer is a fault to report."""

SPILL_BYTES = 64 * 1024 * 1024
"""Captures that wait in memory for a writer that is busy; more of them go into files."""
QUEUE_LIMIT_BYTES = 256 * 1024 * 1024
"""The same, when the disk does not take files either; beyond it the newest are dropped, and health says so."""

ENTRY_OVERHEAD_BYTES = 2048
"""Python's own cost of one entry, roughly."""

FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0
RELIEF_RETRY_S = 0.5
CLOSE_LIMIT_S = 2.0
"""Until then what waits is stored when burnish stops; the rest is in files, for the next start."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not yet on the disk."""

    entries: int
    size_bytes: int
    lag_s: float
    """How long the oldest completion among it has been over."""
    dropped: int
    """Completions that were lost since the start, because there was no room for them."""


class Waiting(NamedTuple):
    """A capture that waits in memory."""

    entry: Entry
    size: int
    """Bytes, roughly."""
    number: int
    """It is the how-many-th that was put in."""
    at: float
    """When that was, on the monotonic clock."""


def nobody(stored: Stored) -> None:
    """Tell nobody."""


class Writer:
    """Owns the connection that writes, and the files of what it cannot write, or not yet."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        spill: Spill,
        journal: Journal,
        on_stored: Callable[[Stored], None] = nobody,
    ) -> None:
        connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")
        self._connection = connection
        self._transactions = Transactions(connection, on_stored)
        self._spill = spill
        self._journal = journal
        # Held while captures go from memory into files or into a batch, or from files into one: they stay in order.
        # Taken before the lock of the conditions, for which the event loop may wait.
        self._moving = threading.Lock()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._watched = threading.Condition(lock)
        self._captures: deque[Waiting] = deque()
        self._writing: list[Waiting] = []
        """Those of the batch that is being written."""
        self._at_work = False
        """Whether a batch is being written."""
        self._calls: deque[Call] = deque()
        self._queued_bytes = 0
        self._put = self._taken = self._stored = 0
        self._copied = 0
        """The number of the last capture that is in the journal."""
        self._safe = 0
        """The number of the last capture that is in the database or in the spill."""
        self._dropped = 0
        self._closing = False
        self._close_by = 0.0
        self._failing_since: float | None = None
        self._trouble: str | None = None
        self._disk_trouble: str | None = None
        self._retry_s = FIRST_RETRY_S
        self._thread = threading.Thread(target=self._run, name="burnish-log", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="burnish-log-watch", daemon=True)
        self._thread.start()
        self._watcher.start()

    def put(self, entry: Entry) -> None:
        """Take a capture; returns at once. From any thread."""
        size = ENTRY_OVERHEAD_BYTES
        if not isinstance(entry, Passthrough):
            size += len(entry.wire.request_body) + sum(map(len, entry.wire.chunks))
        with self._changed:
            if self._closing or self._queued_bytes + size > QUEUE_LIMIT_BYTES:
                self._dropped += 1
                logger.error("the log dropped completion %s: %s", entry.id, self._why_dropped())
                return
            self._queued_bytes += size
            self._put += 1
            self._captures.append(Waiting(entry, size, self._put, time.monotonic()))
            if len(self._captures) in (1, BATCH_ROWS):
                self._changed.notify()
            if self._queued_bytes > SPILL_BYTES or (self._at_work and len(self._captures) == 1):
                self._watched.notify()

    def submit(
        self, call: Callable[[sqlite3.Connection], Result], *, deletes: bool = False
    ) -> Future[Result]:
        """Run a call in a transaction behind everything that was put in before; done when it is on the disk.

        It may be run again, from the start, when a faulty capture shares its transaction. ``deletes`` says that it
        deletes messages. The future fails with what the call raises, and with Unavailable when nothing can be
        written now.
        """
        with self._changed:
            entry = Call(call, self._put, deletes)
            if self._closing:
                entry.future.set_exception(Unavailable("burnish is stopping: try again when it is back"))
                return entry.future
            self._calls.append(entry)
            self._changed.notify()
        return entry.future

    @property
    def behind(self) -> bool:
        """Whether there are captures in files, which nobody can ask for yet."""
        return self._spill.waiting

    def healthy(self) -> str | None:
        """Say why nothing can be stored at the moment, or that captures were lost; None when all is well."""
        lost = (
            f"{self._dropped} completions were not logged: {self._why_dropped()}" if self._dropped else None
        )
        return "; ".join(reason for reason in (self._trouble, lost) if reason) or None

    def backlog(self) -> Backlog:
        """Return what is not yet on the disk. From any thread."""
        with self._changed:
            oldest = next(chain(self._writing, self._captures), None)
            since = self._failing_since or (oldest.at if oldest else None)
            lag_s = time.monotonic() - since if since else 0.0
            # Files that a killed burnish left hold captures that were never put in here.
            unstored = max(0, self._put - self._stored)
            return Backlog(unstored + len(self._calls), self._queued_bytes, lag_s, self._dropped)

    def close(self) -> None:
        """Store what is waiting, in files if need be, and end the threads."""
        with self._changed:
            self._closing = True
            self._close_by = time.monotonic() + CLOSE_LIMIT_S
            self._changed.notify_all()
            self._watched.notify_all()
        self._thread.join()
        self._watcher.join()

    def _why_dropped(self) -> str:
        if self._closing:
            return "the log is closed"
        return f"its queue is full ({self._disk_trouble or self._trouble or 'the disk is too slow'})"

    # Waiting and taking

    def _run(self) -> None:
        while self._wait():
            batch = self._take()
            try:
                reports = self._transactions.write(batch)
            except sqlite3.Error as error:
                self._suffer(batch, error)
                continue
            self._note_stored(batch)
            for report in reports:
                report()
        self._end()

    def _wait(self) -> bool:
        """Wait until there is something to write; False when closed and nothing can be done any more."""
        if self._trouble:
            self._outlast()
        with self._changed:
            if not (self._failing_since or self._spill.waiting):
                self._changed.wait_for(self._anything)
                if self._captures:
                    self._changed.wait_for(self._full, self._captures[0].at + BATCH_AGE_S - time.monotonic())
            if not self._closing:
                return True
            left = self._captures or self._calls or self._spill.waiting
            safe = self._trouble and not self._disk_trouble
            return bool(left) and not safe and time.monotonic() < self._close_by

    def _anything(self) -> bool:
        return bool(self._captures or self._calls or self._closing or self._spill.waiting)

    def _full(self) -> bool:
        return bool(self._calls) or self._closing or len(self._captures) >= BATCH_ROWS

    def _outlast(self) -> None:
        """Put captures into files as they come, until it is time to try again, or somebody asks for that."""
        until = time.monotonic() + (FIRST_RETRY_S if self._closing else self._retry_s)
        closing = self._closing
        while (left := until - time.monotonic()) > 0:
            with self._changed:
                if self._changed.wait_for(
                    lambda: self._calls or self._closing is not closing, min(left, BATCH_AGE_S)
                ):
                    return
            self._shelter()

    def _take(self) -> Batch:
        with self._moving:
            read_back = self._read_back()
            behind = self._spill.more
            with self._changed:
                count = 0 if read_back else min(len(self._captures), BATCH_ROWS)
                captures = self._writing = [self._captures.popleft() for _ in range(count)]
                self._taken += count
                self._at_work = True
                self._watched.notify()
                calls = []
                while self._calls and self._calls[0].after <= self._taken:
                    calls.append(self._calls.popleft())
        entries = [each.entry for each in captures]
        return Batch(read_back, behind, entries, [call for call in calls if call.begin()])

    def _read_back(self) -> list[Entry]:
        try:
            return self._spill.read(BATCH_ROWS)
        except (OSError, Unreadable) as error:
            # The file stays, for whoever can repair it; the log goes on without it.
            logger.error("captures in %s cannot be read back: %s", self._spill.skip(), error)
            return []

    def _note_stored(self, batch: Batch) -> None:
        with self._moving:
            if batch.read_back:
                self._spill.forget_read()
            with self._changed:
                self._left()
                self._stored += len(batch.read_back) + len(batch.captures)
                self._trouble = self._disk_trouble = self._failing_since = None
                self._retry_s = FIRST_RETRY_S
        self._journal.forget(self._safe)

    def _left(self) -> None:
        """Take note that a batch is done: its captures wait in memory no longer."""
        self._queued_bytes -= sum(each.size for each in self._writing)
        if self._writing:
            self._safe = max(self._safe, self._writing[-1].number)
        self._writing = []
        self._at_work = False

    # Trouble

    def _suffer(self, batch: Batch, error: sqlite3.Error) -> None:
        """Keep the captures of a batch that could not be written, and tell those who wait; patient with a lock."""
        self._put_back(batch)
        self._shelter()
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        with self._changed:
            self._at_work = False
            self._calls.extendleft(reversed(batch.calls))
            if locked(error) and now - self._failing_since < PATIENCE_S:
                return
            if self._trouble:
                self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            else:
                logger.error("the log cannot be written: %s; it will be tried again", error)
            self._trouble = f"the log cannot be written: {error}"
        self._refuse(
            Unavailable(f"nothing was stored: {self._trouble}. Free the disk or the file and try again")
        )

    def _put_back(self, batch: Batch) -> None:
        """Put captures that came from memory before all that came later: into a file, else into memory again."""
        if not batch.captures:
            return
        with self._moving:
            try:
                self._spill.put_back(batch.captures)
            except OSError as error:
                self._note_disk(error)
                with self._changed:
                    self._taken -= len(self._writing)
                    self._captures.extendleft(reversed(self._writing))
                    self._writing = []
            else:
                with self._changed:
                    self._left()

    def _shelter(self) -> bool:
        """Move the captures that wait in memory into files; False when the disk does not take them."""
        with self._moving:
            while True:
                with self._changed:
                    if not self._captures:
                        return True
                    first = self._captures[0]
                try:
                    self._spill.append(first.entry)
                except OSError as error:
                    self._note_disk(error)
                    return False
                with self._changed:
                    self._captures.popleft()
                    self._taken += 1
                    self._safe = first.number
                    self._queued_bytes -= first.size
                    self._disk_trouble = None

    def _note_disk(self, error: OSError) -> None:
        if self._disk_trouble is None:
            logger.error("captures wait in memory: the disk does not take them: %s", error)
        self._disk_trouble = f"the disk does not take captures: {error}"

    def _watch(self) -> None:
        """Put captures into files when the writer is busy, or hangs at the disk.

        Copies of those that wait too long; all of them when more wait than memory should hold.
        """
        while True:
            with self._watched:
                if not self._closing:
                    self._watched.wait(self._rest_s())
                if self._closing:
                    return
                crowded = self._captures and self._queued_bytes > SPILL_BYTES
            if crowded and not self._shelter():
                with self._watched:
                    self._watched.wait_for(lambda: self._closing, RELIEF_RETRY_S)
            if self._rest_s() == 0:
                self._copy()

    def _rest_s(self) -> float | None:
        """Return how long it is until something has waited too long; None while the writer has nothing to do."""
        with self._changed:
            if not self._at_work:
                return None
            oldest = next((each.at for each in self._not_copied()), time.monotonic())
        return max(0.0, oldest + COPY_AGE_S - time.monotonic())

    def _not_copied(self) -> Iterator[Waiting]:
        return (each for each in chain(self._writing, self._captures) if each.number > self._copied)

    def _copy(self) -> None:
        """Copy what waits in memory into a file of the journal."""
        with self._changed:
            waiting = list(self._not_copied())
            if not waiting:  # they were stored just now
                return
            self._copied = self._put
        try:
            self._journal.write([each.entry for each in waiting], self._copied)
        except OSError as error:
            self._note_disk(error)

    def _refuse(self, error: Unavailable) -> None:
        """Tell all who wait."""
        with self._changed:
            calls = [call for call in self._calls if call.begin()]
            self._calls.clear()
        for call in calls:
            call.future.set_exception(error)

    def _end(self) -> None:
        if not self._shelter():
            logger.error("the log closes with %d captures unwritten", len(self._captures))
        self._refuse(Unavailable("burnish is stopping: try again when it is back"))
        with self._moving:
            self._spill.close()
        if not self._captures:
            self._journal.forget(self._put)
        self._connection.close()
