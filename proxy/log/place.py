"""The database's place: whether its path still leads to the open file, and what keeps its content if not.

SQLite goes on writing into a file that was deleted or moved, and what it commits there is lost with the process. So
the writer asks before each batch, and stores nothing until the file is back or burnish is restarted.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from burnish.proxy.log import files

logger = logging.getLogger(__name__)

WAL = "-wal"


class Displaced(OSError):
    """The path no longer leads to the open database."""


class DatabasePlace:
    """The path of an open database. Used by the writer thread only."""

    def __init__(self, path: Path) -> None:
        """Remember which files are open. ``close`` comes after all connections to them have closed."""
        self._path = path
        self._wal = path.with_name(path.name + WAL)
        # SQLite's locks on a file would go with the first descriptor that closes.
        self._opened = {file: os.open(file, os.O_RDONLY) for file in (path, self._wal) if file.exists()}
        self._stood = [
            (str(file), _identity(os.fstat(descriptor))) for file, descriptor in self._opened.items()
        ]
        self._copy: Path | None = None
        """What the deleted file held."""
        self._obstacle: Exception | None = None
        """Why there is no copy."""

    def close(self) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def check(self) -> None:
        """Raise Displaced, with what happened and what to do, if another file or none is at the path."""
        if self._displaced:
            raise Displaced(f"{self._what_happened()}: {self._what_to_do()}")

    def secure(self, connection: sqlite3.Connection, between: Callable[[], None]) -> None:
        """Save what a displaced database holds, as far as it isn't saved yet. ``between`` is called every few MB.

        A deleted one is copied to its path, or beside it if another file is there. Otherwise the file itself gets what
        was only in the write-ahead log.
        """
        if not self._displaced:
            return
        try:
            if self._deleted:
                if self._copy is None or not self._copy.exists():
                    self._copy = self._copied(connection, between)
                    logger.error("what %s held is in %s", self._path, self._copy)
                saved = True
            else:
                _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                saved = frames == moved
            if saved and self._path.exists() and not self._stands(self._path):
                self._remove_wal()
            self._obstacle = None
        except (OSError, sqlite3.Error) as error:
            self._obstacle = error

    def _copied(self, connection: sqlite3.Connection, between: Callable[[], None]) -> Path:
        target = self._path
        if target.exists():
            target = target.with_name(f"{target.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        with files.new_file(target) as unfinished:
            files.copy_into(unfinished, connection, between)
        return target

    def _remove_wal(self) -> None:
        """SQLite would mix our write-ahead log into the file that is at the path now."""
        if self._wal in self._opened and self._stands(self._wal):
            self._wal.unlink(missing_ok=True)

    @property
    def _displaced(self) -> bool:
        return any(not _is_at(path, identity) for path, identity in self._stood)

    def _stands(self, path: Path) -> bool:
        return _is_at(str(path), _identity(os.fstat(self._opened[path])))

    @property
    def _deleted(self) -> bool:
        """True if no path leads to the database any more."""
        return os.fstat(self._opened[self._path]).st_nlink == 0

    def _what_happened(self) -> str:
        if self._stands(self._path):
            return f"{self._wal} was deleted or moved while burnish was using it"
        if self._path.exists() and self._copy != self._path:
            return f"{self._path} is another file than the one that burnish opened"
        missing_path = self._path if self._path.parent.exists() else self._path.parent
        return f"{missing_path} was {'deleted' if self._deleted else 'moved away'} while burnish was using it"

    def _what_to_do(self) -> str:
        if self._stands(self._path):
            return f"restart burnish. {self._path} holds everything"
        if not self._deleted:
            return "put it back, or restart burnish to use what is there then"
        if self._copy == self._path:
            return "restart burnish. It has written the file again, with all that it held"
        if self._copy:
            return f"restart burnish to use that file. What burnish had stored is in {self._copy}"
        if not self._path.parent.exists():
            return "make that folder again, and burnish writes the log into it"
        return (
            f"burnish can't write it again ({self._obstacle})"
            if self._obstacle
            else "burnish writes it again"
        )


Identity = tuple[int, int]


def _identity(stat: os.stat_result) -> Identity:
    """Return what tells a file from all others, as long as it is open."""
    return stat.st_dev, stat.st_ino


def _is_at(path: str, identity: Identity) -> bool:
    try:
        return _identity(os.stat(path)) == identity
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
