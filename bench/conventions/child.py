"""Runs an answer's code and its assertions in this process, and writes ``held`` if all are true. The sandbox starts it.

Limits hold for CPU, memory and files. A network, other processes and writing outside the folder are refused. It guards
against the mistakes of a small model; somebody who wants to break out can.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_S = 2
MEMORY_BYTES = 512 * 2**20
FILE_BYTES = 2**20
OPEN_FILES = 32
CLONE_NEWNET = 0x40000000
VERDICT = b"held"

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = (
    "socket.", "subprocess.", "ctypes.", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill",
    "os.setxattr", "os.removexattr", "pty.", "resource.", "webbrowser.",
)  # fmt: skip
IN_FOLDER = frozenset(["os.truncate", "os.chdir"])
"""Events whose first argument is a path."""
BY_DESCRIPTOR = frozenset(
    [
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.rename",
        "os.link",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.utime",
    ]
)
"""Events that end with a folder's descriptor, −1 if there is none."""
MODULES = frozenset(["multiprocessing", "_posixsubprocess", "_ctypes"])


def limit() -> None:
    """Set this process's limits; a platform that doesn't know one goes without."""
    for name, most in (
        ("RLIMIT_CPU", CPU_S),
        ("RLIMIT_AS", MEMORY_BYTES),
        ("RLIMIT_FSIZE", FILE_BYTES),
        ("RLIMIT_NOFILE", OPEN_FILES),
        ("RLIMIT_NPROC", 0),
        ("RLIMIT_CORE", 0),
    ):
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))
    with suppress(AttributeError, OSError):  # Linux, and only if we may
        ctypes.CDLL(None).unshare(CLONE_NEWNET)


def guard(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that refuses what code for an exam never needs."""

    def is_inside(path: Any) -> bool:
        return isinstance(path, int) or os.path.realpath(os.fsdecode(path)).startswith(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(REFUSED) or (event == "import" and arguments[0] in MODULES):
            raise PermissionError(event)
        paths: tuple[Any, ...] = ()
        if (event == "open" and arguments[2] & WRITES) or event in IN_FOLDER:
            paths = arguments[:1]
        elif event in BY_DESCRIPTOR:
            if arguments[-1] != -1:
                raise PermissionError(event)
            paths = tuple(part for part in arguments if isinstance(part, str | bytes | os.PathLike))
        if not all(map(is_inside, paths)):
            raise PermissionError(f"{event}: outside the folder")

    return hook


def holds(code: str, function: str, assertions: list[str], path: Callable[[str], Any]) -> bool:
    """Run the code; return whether all assertions are true. If the function has another name, the only one counts."""
    space: dict[str, Any] = {"__name__": "answer"}
    with suppress(Exception, SystemExit):  # an example below the function may show an error
        exec(compile(code, "<answer>", "exec"), space)
    if function not in space:
        values = list(space.values())
        (space[function],) = [
            part for part in values if inspect.isfunction(part) and part.__module__ == "answer"
        ]
    space |= {
        "at": path,
        "write": lambda name, text: Path(name).write_text(text) and None,
        "read": lambda name: Path(name).read_text(),
        "names": lambda paths: sorted(os.path.basename(str(part)) for part in paths),
        "isdir": os.path.isdir,
        "exists": os.path.exists,
    }
    return all(bool(eval(assertion, space)) for assertion in assertions)


def main() -> None:
    task = json.load(sys.stdin)
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit()
    time.sleep = lambda _: None  # nobody waits
    sys.addaudithook(guard(os.path.realpath(os.getcwd())))
    path = Path if task["paths"] else str
    if holds(task["code"], task["function"], task["assertions"], path):
        os.write(channel, VERDICT)


if __name__ == "__main__":
    main()
