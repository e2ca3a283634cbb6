"""What is made once a test run, although the run has several processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of this run, which whichever process needs it first has ``make`` fill. Not to be changed."""
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # each worker has a folder in that of the run
    folder, begun = place / name, place / f"{name}.partial"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(begun, ignore_errors=True)  # of a process that failed, or was killed
            make(begun)
            begun.rename(folder)
    return folder
