"""Which cores and threads this process uses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

_Arguments = TypeVarTuple("_Arguments")
_Output = TypeVar("_Output")

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="adapters")


def cores() -> int:
    """Return how many cores this process may use: a container or ``taskset`` may leave it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def in_one_thread(work: Callable[[*_Arguments], _Output], *args: *_Arguments) -> _Output:
    """Call ``work`` in the one thread for work that holds whole adapters in memory; calls wait for each other.

    The C library keeps memory for each thread that ever needed much (glibc's arenas). In the threads of
    ``asyncio.to_thread``, each of them would keep an adapter's size or two.
    """
    return await asyncio.wrap_future(_THREAD.submit(work, *args))
