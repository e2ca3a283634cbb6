"""Memory and disk for merges and conversions: checked before, and what failed in words."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from burnish.adapters.errors import EngineError
from burnish.adapters.weights_file import WEIGHTS
from burnish.system.memory import available_bytes

# Measured: 115 MB for the small model, 147 MB for tensors as wide as those of an 8B model. The adapter comes on top.
MEMORY_BYTES = 256 * 2**20
ADAPTER_COPIES = 3
# Of float32 numbers that are held at once; the work on them takes some five times their memory.
CHUNK_NUMBERS = 2**22
COPY_BYTES = 4 * CHUNK_NUMBERS
# Left for everything else that writes to the disk meanwhile.
SPARE_DISK_BYTES = 64 * 2**20


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Cut the rows of a tensor into parts that fit into memory."""
    at_once = max(1, CHUNK_NUMBERS // width)
    return (slice(row, min(row + at_once, rows)) for row in range(0, rows, at_once))


def copy(source: BinaryIO, file: BinaryIO, size: int) -> None:
    """Copy so many bytes from where ``source`` stands."""
    for start in range(0, size, COPY_BYTES):
        file.write(source.read(min(COPY_BYTES, size - start)))


def check_memory(adapter: Path) -> None:
    """Raise EngineError if there is too little memory for a merge. ``adapter``: a PEFT directory or a GGUF adapter."""
    weights = adapter / WEIGHTS if adapter.is_dir() else adapter
    if not weights.is_file():
        return  # reading it says so
    needed = MEMORY_BYTES + ADAPTER_COPIES * weights.stat().st_size
    free = available_bytes()
    if free is not None and free < needed:
        raise EngineError(
            f"merging takes {_mb(needed)} of memory, and {_mb(free)} are free; close other programs first"
        )


def check_disk(target: Path, size: int) -> None:
    """Raise EngineError if a merged model of so many bytes doesn't fit beside ``target``."""
    try:
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise EngineError(f"cannot write into {target.parent}: {error.strerror or error}") from error
    if free < size + SPARE_DISK_BYTES:
        raise EngineError(
            f"the merged model takes {_mb(size)}, and {_mb(free)} are free in {target.parent}; make room there, "
            f"so that {_mb(SPARE_DISK_BYTES)} are left"
        )


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise EngineError, which names what can't be written, for an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"cannot write {what}: {error.strerror or error}; make room there, or check its permissions"
        ) from error


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
