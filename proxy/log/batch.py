"""A batch on its way into the database: all of it in one transaction, or all of it but what is faulty."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from burnish.proxy.http.errors import NotFound, Unavailable
from burnish.proxy.log.capture import Parsed, read, unparsed
from burnish.proxy.log.intake import Intake
from burnish.proxy.records import Completion, Passthrough
from burnish.system.apart import WorkerProcess

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Report = Callable[[], None]
Stored = Parsed | Passthrough


class Stopping(Exception):
    """burnish stops, and what is being read must wait for the next start."""


@dataclass(slots=True)
class WriterCall:
    do: Callable[[sqlite3.Connection], Any]
    captures_before: int
    """Captures that were put in before it."""
    deletes: bool
    """Whether it deletes messages or nodes."""
    early: bool = False
    """Whether it may be done before captures that were put in earlier, if what it names is stored."""
    future: Future[Any] = field(default_factory=Future)
    is_running: bool = False
    """Whether it cannot be cancelled any more."""

    def begin(self) -> bool:
        """Start it, unless its caller has cancelled it."""
        self.is_running = self.is_running or self.future.set_running_or_notify_cancel()
        return self.is_running


@dataclass(slots=True)
class WriteBatch:
    """One transaction: first captures, from files or else from memory, then calls."""

    read_back: list[Completion | Passthrough]
    """From the files."""
    has_backlog: bool
    """Whether there are more of them, which are older than what the calls may ask for."""
    captures: list[Completion | Passthrough]
    """From memory."""
    calls: list[WriterCall]
    early: bool = False
    """Whether captures that were put in before the calls aren't stored yet."""
    again: bool = False
    """Whether some of the captures are stored already."""
    missing: list[WriterCall] = field(default_factory=list)
    """Early calls that name something that isn't stored yet."""

    @property
    def empty(self) -> bool:
        return not (self.read_back or self.captures or self.calls)


class Transactions:
    def __init__(
        self,
        connection: sqlite3.Connection,
        on_stored: Callable[[Stored], None],
        child: WorkerProcess,
        meanwhile: Callable[[], None],
    ) -> None:
        """``on_stored`` is called with each entry that is on the disk; ``meanwhile`` while a large one is read."""
        self._connection = connection
        self._child = child
        self._meanwhile = meanwhile
        self._intake = Intake(connection)
        self._on_stored = on_stored
        self.refused = 0
        """Entries that the database doesn't take, not even as bytes."""
        self.refusal = ""
        """Why it didn't take the latest one."""

    def write(self, batch: WriteBatch) -> list[Report]:
        """Write a batch in one transaction; returns how to tell those who wait. Raises sqlite3.Error, Stopping."""
        entries = [self._parsed(entry) for entry in (*batch.read_back, *batch.captures)]
        try:
            return self._transaction(entries, batch, careful=False)
        except Exception as error:
            # One row can break in any way. Which one it was, and the rest without it, costs a savepoint each.
            if concerns_database(error):
                raise
            return self._transaction(entries, batch, careful=True)

    def _parsed(self, entry: Completion | Passthrough) -> Stored:
        """Raises Stopping."""
        if isinstance(entry, Passthrough):
            return entry
        try:
            return read(entry, self._child, self._meanwhile)
        except Stopping:
            raise
        except Exception as error:  # noqa: BLE001
            # A body that breaks the parser must neither stop the writer nor be lost.
            logger.warning("completion %s is stored as raw bytes: %s", entry.id, error)
            return unparsed(entry, error)

    def _transaction(self, entries: list[Stored], batch: WriteBatch, *, careful: bool) -> list[Report]:
        """Do all of a batch. Raises whatever a row raises, with nothing written."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if careful:
                entries = [self._store_alone(entry) for entry in entries]
            elif entries:
                self._intake.add(entries, again=batch.again or bool(batch.read_back))
            reports = list(filter(None, (self._answer(call, batch) for call in batch.calls)))
            self._connection.execute("COMMIT")
        except BaseException:
            self._intake.forget()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        durable_entries = () if batch.early else entries
        return [*(partial(self._on_stored, entry) for entry in durable_entries), *reports]

    def _answer(self, call: WriterCall, batch: WriteBatch) -> Report | None:
        """Do a call; returns how to report it once it is on the disk, None if it must wait. Raises sqlite3.Error."""
        try:
            answer = self._alone(call.do)
        except NotFound as error:
            if batch.early:
                batch.missing.append(call)
                return None
            return partial(call.future.set_exception, catching_up() if batch.has_backlog else error)
        except Exception as error:
            # Whatever a call raises belongs to the one who waits for it; the thread goes on.
            if concerns_database(error):
                raise
            return partial(call.future.set_exception, error)
        if call.deletes:
            self._intake.forget()
        return partial(call.future.set_result, answer)

    def _store_alone(self, entry: Stored) -> Stored:
        """Store an entry, else its bytes with the reason why it can't be stored. Raises sqlite3.Error."""
        try:
            self._alone(lambda _: self._intake.add([entry], again=True))
            return entry
        except Exception as error:
            # As in ``write``: a fault must neither stop the writer nor lose the entry.
            if concerns_database(error):
                raise
            self._intake.forget()
            if isinstance(entry, Passthrough) or entry.raw:
                self.refused += 1
                self.refusal = f"{_id_of(entry)}: {error}"
                logger.error("%s cannot be stored: %s", _id_of(entry), error)
                return entry
            logger.warning("completion %s is stored as raw bytes: %s", _id_of(entry), error)
            return self._store_alone(unparsed(entry.completion, error))

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


def catching_up() -> Unavailable:
    """The error for a query whose answer may be in a file that is not read back yet."""
    return Unavailable(
        "completions that could not be stored at once are being stored now: try again in a moment"
    )


def _id_of(entry: Stored) -> str:
    return entry.id if isinstance(entry, Passthrough) else entry.completion.id


def concerns_database(error: Exception) -> bool:
    """True for a fault of the database (full, locked, damaged), False for the fault of one row."""
    row_faults = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
    return isinstance(error, sqlite3.Error) and not isinstance(error, row_faults)
