"""A child process that ends with this one. It reads lines of JSON from stdin, and answers each by a line on stdout.

It ends when its stdin closes, so also if this process is killed.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from burnish.system.child_log import begin, meaning, open_log, tail, trim

LINE_BYTES = 16 * 1024**2
"""Of an answer: the scores of a thousand replies take kilobytes."""
TRIM_EVERY_S = 60.0


class ChildError(Exception):
    """A child ended or didn't answer. The message continues a sentence that begins with the child's name."""


class Child:
    def __init__(self, process: Process, log: Path | None, grace_s: float) -> None:
        assert process.stdin and process.stdout
        self._process = process
        self._log = log
        self._grace_s = grace_s
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._exchange = asyncio.Lock()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        log: Path | None = None,
        env: dict[str, str] | None = None,
        cwd: str | Path | None = "/",
        pass_fds: Sequence[int] = (),
        grace_s: float = 0.0,
    ) -> Child:
        """Start a program. If the caller is cancelled, no process is left. Raises OSError.

        ``log``: the file for its stderr; None: that of this process. ``env`` and ``cwd``: None: those of this process.
        In "/", it imports no modules of the working directory. ``grace_s``: how long it may take to end once its stdin
        is closed, before it is killed.
        """
        with open_log(log) if log else nullcontext() as stderr:
            if stderr:
                begin(stderr, command)
            starting = asyncio.ensure_future(asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=stderr, env=env, cwd=cwd, pass_fds=pass_fds, limit=LINE_BYTES
            ))  # fmt: skip
            try:
                return cls(await asyncio.shield(starting), log, grace_s)
            except asyncio.CancelledError:
                await cls(await starting, log, grace_s).end()  # it would be nobody's
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Ask the system whether the process runs, since asyncio learns of its end a little later."""
        if self._process.returncode is not None:
            return False
        import psutil  # commands that start nothing do without

        try:
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    async def ask(self, request: object = None, limit_s: float | None = None) -> dict[str, Any]:
        """Send a line (None: nothing); return the next line of output. Raises ChildError; no error leaves a process."""
        async with self._exchange:
            try:
                return await self._answer(request, limit_s)
            except BaseException:
                await self._stop()
                await self._process.communicate()  # closes its pipes
                raise

    async def wait(self) -> int:
        """Return the status with which it ends (negative: the signal). Until then, its log doesn't grow too long."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TRIM_EVERY_S):
                    return await self._process.wait()
            if self._log:
                trim(self._log)

    async def end(self) -> int:
        """End it, if it still runs; return its status. ``ask`` raises ChildError then."""
        status = await self._stop()
        async with self._exchange:
            await self._process.communicate()  # closes its pipes
        return status

    async def _stop(self) -> int:
        if self._grace_s:
            self._stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_s):
                    await self._process.wait()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        return await self._process.wait()

    async def _answer(self, request: object, limit_s: float | None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(limit_s):
                if request is not None:
                    # It may end before it reads the line (uvloop raises RuntimeError). Its output ends then, too.
                    with suppress(ConnectionError, RuntimeError):
                        self._stdin.write(json.dumps(request).encode() + b"\n")
                        await self._stdin.drain()
                if line := await self._stdout.readline():
                    return dict(json.loads(line))
                status = await self._process.wait()
        except TimeoutError as error:
            raise ChildError(
                f"didn't answer within {limit_s:g} s; the machine may be busy or out of memory{self._tail}"
            ) from error
        except (ValueError, TypeError) as error:
            raise ChildError(f"gave an answer that can't be read: {error}{self._tail}") from error
        raise ChildError(f"ended ({meaning(status)}){self._tail}")

    @property
    def _tail(self) -> str:
        return f". {tail(self._log)}" if self._log else ""
