"""How a child process ends with its parent. Imports little: each start of an engine pays for it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable


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
