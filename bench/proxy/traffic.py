"""The scripted upstream and the load generator, both in fast C, and the CPU time of a proxy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

HERE = Path(__file__).parent
LOAD_CORE, PROXY_CORE = 0, 1
"""Upstream and load share a core, the proxy has another one to itself."""
START_LIMIT_S = 60.0


class CannotMeasure(RuntimeError):
    """Something is missing, or did not start; the message says what."""


def build(folder: Path) -> None:
    """Compile both programs. Raises CannotMeasure."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise CannotMeasure("a C compiler is needed: apt-get install gcc")
    for name in ("mock_backend", "loadgen"):
        subprocess.run([compiler, "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=True)


def pinned(command: list[str], core: int) -> list[str]:
    return ["taskset", "-c", str(core), *command]


@contextmanager
def upstream(folder: Path, port: int) -> Iterator[str]:
    """Run the scripted upstream and yield its URL."""
    process = subprocess.Popen(
        pinned([str(folder / "mock_backend"), str(port)], LOAD_CORE), stdout=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/stats", process)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes] | None) -> None:
    """Wait until a URL answers, with any status. Raises CannotMeasure."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise CannotMeasure(f"nothing answered at {url}")


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of traffic."""

    name: str
    options: tuple[str, ...]
    chunks: int = 0
    """Streamed chunks a request; then the cost is counted per chunk."""
    paced: bool = False
    """Whether requests come at a rate, however fast the answers are: then it is latency that counts."""


LOADS = (
    Load("2 KB, 16 at once", ("conns=16",)),
    Load("2 KB, 64 at once", ("conns=64",)),
    Load("32 KB, 16 at once", ("conns=16", "size=32768")),
    Load("streams of 64, 16 at once", ("conns=16", "stream=1", "chunks=64", "delay=5"), chunks=64),
    Load("2 KB, 100 a second", ("conns=64", "rate=100"), paced=True),
    Load(
        "streams of 16, 20 a second", ("conns=64", "rate=20", "stream=1", "chunks=16", "delay=5"), paced=True
    ),
)


def load(folder: Path, port: int, seconds: float, options: tuple[str, ...]) -> dict[str, Any]:
    """Send requests for some time and return what came of them: counts, latencies in µs. Raises CannotMeasure."""
    command = [str(folder / "loadgen"), str(port), f"dur={seconds:g}", *options]
    ran = subprocess.run(
        pinned(command, LOAD_CORE), check=True, capture_output=True, text=True, timeout=seconds + 60
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    if not found["ok"] or found["bad"] or found["errs"]:
        raise CannotMeasure(f"requests failed: {found}")
    return found


class Used(NamedTuple):
    """CPU seconds, user and system."""

    whole: float
    """Of a process and all below it."""
    first_thread: float
    """Of the process's first thread: in burnish the event loop; nearly all else there is the log."""


def used(pid: int) -> Used:
    whole = 0.0
    for process in ((first := psutil.Process(pid)), *first.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        whole += times.user + times.system
    main = next(thread for thread in first.threads() if thread.id == pid)
    return Used(whole, main.user_time + main.system_time)


def settled(pid: int) -> Used:
    """Return the seconds used once there is nothing left to do: what is logged afterwards costs, too."""
    before = used(pid)
    while True:
        time.sleep(0.3)
        now = used(pid)
        if now.whole - before.whole < 0.3 * 0.02:
            return now
        before = now


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """Return an environment without the user's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    return kept | more
