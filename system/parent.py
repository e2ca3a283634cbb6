"""What a child process has of its parent: its environment, and its end. Imports little: each start pays for it."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable

INHERITED = re.compile(
    "(LD|DYLD|OMP|KMP|GOMP|GGML|CUDA|NVIDIA|HIP|HSA|ROCR|VK|LC)_.*|PYTHON[A-Z]+|LANG|HOME|PATH|TMPDIR|VIRTUAL_ENV"
)
"""Variables of libraries, threads, devices and folders."""


def for_child() -> dict[str, str]:
    """Return the environment of a child process: no variables that hold keys."""
    return {name: text for name, text in os.environ.items() if INHERITED.fullmatch(name)}


def end_with_parent(end: Callable[[], object]) -> None:
    """Call ``end`` in a thread when the parent closes stdin, or ends in whatever way.

    Not if stdin is a terminal, a file or /dev/null: those are nobody's pipe.
    """
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        threading.Thread(target=_wait, args=(end,), daemon=True).start()


def _wait(end: Callable[[], object]) -> None:
    while os.read(0, 4096):
        continue
    end()
