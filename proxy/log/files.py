"""The log's file: created for its owner only, opened so that a commit survives power loss, checked and copied."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from burnish.proxy.http.errors import ConfigError, Conflict, Unavailable
from burnish.proxy.log.tree import digest
from burnish.system import durable

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700

BUSY_TIMEOUT_S = 2.0
"""Someone else (a backup, a curious sqlite3 shell) may hold the file for a moment; longer is a fault to report."""

JOURNAL_LIMIT_BYTES = 16 * 1024 * 1024
"""The write-ahead log is cut back to this after a checkpoint."""
CHECKPOINT_PAGES = 4000
"""As many fit into it (SQLite's own default is 1000): a page that is written often is copied back less often."""
CACHE_KB = 32 * 1024
"""Pages of the indexes, which are hit at random; SQLite's own 2 MB hold those of some 10,000 completions."""

CHECKED_BYTES = 128 * 1024 * 1024
"""Checked in about a second at every start."""
SAMPLES, SAMPLE_ROWS = 16, 64
"""At the start, so many runs of so many neighbouring texts are compared with their digests."""
CHECKED_TABLES = ("feedback", "undo", "instruction", "run", "migration")


def create(path: Path) -> None:
    """Make the file and its folder with owner-only modes, whatever the umask. Raises ConfigError."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, mode=OWNER_ONLY_FOLDER)
            path.parent.chmod(OWNER_ONLY_FOLDER)
        # SQLite gives -wal and -shm the mode of the file itself.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        try:
            os.fchmod(descriptor, OWNER_ONLY)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unusable(path, error) from error


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PROBE_BYTES = 64 * 1024
"""Twice what SQLite needs to open a file: the index of the write-ahead log."""


def disk_is_full(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno in FULL
    return False


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file in autocommit mode; every commit is synced to the disk before it returns."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        connection.execute("PRAGMA secure_delete = ON")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Look for damage. Raises sqlite3.DatabaseError.

    The whole file up to CHECKED_BYTES. A larger one would take seconds, so only its irreplaceable tables are checked:
    feedback, instructions, runs. (`burnish backup` checks all of it.)
    """
    tables = [""] if path.stat().st_size <= CHECKED_BYTES else [f"({name})" for name in CHECKED_TABLES]
    for table in tables:
        verdict = connection.execute(f"PRAGMA quick_check{table}").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict.replace("\n", "; "))


def damaged_texts(connection: sqlite3.Connection, *, all_of_them: bool = False) -> tuple[int, int]:
    """Compare texts with their digests; return how many differ, and how many were compared. Raises sqlite3.Error.

    SQLite's own check doesn't look into texts. At the start only a sample is compared: all would take minutes.
    """
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM content").fetchone()
    if all_of_them or last <= SAMPLES * SAMPLE_ROWS:
        places = [(0, -1)]
    else:
        places = [(random.randint(1, last), SAMPLE_ROWS) for _ in range(SAMPLES)]
    damaged = compared = 0
    for place in places:
        statement = "SELECT digest, body FROM content WHERE id >= ? ORDER BY id LIMIT ?"
        for name, body in connection.execute(statement, place):
            damaged += digest(body) != name
            compared += 1
    return damaged, compared


PRIMARY_CODE = 0xFF
"""Of SQLite's extended error codes."""


def locked(error: Exception) -> bool:
    """Return whether another program holds the file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def unusable(path: Path, error: Exception) -> ConfigError:
    """Return the error for a log that cannot be opened, with advice."""
    advice = "choose another folder with --data-dir, or make this one writable"
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        advice = (
            "it is damaged, or it isn't a log of burnish. Move it away, with "
            f"{path.name}-wal and {path.name}-shm, and put a backup (from burnish backup) in its place; "
            "without one, burnish starts with an empty log"
        )
    return ConfigError(f"cannot open the log {path}: {error}; {advice}", param="data_dir")


Result = TypeVar("Result")


class ReadConnection:
    """A read-only connection with a thread of its own: a long read delays no other.

    Runs whole queries, each a function on the connection, one at a time and in order. All statements of a query see the
    same moment of the log: a text that is deleted meanwhile is still there.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises sqlite3.Error."""
        self._connection = connect(path, read_only=True)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="burnish-log-read")

    async def run(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _at_one_moment, query, self._connection)

    def close_and_wait(self) -> None:
        """Finish the queries that wait, close the connection and end the thread."""
        self._thread.shutdown()
        self._connection.close()


def _at_one_moment(query: Callable[[sqlite3.Connection], Result], connection: sqlite3.Connection) -> Result:
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        if connection.in_transaction:  # a damaged file has ended it already
            connection.execute("ROLLBACK")


STEP_PAGES = 1024
"""4 MB: between two steps others get at the disk."""
PAUSE_S = 0.005
BACKUP_TIMEOUT_S = 10.0
"""Reading waits for nobody, but for the moment in which the last connection to the file closes."""


def back_up(log: Path, target: Path) -> int:
    """Copy a log into a new file for its owner only, whether burnish runs or not; returns its completions.

    Raises ConfigError (no log there), Conflict (the file exists), Unavailable (it cannot be copied, or is damaged).
    """
    if not log.is_file():
        raise ConfigError(
            f"there is no log {log}: name the folder that burnish runs with by BURNISH_DATA_DIR",
            param="data_dir",
        )
    try:
        with new_file(target) as unfinished:
            return _copy(log, unfinished)
    except FileExistsError as error:
        raise Conflict(f"{target} exists already: name a new file", code="file_exists") from error
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"the log cannot be copied to {target}: {error}; nothing was left there") from error


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give an empty file to write to; it gets its name at the end, synced, unless the block fails. Raises OSError."""
    if target.exists():
        raise FileExistsError(target)
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        os.fchmod(descriptor, OWNER_ONLY)
        os.close(descriptor)
        yield unfinished
        durable.sync(unfinished)
        os.link(unfinished, target)  # unlike a rename it replaces nothing
        durable.sync(target.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _copy(log: Path, target: Path) -> int:
    """Copy and check; returns how many completions the copy has. Raises sqlite3.Error."""
    with closing(sqlite3.connect(log, isolation_level=None, timeout=BACKUP_TIMEOUT_S)) as source:
        source.execute("PRAGMA query_only = ON")
        # One moment: what is written meanwhile neither gets in nor makes the copy begin anew. No writer waits for it.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM migration").fetchone()
        copy_into(target, source, lambda: time.sleep(PAUSE_S))
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        verdict = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged, as the log may be: {verdict}")
        return int(copy.execute("SELECT count(*) FROM completion").fetchone()[0])


def copy_into(target: Path, source: sqlite3.Connection, between: Callable[[], None]) -> None:
    """Copy a database in steps, and call a function after each. Raises sqlite3.Error."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        source.backup(copy, pages=STEP_PAGES, progress=lambda *_: between(), sleep=PAUSE_S)
        copy.execute("PRAGMA journal_mode = DELETE")  # a single file
