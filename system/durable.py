"""Files that survive a crash and a power loss: whole or not at all, on the disk when the call returns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

OWNER_ONLY = 0o600


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for its owner only, whatever the umask; sync it when the block ends. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb") as file:
        os.fchmod(file.fileno(), OWNER_ONLY)
        yield file
        file.flush()
        os.fsync(file.fileno())


def create(path: Path, content: bytes) -> None:
    """Write a new file for its owner only. Raises OSError, FileExistsError."""
    with created(path) as file:
        file.write(content)


def create_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a new directory of files, all of them or nothing, for its owner only. Raises OSError."""
    with building(path) as partial:
        for name, content in files.items():
            create(partial / name, content)


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Give an empty directory beside ``path``, which takes its name when the block ends without an error.

    For its owner only. Whoever writes into it syncs the files. Raises OSError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    try:
        yield partial
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def replacing(path: Path, mode: int = OWNER_ONLY) -> Iterator[Path]:
    """Give an empty file beside ``path``, which takes its place when the block ends without an error.

    A reader, or a crash, sees the old content or the new. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        os.fchmod(descriptor, mode)
        os.close(descriptor)
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace(path: Path, content: str | bytes, mode: int = OWNER_ONLY) -> None:
    """Write a file, or replace the one that is there. Raises OSError."""
    payload = content.encode() if isinstance(content, str) else content
    with replacing(path, mode) as temporary:
        temporary.write_bytes(payload)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power loss. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
