"""Several cells at once, each on cores of its own: a second burnish is worth more to a bench than a second thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from queue import SimpleQueue
from typing import TypeVar

from burnish.parts.desktop.demo.running import stop_all

# Each holds a model twice, where it is served and where it learns: more of them are too much for a laptop's memory.
AT_ONCE = 2
POLL_S = 1.0

Cell = TypeVar("Cell")
Record = TypeVar("Record")


def side_by_side(
    measured: Callable[[Cell], Record], cells: Iterable[Cell], settings: Mapping[str, str]
) -> Iterator[Record]:
    """Yield what is measured of each cell, as it is done.

    One after the other in an engine that serves somebody else as well (``settings``), and where a thread can't be kept
    to some cores (macOS). The first error, which is raised, or Ctrl-C, stops all.
    """
    shares = SimpleQueue[frozenset[int]]()
    count = 1 if "BURNISH_UPSTREAM" in settings else AT_ONCE
    for share in (split := _split(count)):
        shares.put(share)
    with ThreadPoolExecutor(len(split), initializer=lambda: _keep_to(shares.get())) as pool:
        pending = [pool.submit(measured, cell) for cell in cells]
        try:
            for done in as_completed(pending):
                yield done.result()
        except BaseException:
            _give_up(pending)
            raise


def _split(count: int) -> list[frozenset[int]]:
    """Split the cores of this process into equal parts; one empty part if they are unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return [frozenset()]
    cores = sorted(os.sched_getaffinity(0))
    parts = min(count, len(cores))
    return [
        frozenset(cores[place * len(cores) // parts : (place + 1) * len(cores) // parts])
        for place in range(parts)
    ]


def _keep_to(cores: frozenset[int]) -> None:
    """Keep this thread, and each process that it starts, to some cores."""
    if cores:
        os.sched_setaffinity(0, cores)


def _give_up(pending: list[Future[Record]]) -> None:
    for each in pending:
        each.cancel()
    # Who waits for a burnish notices that it is gone; who was about to start one comes round again.
    while wait(pending, timeout=POLL_S).not_done:
        stop_all()
