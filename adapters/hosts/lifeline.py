"""Runs a program for as long as its own stdin is open: ``python lifeline.py PROGRAM ARGUMENT …``.

burnish holds the other end of stdin, so the program ends with burnish, however that ends: also by kill -9. The program
gets a process group of its own, so that its helpers end with it. Ctrl-C in burnish's terminal doesn't reach it.

Writes a line of JSON to stdout at once: ``{"pid"}`` or ``{"error"}``. Ends as the program ends: with its status, or by
the same signal. The program's output goes to this process's stderr. It is run as a file, and imports nothing of
burnish, so it starts in milliseconds and stays small.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

# An engine frees its GPU and ends its helpers in a second or two; it has nothing to save.
GRACE_S = 5.0
# Of Linux's prctl.h.
PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Run a command to its end, or to that of stdin."""
    libc = ctypes.CDLL(None)
    # Linux kills the program if this process itself is killed.
    with_us = partial(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL) if sys.platform == "linux" else None
    try:
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            preexec_fn=with_us,  # noqa: PLW1509 (no thread runs yet)
        )
    except OSError as error:
        _write({"error": error.strerror or str(error)})
        return
    # After the start, because a program inherits signals that are ignored. The end of stdin is the only reason to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _write({"pid": program.pid})
    threading.Thread(target=_end_with_stdin, args=(program,), daemon=True).start()
    status = program.wait()
    _signal(program.pid, signal.SIGKILL)  # helpers that outlived it
    _end_as(status)


def _end_as(status: int) -> None:
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        with suppress(OSError):  # SIGKILL needs no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _end_with_stdin(program: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        continue
    _signal(program.pid, signal.SIGTERM)
    try:
        program.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(program.pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses when only zombies are left
        os.killpg(group, number)


def _write(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
