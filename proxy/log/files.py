"""The log's file: created for its owner only, opened so that a commit survives power loss."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from burnish.proxy.errors import ConfigError

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
        found = connection.execute(f"PRAGMA quick_check{table}").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found.replace("\n", "; "))


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
