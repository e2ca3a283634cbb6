"""The program as a person uses it: a process of its own, its output and its exit code."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any
from unittest import mock

import httpx

from burnish.cli import main
from burnish.terminal import terminal
from tests.support.execute import execute
from tests.support.patience import within

NOBODY = "http://127.0.0.1:9"
"""Where no burnish is."""


def run(
    *arguments: str,
    url: str | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    limit_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    ours = {"NO_COLOR": "1", "COLUMNS": "200"} | ({"BURNISH_URL": url} if url else {})
    program = (sys.executable, "-m", "burnish", *arguments)
    return execute(*program, stdin=stdin, env=ours | dict(env or {}), limit_s=limit_s)


def call(
    *arguments: str, url: str | None = None, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command inside this process, which is much faster. Only one at a time."""
    ours = {"BURNISH_URL": url} if url else {}
    wide = (env or {}).get("COLUMNS", "200")
    terminal.console.width = int(wide)
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.dict(os.environ, {**ours, **(env or {}), "COLUMNS": wide}),
        mock.patch.object(sys, "argv", ["burnish", *arguments]),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


def said(*arguments: str, url: str) -> Any:
    """Run a command with --json that has to work; return what it prints, parsed."""
    done = call(*arguments, "--json", url=url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(url: str, text: str = "What is tea?") -> str:
    """Ask as an agent would; return the completion's id."""
    body = {"model": "default", "max_tokens": 6, "messages": [{"role": "user", "content": text}]}
    answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=within(60))
    return answer.headers["x-burnish-completion-id"]


@contextmanager
def on_terminal(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    rows: int = 24,
    columns: int = 80,
    program: Sequence[str] = (sys.executable, "-m", "burnish"),
) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Run a command on a terminal until the block is left."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | dict(env or {}),
    )
    os.close(theirs)
    try:
        yield Screen(ours), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C at a question until the program ends, as a person would; returns its exit code.

    Python misses a signal that comes just before it begins to wait for a line.
    """
    deadline = time.monotonic() + within(60)
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(within(1))  # a second Ctrl-C while it ends would cut that short
    return process.wait(within(1))


class Screen:
    """Our end of the terminal that a program talks to."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._unread = b""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str, limit_s: float | None = None) -> str:
        """Read until a text has appeared; return what came up to its end."""
        limit_s = within(60) if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        while (end := self._unread.find(text.encode())) < 0:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited {limit_s:.0f} s for {text!r}, got: {self._unread.decode(errors='replace')}"
            self._unread += os.read(self.descriptor, 4096)
        end += len(text.encode())
        seen, self._unread = self._unread[:end], self._unread[end:]
        return seen.decode(errors="replace")
