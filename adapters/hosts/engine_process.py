"""One engine child process: started, watched, stopped."""

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

# An adapter child is up in about a second, a big model on a slow disk takes a while; minutes: it hangs.
START_TIMEOUT_S = 120.0
# How much of the child's log goes into an error message.
LOG_TAIL_LINES = 5
LOG_TAIL_BYTES = 4096
# Looked at when a child starts: a longer log is of no use to anyone.
LOG_LIMIT_BYTES = 1024 * 1024


class EngineProcess:
    """A running child and where it answers."""

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
        """The child's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs; asked of the system, since asyncio hears of its end a little later."""
        if self._process.returncode is not None:
            return False
        try:
            # WNOWAIT: its exit status is asyncio's to collect.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    async def stop(self) -> None:
        """End the child. There is nothing to save, so it is not asked first."""
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
            pass  # it died before it read a word; the end of its output says so below
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise errors.EngineError(f"the engine died while it started ({_meaning(status)}). {_tail(log)}")
        said = json.loads(line)
        if "url" in said:
            return str(said["url"])
        kind = getattr(errors, said["error"])
        if kind is errors.EngineError:
            raise kind(f"{said['message']}. {_tail(log)}")
        raise kind(said["message"])


def _meaning(status: int) -> str:
    if status == -signal.SIGKILL:
        return "killed, most likely for want of memory: close something, or use a smaller model"
    return f"signal {-status}" if status < 0 else f"status {status}"


def _open_log(path: Path) -> BinaryIO:
    """Open a child's log for appending, mode 0600; one that has grown too long is begun anew."""
    too_long = path.exists() and path.stat().st_size > LOG_LIMIT_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if too_long else 0)
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def _tail(path: Path) -> str:
    """Return the last lines of a child's log, ready to end a message."""
    try:
        lines = path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    last = " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:] if line.strip())
    return f"Its log {path} ends with: {last}" if last else f"Its log {path} is empty"
