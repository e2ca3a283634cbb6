"""The data directory: it is its owner's alone, and one burnish works in it at a time."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.proxy.errors import ConfigError


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
        lock = (path / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another burnish already uses {path}: stop it, or name another folder with --data-dir",
                param="data_dir",
            ) from error
        yield


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the data directory {path} cannot be written ({error.strerror}): "
        "make it writable, or name another with --data-dir",
        param="data_dir",
    )
