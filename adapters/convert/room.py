"""Memory and disk for a merge, checked before it begins."""

from __future__ import annotations

import shutil
from pathlib import Path

from burnish.adapters.errors import EngineError
from burnish.adapters.memory import available_bytes
from burnish.adapters.weights_file import WEIGHTS

# Measured: 115 MB for the small model, most of it Python's libraries. Rows of wide tensors and the adapter come on top.
MEMORY_BYTES = 256 * 2**20
ADAPTER_COPIES = 3
# Left for everything else that writes to the disk meanwhile.
SPARE_DISK_BYTES = 64 * 2**20


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


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
