"""Memory of this machine, and of this process."""

from __future__ import annotations

import ctypes
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""A container sees its own limits here."""
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def available_bytes() -> int | None:
    """Return the memory available to a new process, including reclaimable caches; None if unknown."""
    import psutil  # commands that start nothing do without

    try:
        free = psutil.virtual_memory().available
    except (psutil.Error, OSError, RuntimeError):
        return None
    room = _left_in(CGROUP)
    return free if room is None else min(free, room)


def _left_in(cgroup: Path) -> int | None:
    """Return what a container may still take; None without a limit."""
    try:
        limit = int((cgroup / "memory.max").read_text(encoding="ascii"))
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
        lines = (cgroup / "memory.stat").read_text(encoding="ascii").splitlines()
        reclaimable = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return max(0, limit - used + reclaimable)
    except (OSError, ValueError):  # "max" is no number
        return None


def give_back() -> None:
    """Give freed memory back to the system, where glibc would keep it. Takes milliseconds; other threads run on."""
    if _TRIM:
        _TRIM(0)
