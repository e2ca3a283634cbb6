"""Calls functions on large bodies in a child process.

There they don't hold this interpreter's lock, so other requests go on. They have a limit of time, and their memory
goes back when the child ends. A call costs copying its arguments and its result through pipes.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import IO, Any, NamedTuple, ParamSpec, TypeVar

from burnish.system.parent import for_child

Arguments = ParamSpec("Arguments")
Output = TypeVar("Output")

LARGE_BYTES = 1024 * 1024
"""Longer bodies are read in the child. Shorter ones take at most some 25 ms."""
CPU_AGAIN_S = 0.5
"""A function may catch what interrupts it; then it is interrupted again."""
WALL_PER_CPU = 6
"""A busy machine gives a call that part of the time; then the child is ended."""
IDLE_S = 30.0
"""The child ends after so long without a call. Another starts in a quarter of a second."""
GROWN_BYTES = 200 * 1024 * 1024
"""A child that took so much memory ends after its answer."""
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``."""


class OutOfTime(Exception):
    """The function took longer than the limit."""


class WorkerExit(Exception):
    """The child ended before it answered."""


class NotStarted(WorkerExit):
    """The child can't be started."""


class WorkerProcess:
    """One child process, which starts at the first call, and calls one function after the other."""

    def __init__(self, cpu_limit_s: float) -> None:
        """``cpu_limit_s``: CPU time of one call."""
        self._cpu_limit_s = cpu_limit_s
        self._thread = ThreadPoolExecutor(1, "burnish-apart")
        self._child: _Child | None = None
        self._closed = False

    def submit(
        self, function: Callable[Arguments, Output], *args: Arguments.args, **options: Arguments.kwargs
    ) -> Future[Output]:
        """Call a function of a module. The future fails with what it raises, and with OutOfTime or WorkerExit."""
        return self._thread.submit(self._run, _Call(function, args, options, self._cpu_limit_s))

    async def ask(
        self, function: Callable[Arguments, Output], *args: Arguments.args, **options: Arguments.kwargs
    ) -> Output:
        """Return its result. Raises what it raises, OutOfTime and WorkerExit."""
        return await asyncio.wrap_future(self.submit(function, *args, **options))

    def close(self) -> None:
        """End the child. A call under way raises WorkerExit."""
        self._closed = True
        if child := self._child:
            child.kill()
        self._thread.shutdown(cancel_futures=True)
        self._end()

    def _run(self, call: _Call) -> Any:
        output, error = self._ask(call)
        if error is not None:
            raise error
        return output

    def _ask(self, call: _Call) -> tuple[Any, Exception | None]:
        if self._child:
            with suppress(BrokenPipeError, EOFError):  # it ended after its last answer
                return self._answer(self._child, call)
        if self._closed:
            raise WorkerExit("burnish is stopping")
        try:
            self._child = _Child()
        except OSError as error:
            raise NotStarted(f"the process that reads it can't be started: {error}") from error
        try:
            return self._answer(self._child, call)
        except (BrokenPipeError, EOFError) as error:
            raise WorkerExit("the process that reads it ended") from error

    def _answer(self, child: _Child, call: _Call) -> tuple[Any, Exception | None]:
        """Raises OutOfTime, BrokenPipeError, EOFError; the child has ended then."""
        try:
            return child.answer(call)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._child:
            self._child.end()
            self._child = None


class _Call(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    cpu_limit_s: float


class _Child:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "burnish.system.apart"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",  # no module in the working directory of burnish may be imported
            env=for_child(),
        )
        assert self._process.stdin
        assert self._process.stdout
        self._calls: IO[bytes] = self._process.stdin
        self._answers = self._process.stdout

    def answer(self, call: _Call) -> tuple[Any, Exception | None]:
        """Return what the function returned and raised. Raises OutOfTime, BrokenPipeError, EOFError."""
        _write(call, self._calls)
        limited = _TimedPipe(self._answers.fileno(), time.monotonic() + WALL_PER_CPU * call.cpu_limit_s)
        answer: tuple[Any, Exception | None] = pickle.load(io.BufferedReader(limited))  # noqa: S301  (our own child)
        return answer

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self._calls.close()
        self._answers.close()
        self._process.wait()


class _TimedPipe(io.RawIOBase):
    """Reads a pipe until a time on the monotonic clock. Raises OutOfTime."""

    def __init__(self, descriptor: int, until: float) -> None:
        self._descriptor = descriptor
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not _readable(self._descriptor, max(0.0, self._until - time.monotonic())):
            raise OutOfTime("it took too long")
        return os.readv(self._descriptor, [buffer])


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()  # select() itself takes no descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _write(message: object, pipe: IO[bytes]) -> None:
    """Large bytes are written without a copy. Raises BrokenPipeError."""
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve() -> None:
    """Answer calls until stdin closes, or none came for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for burnish, which ends this process
    signal.signal(signal.SIGPROF, _interrupt)
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    with suppress(EOFError, BrokenPipeError):
        at_first = _most_memory()  # on Linux the parent's, if that is more
        while _most_memory() - at_first < GROWN_BYTES and _readable(calls.fileno(), IDLE_S):
            _write(_answer(calls), answers)


def _answer(calls: IO[bytes]) -> tuple[Any, Exception | None]:
    call: _Call = pickle.load(calls)  # noqa: S301  (burnish itself wrote it)
    try:
        signal.setitimer(signal.ITIMER_PROF, call.cpu_limit_s, CPU_AGAIN_S)
        try:
            return call.function(*call.args, **call.options), None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except Exception as error:  # noqa: BLE001  (whatever a hostile body raises belongs to the caller)
        return None, error


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise OutOfTime("it took too long")


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES


if __name__ == "__main__":
    # What is raised must be of the module that burnish imports.
    from burnish.system.apart import serve as serve_calls

    serve_calls()
