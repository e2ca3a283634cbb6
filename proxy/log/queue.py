"""Entries and calls that wait in memory for the writer, in order. State only: its users hold ``lock``."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from burnish.proxy.log.batch import Call
from burnish.proxy.log.spill import Entry
from burnish.proxy.records import Passthrough

WINDOW_S = 0.05
"""The group-commit window: kill -9 may take the completions of this time, and never ratings."""
QUEUE_LIMIT_BYTES = 256 * 1024 * 1024
"""Entries that wait in memory when the disk does not take files either; beyond it the newest are dropped."""
ENTRY_OVERHEAD_BYTES = 2048
"""Python's own cost of one entry, roughly."""


class Waiting(NamedTuple):
    """An entry that waits."""

    entry: Entry
    size: int
    """Bytes, roughly."""
    number: int
    """1 for the first entry since the start."""
    at: float
    """When it was put in, on the monotonic clock."""


class Queue:
    """Entries and calls that wait for the writer, and the entries of the batch that it writes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: deque[Waiting] = deque()
        self.writing: list[Waiting] = []
        """Entries of the batch that is being written."""
        self.busy = False
        """True while a batch is being written."""
        self.calls: deque[Call] = deque()
        self.size_bytes = 0
        """Of all entries, those of the batch included."""
        self.count = 0
        """Entries that were ever put in."""
        self.taken = 0
        """Entries that have left: into a batch, or into a file."""

    def put(self, entry: Entry) -> bool:
        """Add an entry, unless the queue is full."""
        size = ENTRY_OVERHEAD_BYTES
        if not isinstance(entry, Passthrough):
            size += len(entry.wire.request_body) + sum(map(len, entry.wire.chunks))
        if self.size_bytes + size > QUEUE_LIMIT_BYTES:
            return False
        self.size_bytes += size
        self.count += 1
        self.entries.append(Waiting(entry, size, self.count, time.monotonic()))
        return True

    def begin(self, most: int) -> tuple[list[Entry], list[Call]]:
        """Start a batch: return at most so many entries, and the calls that wait for no later one."""
        count = min(len(self.entries), most)
        self.writing = [self.entries.popleft() for _ in range(count)]
        self.taken += count
        self.busy = True
        calls = []
        while self.calls and self.calls[0].after <= self.taken:
            calls.append(self.calls.popleft())
        return [each.entry for each in self.writing], [call for call in calls if call.begin()]

    def end(self) -> int:
        """End the batch, whose entries are stored; return the number of the last one, 0 without any."""
        last = self.writing[-1].number if self.writing else 0
        self.size_bytes -= sum(each.size for each in self.writing)
        self.writing = []
        self.busy = False
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

    def oldest_at(self, after: int = 0) -> float | None:
        """Return when the oldest entry with a number above ``after`` was put in."""
        return next((each.at for each in self._all(after)), None)

    def entries_after(self, number: int) -> list[Entry]:
        return [each.entry for each in self._all(number)]

    def _all(self, after: int) -> Iterator[Waiting]:
        return filter(lambda each: each.number > after, chain(self.writing, self.entries))
