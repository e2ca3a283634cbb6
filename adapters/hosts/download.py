"""Downloads one large file: goes on where an earlier attempt stopped, and checks size and SHA-256 before it counts."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from io import BufferedRandom
from pathlib import Path

import httpx

from burnish.adapters.errors import EngineError
from burnish.system import durable

_MB = 1e6


def download(
    client: httpx.Client, url: str, target: Path, *, size: int, sha256: str, progress: Callable[[int], None]
) -> None:
    """Download ``size`` bytes into ``target``, which appears only when they are whole.

    Whatever ends the process, the beginning stays in ``<target>.incomplete``. The client's hooks must raise for an
    error status. ``progress`` gets the number of bytes that are there. Raises EngineError, which says what to do.
    """
    part = target.with_name(f"{target.name}.incomplete")
    try:
        with part.open("a+b") as file:
            _lock(file, target)
            there = os.fstat(file.fileno()).st_size
            _demand_room(target, size - there)
            _complete(client, url, file, size, progress)
            _check(file, part, sha256)
            os.fsync(file.fileno())
            part.replace(target)
        durable.sync(target.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _demand_room(target, size - part.stat().st_size, full=True)
        raise EngineError(f"{target} can't be written: {error.strerror or error}") from error


def _complete(
    client: httpx.Client, url: str, file: BufferedRandom, size: int, progress: Callable[[int], None]
) -> None:
    """Fill a file up to its size; ask again as long as each request brings something."""
    position = os.fstat(file.fileno()).st_size
    if position > size:
        position = _empty(file)
    progress(position)
    while position < size:
        start, reason = position, "the connection was closed"
        try:
            # Compressed, a range would mean something else.
            headers = {"range": f"bytes={position}-", "accept-encoding": "identity"}
            with client.stream("GET", url, headers=headers) as response:
                # Some servers ignore the range and send everything.
                span = response.headers.get("content-range", "")
                partial = response.status_code == HTTPStatus.PARTIAL_CONTENT
                if not (partial and span.startswith(f"bytes {position}-")):
                    start = position = _empty(file)
                for chunk in response.iter_raw():
                    position += len(chunk)
                    if position > size:
                        break
                    file.write(chunk)
                    progress(position)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
        if position > size:
            _empty(file)
            raise EngineError(f"{url} sends more than the {size} bytes that were announced; try again later")
        if position == start and position < size:
            raise EngineError(
                f"the download broke off at {position / _MB:.0f} of {size / _MB:.0f} MB ({reason}); start again, and "
                "it goes on from there"
            )


def _empty(file: BufferedRandom) -> int:
    file.truncate(0)
    return 0


def _lock(file: BufferedRandom, target: Path) -> None:
    """Keep two downloads from writing into one file; the system takes the lock back however a process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise EngineError(
            f"another burnish is downloading {target.name} already; wait until it has ended"
        ) from error


def _check(file: BufferedRandom, part: Path, sha256: str) -> None:
    file.seek(0)  # which also writes what is still buffered
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        part.unlink()
        raise EngineError(
            f"the download has the digest sha256:{digest}, expected sha256:{sha256}; it was deleted. Try again; if "
            "it happens again, ask what changes downloads in your network, e.g. a proxy"
        )


def _demand_room(target: Path, needed: int, *, full: bool = False) -> None:
    free = 0
    with suppress(OSError):
        free = shutil.disk_usage(target.parent).free
    if full or needed > free:
        raise EngineError(
            f"the disk of {target.parent} is too small: {needed / _MB:.0f} MB are needed, {free / _MB:.0f} MB are "
            "free. Make room, or set HF_HOME to a folder on another disk"
        )
