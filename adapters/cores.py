"""The cores that this process may use: a container or ``taskset`` may leave it fewer than the machine has."""

from __future__ import annotations

import os


def cores() -> int:
    """Return how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
