"""One case, measured: a burnish of its own, quiet, attacked, settled, stopped and started again."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from bench.hostile.cases import Case
from bench.hostile.clients import Send
from bench.hostile.crowd import MODEL, seen
from bench.hostile.upstream import HOSTILE, model_of
from bench.hostile.verdict import Figures, others
from tests.support.burnish import Burnish, DidNotStart, start

WARM_S = 1.0
LOOKED_EVERY_S = 0.02
CHILDREN_EVERY = 10
"""Looks; to find them costs more."""
STORED_EVERY_S = 0.1
AT_REST_S = 1.0
"""Of which memory before and after is the median."""
KILLED_AFTER_S = 20.0
FIRST_RATING_S = 10.0
MARK_CHARACTERS = 60
MARKS = """SELECT outcome, status, error, 'raw' FROM completion JOIN raw ON completion = completion.id
    WHERE model_asked LIKE ?1
UNION ALL SELECT outcome, status, error, '' FROM completion
    WHERE model_asked LIKE ?1 AND id NOT IN (SELECT completion FROM raw)
UNION ALL SELECT 'passthrough', status, error, outcome FROM passthrough"""
QUIET = f"SELECT id FROM completion WHERE model_asked = '{MODEL}' LIMIT 1"


@dataclass(frozen=True, slots=True)
class Times:
    share: float = 1.0
    """Of the full size of everything hostile."""
    quiet_s: float = 5.0
    """Also the least time that ordinary clients are watched under attack."""
    limit_s: float = 60.0
    """For the hostile exchange, up to its record in the log."""
    settle_s: float = 5.0


@dataclass
class Memory:
    """Resident bytes of a process and of its children over time."""

    process: psutil.Process
    own: list[tuple[float, int]] = field(default_factory=list)
    children_bytes: int = 0
    children: dict[str, None] = field(default_factory=dict)

    async def look(self) -> None:
        """Take samples until the process is gone."""
        with suppress(psutil.NoSuchProcess):
            for number in itertools.count():
                self.own.append((time.monotonic(), self.process.memory_info().rss))
                if number % CHILDREN_EVERY == 0:
                    self._look_at_children()
                await asyncio.sleep(LOOKED_EVERY_S)

    def _look_at_children(self) -> None:
        size = 0
        for child in self.process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                size += child.memory_info().rss
                self.children[" ".join(child.cmdline()[:4])] = None
        self.children_bytes = max(self.children_bytes, size)

    def between(self, began: float, ended: float) -> list[int]:
        return [size for at, size in self.own if began <= at <= ended] or [0]


class Phases(NamedTuple):
    """When each part began, on the monotonic clock, and what came of the hostile exchange."""

    quiet: float
    attacked: float
    stored: float
    settling: float
    ended: float
    statuses: tuple[int, ...]
    finished: bool
    logged: bool


async def measured(case: Case, times: Times, folder: Path) -> Figures:
    """Measure a case in an empty folder. Raises DidNotStart."""
    model = model_of(case.answer, times.share)
    send = await asyncio.to_thread(case.prepare, model, times.share)
    (folder / "config.toml").touch()
    settings = {"BURNISH_ENGINE": "none", "BURNISH_CONFIG": str(folder / "config.toml")}
    data, output = folder / "data", folder / "crowd.txt"
    with _upstream(model) as upstream:
        up = partial(start, data, "--upstream", upstream, env=settings)
        with _running(await asyncio.to_thread(up)) as burnish:
            memory = Memory(psutil.Process(burnish.pid))
            looking = asyncio.ensure_future(memory.look())
            with _crowd(burnish, output):
                phases = await _phases(case, send, burnish, times)
            looking.cancel()
            stopped_s = await asyncio.to_thread(_stopped, burnish)
        restarted_s, rated_s = await asyncio.to_thread(_restarted, up, data)
    exchanges = [seen(line) for line in output.read_text().splitlines()]
    marks = _marks(data)
    return Figures(
        case=case.name,
        took_s=phases.stored - phases.attacked,
        finished=phases.finished,
        statuses=phases.statuses,
        allowed=case.allowed.issuperset(phases.statuses),
        before_bytes=statistics.median(memory.between(phases.attacked - AT_REST_S, phases.attacked)),
        peak_bytes=max(memory.between(phases.attacked, phases.ended)),
        after_bytes=statistics.median(memory.between(phases.ended - AT_REST_S, phases.ended)),
        children_bytes=memory.children_bytes,
        children=tuple(memory.children),
        quiet=others(exchanges, phases.quiet, phases.attacked),
        attacked=others(exchanges, phases.attacked, phases.settling),
        settled=others(exchanges, phases.settling, phases.ended),
        marked="; ".join(marks),
        logged=phases.logged and (bool(marks) or not case.logged),
        stopped_s=stopped_s,
        restarted_s=restarted_s,
        rated_s=rated_s,
    )


async def _phases(case: Case, send: Send, burnish: Burnish, times: Times) -> Phases:
    await asyncio.sleep(WARM_S)
    quiet = time.monotonic()
    await asyncio.sleep(times.quiet_s)
    attacked, statuses, finished = time.monotonic(), set[int](), False
    with suppress(TimeoutError):
        async with asyncio.timeout(times.limit_s):
            statuses, finished = set(await send(burnish.url)), True
    while not (logged := not case.logged or bool(_marks(burnish.data_dir))):
        if time.monotonic() > attacked + times.limit_s:
            break
        await asyncio.sleep(STORED_EVERY_S)
    stored = time.monotonic()
    await asyncio.sleep(attacked + times.quiet_s - stored)
    settling = time.monotonic()
    await asyncio.sleep(times.settle_s)
    return Phases(
        quiet, attacked, stored, settling, time.monotonic(), tuple(sorted(statuses)), finished, logged
    )


def _marks(data: Path) -> list[str]:
    """Return how the hostile exchanges are marked in the log: completions, and what was passed through."""
    with closing(sqlite3.connect(f"file:{data / 'burnish.db'}?mode=ro", uri=True, timeout=30)) as database:
        rows = database.execute(MARKS, (f"{HOSTILE}%",)).fetchall()
    return [" ".join(str(part)[:MARK_CHARACTERS] for part in row if part) for row in rows]


@contextmanager
def _upstream(model: str) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.hostile.upstream", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def _running(burnish: Burnish) -> Iterator[Burnish]:
    try:
        yield burnish
    finally:
        if burnish.process.poll() is None:
            burnish.kill()


@contextmanager
def _crowd(burnish: Burnish, output: Path) -> Iterator[None]:
    """Send ordinary clients; from here on they ask and rate."""
    command = [sys.executable, "-m", "bench.hostile.crowd", burnish.url, str(burnish.pid)]
    with output.open("wb") as file, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file) as process:
        while not output.stat().st_size and process.poll() is None:
            time.sleep(LOOKED_EVERY_S)
        yield


def _stopped(burnish: Burnish) -> float | None:
    """Send SIGTERM; return the seconds until it ended, None if it had to be killed."""
    began = time.monotonic()
    burnish.process.terminate()
    try:
        burnish.process.wait(KILLED_AFTER_S)
    except subprocess.TimeoutExpired:
        burnish.kill()
        return None
    return time.monotonic() - began


def _restarted(up: Callable[[], Burnish], data: Path) -> tuple[float | None, float | None]:
    """Start it again on the same log; return the seconds until it answers, and those of the first rating."""
    began = time.monotonic()
    try:
        burnish = up()
    except DidNotStart:
        return None, None
    with _running(burnish):
        restarted_s, began = time.monotonic() - began, time.monotonic()
        with closing(sqlite3.connect(data / "burnish.db")) as database:
            (name,) = database.execute(QUIET).fetchone()
        try:
            rating = {"completion_id": name, "rating": "bad"}
            answer = httpx.post(f"{burnish.url}/v1/feedback", json=rating, timeout=FIRST_RATING_S)
        except httpx.HTTPError:
            return restarted_s, None
        rated_s = time.monotonic() - began if answer.status_code == httpx.codes.CREATED else None
        _stopped(burnish)
    return restarted_s, rated_s
