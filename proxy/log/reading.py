"""Read-only connections to the log, each with a thread of its own: a long read delays no other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiosqlite

from burnish.proxy.log import files

Result = TypeVar("Result")
ROWS_AT_ONCE = 64
"""aiosqlite's own default, which nothing here uses: queries fetch their rows themselves."""


class ReadConnection(aiosqlite.Connection):
    """Runs whole queries, each a function on the ``sqlite3`` connection, one at a time and in order.

    aiosqlite's public methods cross to its thread once a statement, and the context of one completion takes dozens.
    Its ``await connect()`` loses the connection for good when the first caller is cancelled. So this class uses
    ``_execute``, ``_connection`` and ``_thread``; pyproject.toml pins the versions that have them.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises sqlite3.Error."""
        opened = files.connect(path, read_only=True)
        super().__init__(lambda: opened, ROWS_AT_ONCE)
        self._connection = opened
        self._thread.daemon = True  # a program that ends without closing the log must not hang
        self._thread.start()

    async def run(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return what a query returns, or raise what it raises."""
        result: Result = await self._execute(query, self._conn)  # type: ignore[no-untyped-call]
        return result

    def close_and_wait(self) -> None:
        """Finish the queries that wait, close the connection and end the thread."""
        # stop() reports to the event loop of its own thread, which may be closed by then: this thread has none.
        stopping = threading.Thread(target=self.stop)
        stopping.start()
        stopping.join()
        self._thread.join()
