"""Gives freed memory back to the system, where the C library would keep it: glibc."""

from __future__ import annotations

import ctypes

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Takes milliseconds, and lets other threads run."""
    if _TRIM:
        _TRIM(0)
