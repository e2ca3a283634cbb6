"""Copies of entries that wait too long for a busy writer, in files: they keep the group-commit window under full load.

A file is written in one piece and not synced: it survives kill -9, but no power loss. It is removed when all its
entries are in the database. After a crash, the next start reads it back like a spill file; entries that were stored
already stay as they are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from burnish.proxy.log.spill import JOURNAL, Entry, packed


class Journal:
    """The files in one folder, which is made when the first one is needed. One thread writes, another may forget."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: deque[tuple[int, Path]] = deque()
        """With the number of the last capture in each."""

    def write(self, entries: Iterable[Entry], last: int) -> None:
        """Copy captures, of which the last has this number. Raises OSError, with nothing left behind."""
        path = self._folder / f"{last:012d}{JOURNAL}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            content = memoryview(b"".join(map(packed, entries)))
            while content:
                content = content[os.write(descriptor, content) :]
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        self._files.append((last, path))

    def forget(self, safe: int) -> None:
        """Remove the files that hold nothing beyond the capture of this number."""
        while self._files and self._files[0][0] <= safe:
            with suppress(OSError):  # a file too many is read back to no effect
                self._files.popleft()[1].unlink()
