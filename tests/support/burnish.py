"""A real burnish in a process of its own, for tests and benches that need the whole program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from tests.support.patience import within

# The small model boots in about a second; a busy machine with two cores takes its time.
BOOT_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0
UP = (httpx.codes.OK, httpx.codes.UNAUTHORIZED)
"""What it answers once it runs: the second where it wants a key."""

Started = TypeVar("Started")

BUSY = {"BURNISH_TRAIN__MAX_LOAD": "1", "BURNISH_TRAIN__MEMORY_GB": "0", "BURNISH_TRAIN__ON_BATTERY": "true"}
"""The machine also runs other tests, and may be a laptop; no test waits for it to be idle."""


@dataclass
class Burnish:
    url: str
    process: subprocess.Popen[bytes]
    data_dir: Path
    log_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(within(STOP_LIMIT_S))

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(within(STOP_LIMIT_S))


class DidNotStart(RuntimeError):
    """burnish ended, or never answered, while it was starting."""


HERE = (sys.executable, "-m", "burnish")
"""The burnish of this checkout."""


def start(
    data_dir: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    port: int = 0,
    program: Sequence[str] = HERE,
    boot_limit_s: float | None = None,
) -> Burnish:
    """Start ``burnish up`` on a free port and wait until it answers. Raises DidNotStart with its output."""
    data_dir.mkdir(parents=True, exist_ok=True)
    log_file = data_dir / "output.txt"
    found = data_dir / "server.json"
    found.unlink(missing_ok=True)
    command = [*program, "up", "--port", str(port), "--data-dir", str(data_dir)]
    with log_file.open("ab") as output:
        process = subprocess.Popen(
            [*command, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=data_dir,
            env={**os.environ, **BUSY, **(env or {})},
        )
    deadline = time.monotonic() + (within(BOOT_LIMIT_S) if boot_limit_s is None else boot_limit_s)
    while time.monotonic() < deadline and process.poll() is None:
        if found.exists() and (url := _answers(found)):
            return Burnish(url, process, data_dir, log_file)
        time.sleep(0.01)
    if process.poll() is None:
        process.kill()
    raise DidNotStart(f"exit code {process.wait()}:\n{log_file.read_text()}")


def _answers(found: Path) -> str | None:
    try:
        url = str(httpx.Response(200, content=found.read_bytes()).json()["url"])
        # Without certificates, which take longer to load than burnish to answer.
        answer = httpx.get(url + "/healthz", timeout=within(5), verify=False)
        return url if answer.status_code in UP else None
    except (httpx.HTTPError, ValueError, KeyError, OSError):
        return None


@contextmanager
def running(
    data_dir: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = HERE,
    boot_limit_s: float | None = None,
) -> Iterator[Burnish]:
    """Start burnish and stop it at the end, however the block ends."""
    burnish = start(data_dir, *flags, env=env, program=program, boot_limit_s=boot_limit_s)
    try:
        yield burnish
    finally:
        if burnish.process.poll() is None:
            try:
                burnish.stop()
            except subprocess.TimeoutExpired:
                burnish.kill()


@asynccontextmanager
async def in_thread(program: AbstractContextManager[Started]) -> AsyncIterator[Started]:
    """Start and stop a program while the event loop goes on, e.g. for an upstream in it."""
    started = await asyncio.to_thread(program.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(program.__exit__, None, None, None)
