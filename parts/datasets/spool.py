"""Rows on disk, by name: an import holds as many as its files, and not in memory."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from weakref import finalize

Row = TypeVar("Row")


class Spool(Generic[Row]):
    """The rows are in a temporary file, which goes with the spool."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        finalize(self, self._rows.close)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute("CREATE TABLE spool (name TEXT PRIMARY KEY, place REAL, content BLOB)")
        self._rows.execute("CREATE INDEX in_order ON spool (place, name)")

    def put(self, name: str, row: Row, place: float = 0.0) -> None:
        """Keep a row, in place of the one with its name."""
        content = pickle.dumps(row, pickle.HIGHEST_PROTOCOL)
        self._rows.execute("INSERT OR REPLACE INTO spool VALUES (?, ?, ?)", (_stored(name), place, content))

    def get(self, name: str) -> Row | None:
        found = self._rows.execute("SELECT content FROM spool WHERE name = ?", (_stored(name),)).fetchone()
        return _loaded(found[0]) if found else None

    def __contains__(self, name: str) -> bool:
        query = "SELECT 1 FROM spool WHERE name = ?"
        return self._rows.execute(query, (_stored(name),)).fetchone() is not None

    def __iter__(self) -> Iterator[str]:
        for (name,) in self._rows.execute("SELECT name FROM spool ORDER BY place, name"):
            yield name.decode("utf-8", "surrogatepass")

    def rows(self) -> Iterator[Row]:
        """Yield the rows by their places, and then by their names."""
        for (content,) in self._rows.execute("SELECT content FROM spool ORDER BY place, name"):
            yield _loaded(content)


def _stored(name: str) -> bytes:
    """Half a surrogate pair is no text for SQLite."""
    return name.encode("utf-8", "surrogatepass")


def _loaded(content: bytes) -> Any:
    return pickle.loads(content)  # noqa: S301 – this process wrote it, into a file that nobody else has open
