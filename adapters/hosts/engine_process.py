"""One child process of the embedded engine: start it, watch it, stop it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from burnish.adapters import errors
from burnish.adapters.hosts.embedded_child import Settings

# An adapter's child is up in about a second; a big model on a slow disk takes a while, but not minutes.
START_TIMEOUT_S = 120.0
# How much of the child's log goes into an error message.
LOG_TAIL_LINES = 5
LOG_TAIL_BYTES = 4096
# Checked when a child starts; a longer log helps nobody.
LOG_LIMIT_BYTES = 1024 * 1024


class EngineProcess:
    """A running child and its URL."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, settings: Settings, log: Path) -> EngineProcess:
        """Start a child and wait until it serves.

        Raises EngineError with the child's last log lines, CorruptAdapter, IncompatibleAdapter. On an error,
        and when the caller is cancelled, no process is left behind.
        """
        with _open_log(log) as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "burnish.adapters.hosts.embedded_child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        child = cls(process, "")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                child.url = await child._introduce(settings, log)
        except TimeoutError as error:
            await child.stop()
            raise errors.EngineError(
                f"the engine did not start within {START_TIMEOUT_S:g} s; the machine may be out of memory. "
                f"{_tail(log)}"
            ) from error
        except BaseException:
            await child.stop()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Ask the system whether the process runs, since asyncio learns of its end a little later."""
        if self._process.returncode is not None:
            return False
        try:
            # WNOWAIT leaves the exit status for asyncio.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    async def stop(self) -> None:
        """Kill the child: it has nothing to save."""
        if self.alive:
            self._process.kill()
        await self._process.communicate()  # also closes its pipes

    async def _introduce(self, settings: Settings, log: Path) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asdict(settings)).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            pass  # it died before it read the line; its output ends, see below
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise errors.EngineError(f"the engine died while it started ({_meaning(status)}). {_tail(log)}")
        result = json.loads(line)
        if "url" in result:
            return str(result["url"])
        kind = getattr(errors, result["error"])
        if kind is errors.EngineError:
            raise kind(f"{result['message']}. {_tail(log)}")
        raise kind(result["message"])


def _meaning(status: int) -> str:
    if status == -signal.SIGKILL:
        return "killed, most likely because memory ran out: close other programs, or use a smaller model"
    return f"signal {-status}" if status < 0 else f"status {status}"


def _open_log(path: Path) -> BinaryIO:
    """Open a child's log for appending, mode 0600; empty it first if it has grown too long."""
    too_long = path.exists() and path.stat().st_size > LOG_LIMIT_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if too_long else 0)
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def _tail(path: Path) -> str:
    """Return a sentence with the last lines of a child's log."""
    try:
        lines = path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    last = " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:] if line.strip())
    return f"Its log {path} ends with: {last}" if last else f"Its log {path} is empty"
