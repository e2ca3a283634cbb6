"""The scripted upstream and the load generator, both in fast C, an agent, and the CPU time of a proxy.

No two texts are the same: their words are drawn from this repository's documentation, so a word is as frequent as
there. A log, and its search, pay for texts that they have not seen yet.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

HERE = Path(__file__).parent
WORDS = "words.txt"
LOAD_CORE, PROXY_CORE = 0, 1
"""Upstream and load share a core, the proxy has another one to itself."""
START_LIMIT_S = 60.0
QUIET_S, QUIET_SHARE = 0.5, 0.02
"""A proxy has nothing left to do if it uses less than this share of a core for so long."""


class CannotMeasure(RuntimeError):
    """Something is missing, or did not start; the message says what."""


def build(folder: Path) -> None:
    """Compile both programs and write the words. Raises CannotMeasure."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise CannotMeasure("a C compiler is needed: apt-get install gcc")
    for name in ("mock_backend", "loadgen"):
        subprocess.run([compiler, "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=True)
    root = HERE.parents[1]
    prose = " ".join(file.read_text() for file in sorted((*root.glob("*.md"), *root.glob("docs/*.md"))))
    words = re.findall(r"[^\W\d_]+(?:'\w+)?[.,;:?!]?", prose)
    (folder / WORDS).write_text("\n".join(json.dumps(word)[1:-1] for word in words))


def pinned(command: list[str], core: int) -> list[str]:
    return ["taskset", "-c", str(core), *command]


@contextmanager
def upstream(folder: Path, port: int) -> Iterator[str]:
    """Run the scripted upstream and yield its URL."""
    command = [str(folder / "mock_backend"), str(port), str(folder / WORDS)]
    process = subprocess.Popen(pinned(command, LOAD_CORE), stdout=subprocess.DEVNULL)
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
    options: tuple[str, ...] = ()
    """Of the load generator."""
    chunks: int = 0
    """Streamed chunks a request; then the cost is counted per chunk."""
    latency: bool = False
    """Whether it counts, too: requests come at a rate, however fast the answers are, and there are enough of them."""
    turns: int = 0
    """Turns of an agent's conversation, which is sent instead."""


LOADS = (
    Load("2 KB, 16 at once", ("conns=16",)),
    Load("2 KB, 64 at once", ("conns=64",)),
    Load("32 KB, 16 at once", ("conns=16", "size=32768")),
    Load("2 KB, 20 a second", ("conns=64", "rate=20")),
    Load("2 KB, 100 a second", ("conns=64", "rate=100"), latency=True),
    Load("agent, a turn of 100", turns=100),
    Load("streams of 64, 16 at once", ("conns=16", "stream=1", "chunks=64", "delay=5"), chunks=64),
    Load(
        "streams of 16, 20 a second",
        ("conns=64", "rate=20", "stream=1", "chunks=16", "delay=5"),
        chunks=16,
        latency=True,
    ),
)


def load(folder: Path, port: int, seconds: float, options: tuple[str, ...], seed: int = 0) -> dict[str, Any]:
    """Send requests for some time; return counts, and latencies in µs. Raises CannotMeasure.

    Equal seeds give equal texts; 0 gives new ones.
    """
    command = [str(folder / "loadgen"), str(port), f"words={folder / WORDS}", f"draw={seed}"]
    ran = subprocess.run(
        pinned([*command, f"dur={seconds:g}", *options], LOAD_CORE),
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )
    result: dict[str, Any] = json.loads(ran.stdout)
    if not result["ok"] or result["bad"] or result["errs"]:
        raise CannotMeasure(f"requests failed: {result}")
    return result


def converse(folder: Path, port: int, turns: int, options: tuple[str, ...], seed: int) -> None:
    """Send an agent's conversation: each turn has all earlier calls and results. Raises CannotMeasure."""
    chance, words = random.Random(seed), (folder / WORDS).read_text().split("\n")

    def text(length: int) -> str:
        return " ".join(chance.choices(words, k=length))

    given = dict(option.split("=", 1) for option in options)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-test"}
    headers |= dict(line.split(": ", 1) for line in given.get("header", "").splitlines())
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    function = {"name": "search", "description": text(40), "parameters": parameters}
    messages = [{"role": "system", "content": text(200)}, {"role": "user", "content": text(40)}]
    body = {
        "model": given.get("model", "mock"),
        "messages": messages,
        "tools": [{"type": "function", "function": function}],
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(turns):
        connection.request("POST", given.get("path", "/v1/chat/completions"), json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise CannotMeasure(f"a turn failed: {response.status} {answer[:300]!r}")
        message = json.loads(answer)["choices"][0]["message"]
        call = message["tool_calls"][0]["id"]
        messages += [message, {"role": "tool", "tool_call_id": call, "content": text(150)}]
    connection.close()


class Used(NamedTuple):
    """CPU seconds, user and system."""

    whole: float
    """Of a process and all below it."""
    first_thread: float
    """Of the process's first thread: in burnish the event loop; nearly all else there is the log."""


def used(pid: int) -> Used:
    """Read the kernel's clocks: a tick of psutil's, 10 ms, is the cost of ten requests."""
    first = psutil.Process(pid)
    whole = 0.0
    for process in (first, *first.children(recursive=True)):
        with suppress(OSError):  # it has ended
            whole += time.clock_gettime(~process.pid << 3 | 2)  # clock_getcpuclockid(3)
    return Used(whole, int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9)


def settled(pid: int) -> Used:
    """Return the seconds used once there is nothing left to do: what is logged afterwards costs, too.

    Work that begins only after ``QUIET_S`` of quiet isn't counted.
    """
    before = used(pid)
    while True:
        time.sleep(QUIET_S)
        now = used(pid)
        if now.whole - before.whole < QUIET_S * QUIET_SHARE:
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
