"""The data directory: it is its owner's alone, and one burnish works in it at a time."""

from __future__ import annotations

import errno
import fcntl
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from burnish.proxy.http.errors import ConfigError
from burnish.system import durable

LOCK = "lock"
SECRET, SECRET_BYTES = "secret", 32
LOOKED_S = 0.2
"""A command that looks if the lock is taken holds it for a moment."""


def prepare(path: Path) -> None:
    """Create the data directory for its owner only. Raises ConfigError if it can't be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        probe = path / ".writable"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        if error.errno == errno.ENOSPC and path.is_dir():
            return  # answers go on, and the log tells
        raise _unwritable(path, error) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the data directory: two processes on one log would train and swap against each other."""
    try:
        lock = (path / LOCK).open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    with lock:
        until = time.monotonic() + LOOKED_S
        while not _taken(lock, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise ConfigError(
                    f"another burnish already uses {path}: stop it, or name another folder with --data-dir",
                    param="data_dir",
                )
            time.sleep(LOOKED_S / 10)
        yield


def in_use(path: Path) -> bool:
    try:
        lock = (path / LOCK).open(encoding="utf-8")
    except OSError:
        return False
    with lock:
        return not _taken(lock, fcntl.LOCK_SH)


def _taken(lock: TextIO, how: int) -> bool:
    """Return whether we got a lock. It holds until its file is closed."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def secret(path: Path) -> bytes:
    """Return 32 random bytes that stay the same for a data directory; made at the first start. Raises ConfigError."""
    file = path / SECRET
    try:
        key = file.read_bytes() if file.is_file() else b""
        if len(key) != SECRET_BYTES:
            key = secrets.token_bytes(SECRET_BYTES)
            durable.replace(file, key)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise _unwritable(path, error) from error
        key = secrets.token_bytes(SECRET_BYTES)  # keys made with it hold until burnish stops
    return key


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the data directory {path} cannot be written ({error.strerror}): "
        "make it writable, or name another with --data-dir",
        param="data_dir",
    )
