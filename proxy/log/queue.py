"""Entries and calls that wait for the writer: in memory, and in files if it can't store them in time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from burnish.proxy.log.batch import WriterCall
from burnish.proxy.log.spill import Entry, Journal, Spill, UnreadableCapture
from burnish.proxy.records import Passthrough
from burnish.system.apart import LARGE_BYTES

WINDOW_S = 0.05
"""The group-commit window: kill -9 may take the completions of this time, and never ratings."""
QUEUE_LIMIT_BYTES = 256 * 1024 * 1024
"""Entries that wait in memory when the disk does not take files either; beyond it the newest are dropped."""
PACKED_BYTES = 64 * 1024
"""A longer compressed answer may be large."""
TOKEN_BYTES = 36
"""Python's own cost of a token id in a tuple, and of a float."""
ENTRY_OVERHEAD_BYTES = 2048
"""Python's own cost of one entry, roughly."""


class Bell:
    """Wakes the one thread that waits for it. A condition costs ten times as much: each of its waits makes a lock.

    Those who ring hold a lock that is the same for all of them.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Wake the thread; if it doesn't wait, its next wait ends at once."""
        if self._silent.locked():
            self._silent.release()

    def hear(self, limit_s: float | None) -> None:
        """Wait for a ring, no longer than this. None: no limit."""
        self._silent.acquire(timeout=-1 if limit_s is None else limit_s)

    def wait(self, until: Callable[[], object], limit_s: float) -> bool:
        """Wait until something is true, which may change with each ring; False: it wasn't after so many seconds."""
        end = time.monotonic() + limit_s
        while not until():
            if (rest_s := end - time.monotonic()) <= 0:
                return False
            self._silent.acquire(timeout=rest_s)
        return True


class Slot(NamedTuple):
    entry: Entry
    size: int
    """Bytes, roughly."""
    number: int
    """1 for the first entry since the start."""
    at: float
    """When it was put in, on the monotonic clock."""

    @property
    def is_packed(self) -> bool:
        return not isinstance(self.entry, Passthrough) and bool(self.entry.wire.content_encoding)

    @property
    def is_large(self) -> bool:
        """True if it is, or may be, read in the child process."""
        return self.size > LARGE_BYTES or (self.size > PACKED_BYTES and self.is_packed)


class Queue:
    """Entries and calls that wait in memory, in order, and the entries of the batch that is being written.

    State only: its users hold ``lock``.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: deque[Slot] = deque()
        self.writing: list[Slot] = []
        """Entries of the batch that is being written."""
        self.busy_since: float | None = None
        """When the batch that is being written began, on the monotonic clock."""
        self.calls: deque[WriterCall] = deque()
        self.size_bytes = 0
        """Of all entries, those of the batch included."""
        self.count = 0
        """Entries that were ever put in."""
        self.taken = 0
        """Entries that have left: into a batch, or into a file."""

    @property
    def busy(self) -> bool:
        return self.busy_since is not None

    def put(self, entry: Entry) -> bool:
        """Add an entry, unless the queue is full."""
        size = ENTRY_OVERHEAD_BYTES
        if not isinstance(entry, Passthrough):
            wire = entry.wire
            size += len(wire.request_body) + sum(map(len, wire.chunks))
            if wire.tokens:
                size += TOKEN_BYTES * (len(wire.tokens.prompt) + 2 * len(wire.tokens.reply))
        if self.size_bytes + size > QUEUE_LIMIT_BYTES:
            return False
        self.size_bytes += size
        self.count += 1
        self.entries.append(Slot(entry, size, self.count, time.monotonic()))
        return True

    def begin(self, most: int) -> tuple[list[Entry], list[WriterCall]]:
        """Start a batch: return at most so many entries, a large one alone; and the calls that needn't wait."""
        large = (at for at, slot in enumerate(islice(self.entries, most)) if slot.is_large)
        count = min(len(self.entries), most, max(next(large, most), 1))
        self.writing = [self.entries.popleft() for _ in range(count)]
        self.taken += count
        self.busy_since = time.monotonic()
        calls = []
        while self.calls and self.calls[0].captures_before <= self.taken:
            calls.append(self.calls.popleft())
        return [slot.entry for slot in self.writing], [call for call in calls if call.begin()]

    def end(self) -> int:
        """End the batch, whose entries are stored; return the number of the last one, 0 without any."""
        last = self.writing[-1].number if self.writing else 0
        self.size_bytes -= sum(slot.size for slot in self.writing)
        self.writing = []
        self.busy_since = None
        return last

    def put_back(self) -> None:
        """Put the entries of the batch before all others."""
        self.taken -= len(self.writing)
        self.entries.extendleft(reversed(self.writing))
        self.writing = []

    def drop_first(self) -> int:
        """Remove the first entry, which is stored, and return its number."""
        first = self.entries.popleft()
        self.taken += 1
        self.size_bytes -= first.size
        return first.number

    def oldest_at(self, number: int = 0) -> float | None:
        """Return when the oldest entry above a number was put in."""
        return next((slot.at for slot in self._all(number)), None)

    def entries_after(self, number: int) -> list[Entry]:
        return [slot.entry for slot in self._all(number)]

    def _all(self, number: int) -> Iterator[Slot]:
        if number >= self.count:  # often all of them are in the journal
            return iter(())
        return (slot for slot in chain(self.writing, self.entries) if slot.number > number)


logger = logging.getLogger(__name__)

COPY_AGE_S = 0.5 * WINDOW_S
"""An entry that has waited for so long and is not stored is copied into the journal."""
LATE_S = 0.1 * WINDOW_S
"""Between two looks at an entry that has waited for so long, if the writer hasn't even begun with it."""
SPILL_BYTES = 64 * 1024 * 1024
"""Entries that wait in memory for a busy writer; more of them move into files."""
RETRY_S = 0.5
"""Between two tries to move entries into files that the disk does not take."""


class Relief:
    """Moves or copies entries into files: when the writer asks for it, and from a thread of its own.

    While the database can't be written, or more entries wait than memory should hold, they move into the spill.
    Entries that wait for longer than half the window, because the writer shares its core with the requests, are
    copied into the journal.
    """

    def __init__(self, queue: Queue, spill: Spill, journal: Journal) -> None:
        self._queue = queue
        self._spill = spill
        self._journal = journal
        self.moving = threading.Lock()
        """Held while entries go from memory into files or into a batch, or from files into one: they stay in order.
        Taken before the queue's lock, for which the event loop may wait."""
        self._bell = Bell()
        self.rests = False
        """Whether its thread sleeps until somebody wakes it, because no entry waits."""
        self._copied = 0
        """Number of the last entry in the journal."""
        self._safe = 0
        """Number of the last entry in the database or in the spill."""
        self._closing = False
        self.trouble: str | None = None
        """Why the disk does not take files."""
        self._thread = threading.Thread(target=self._watch, name="burnish-log-watch", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> bool:
        return self._spill.waiting

    @property
    def more(self) -> bool:
        """True if there are entries behind those that ``read_back`` returned last."""
        return self._spill.more

    def wake(self) -> None:
        """Look at the queue now: it has something again, or more than memory should hold. The caller holds its lock."""
        self.rests = False
        self._bell.ring()

    def stop(self) -> None:
        """End the thread; the spill can still be used."""
        with self._queue.lock:
            self._closing = True
            self._bell.ring()
        self._thread.join()

    def close(self) -> None:
        with self.moving:
            self._spill.close()
        if not self._queue.entries:
            self._journal.forget(self._queue.count)

    def read_back(self, limit: int) -> list[Entry]:
        """Return the first entries of the spill. The caller holds ``moving``."""
        try:
            return self._spill.read(limit)
        except (OSError, UnreadableCapture) as error:
            logger.error(
                "completions in %s cannot be read: %s. The file is kept, and the log continues without it",
                self._spill.skip(),
                error,
            )
            return []

    def stored(self, *, read_back: bool) -> None:
        """End the batch: its entries are stored, and those that were read back for it."""
        with self.moving:
            if read_back:
                self._spill.forget_read()
            self._end_batch()
        self._journal.forget(self._safe)

    def put_back(self) -> None:
        """Put the entries of a batch that failed before all later ones: into a file, else into memory again."""
        if not self._queue.writing:
            return
        with self.moving:
            try:
                self._spill.put_back([slot.entry for slot in self._queue.writing])
            except OSError as error:
                self._failed(error)
                with self._queue.lock:
                    self._queue.put_back()
            else:
                self._end_batch()

    def shelter(self) -> bool:
        """Move all entries from memory into the spill; False if the disk does not take them."""
        with self.moving:
            while True:
                with self._queue.lock:
                    if not self._queue.entries:
                        return True
                    first = self._queue.entries[0]
                try:
                    self._spill.append(first.entry)
                except OSError as error:
                    self._failed(error)
                    return False
                with self._queue.lock:
                    self._safe = self._queue.drop_first()
                    self.trouble = None

    def _end_batch(self) -> None:
        with self._queue.lock:
            self._safe = max(self._safe, self._queue.end())

    def _failed(self, error: OSError) -> None:
        if self.trouble is None:
            logger.error("completions wait in memory, because they cannot be written to files: %s", error)
        self.trouble = f"files cannot be written: {error}"

    def _watch(self) -> None:
        queue = self._queue
        while not self._closing:
            if queue.size_bytes > SPILL_BYTES and queue.entries and not self.shelter():
                self._bell.wait(lambda: self._closing, RETRY_S)
            rest_s = self._rest_s()
            if rest_s == 0:
                self._copy()
            else:
                self._bell.hear(rest_s)

    def _rest_s(self) -> float | None:
        """Return how long it is until an entry may have waited too long; None if none waits."""
        with self._queue.lock:
            oldest_at = self._queue.oldest_at(self._copied)
            self.rests = oldest_at is None
            if oldest_at is None:
                return None
            # A writer that isn't busy is about to take it.
            least_s = 0.0 if self._queue.busy else LATE_S
            return max(least_s, oldest_at + COPY_AGE_S - time.monotonic())

    def _copy(self) -> None:
        with self._queue.lock:
            entries = self._queue.entries_after(self._copied)
            if not entries:  # they were stored just now
                return
            self._copied = self._queue.count
        try:
            self._journal.write(entries, self._copied)
        except OSError as error:
            self._failed(error)
