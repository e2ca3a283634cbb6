"""How long a test waits for what should happen: longer on a slow or busy machine.

A time limit ends a test that hangs. It says nothing about speed, so a slow machine must never be what it catches.
"""

from __future__ import annotations

import time
from functools import cache

ROUNDS = 10_000_000
REFERENCE_S = 0.25
"""What the fixed piece of work takes on a quiet, fast machine (an EPYC of 2025)."""
MOST = 30.0


@cache
def patience() -> float:
    """Return how many times as long as on the reference machine a fixed piece of work takes here: 1 to ``MOST``."""
    began = time.perf_counter()
    total = 0
    for number in range(ROUNDS):
        total += number & 7
    return min(max((time.perf_counter() - began) / REFERENCE_S, 1.0), MOST)


def within(seconds: float) -> float:
    """Return a time limit for this machine, given one for the reference machine."""
    return seconds * patience()
