"""A copy of the log while it is written, by SQLite's backup API: one moment of it, checked, in one file."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from burnish.adapters import durable
from burnish.proxy.errors import ConfigError, Conflict, Unavailable
from burnish.proxy.log.files import OWNER_ONLY

STEP_PAGES = 1024
"""4 MB: between two steps others get at the disk."""
PAUSE_S = 0.005
BUSY_TIMEOUT_S = 10.0
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
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    try:
        _new_file(target, unfinished)
        completions = _copy(log, unfinished)
        durable.sync(unfinished)
        os.link(unfinished, target)  # unlike a rename it replaces nothing
        durable.sync(target.parent)
    except FileExistsError as error:
        raise Conflict(f"{target} exists already: name a new file", code="file_exists") from error
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"the log cannot be copied to {target}: {error}; nothing was left there") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
    return completions


def _new_file(target: Path, unfinished: Path) -> None:
    if target.exists():
        raise FileExistsError(target)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    os.fchmod(descriptor, OWNER_ONLY)
    os.close(descriptor)


def _copy(log: Path, target: Path) -> int:
    """Copy and check; returns how many completions the copy has. Raises sqlite3.Error."""
    with (
        closing(sqlite3.connect(log, isolation_level=None, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        source.execute("PRAGMA query_only = ON")
        # One moment: what is written meanwhile neither gets in nor makes the copy begin anew. No writer waits for it.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM migration").fetchone()
        source.backup(copy, pages=STEP_PAGES, progress=lambda *_: time.sleep(PAUSE_S), sleep=PAUSE_S)
        source.execute("ROLLBACK")
        copy.execute("PRAGMA journal_mode = DELETE")  # a single file
        found = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged, as the log may be: {found}")
        return int(copy.execute("SELECT count(*) FROM completion").fetchone()[0])
