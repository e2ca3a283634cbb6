"""Faults of single rows, of the database and of the machine: nothing acknowledged is lost, nothing is pretended."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log, writer
from burnish.proxy.log.queue import SPILL_BYTES
from burnish.proxy.log.writer import BATCH_ROWS, PATIENCE_S
from tests.proxy.log.exchanges import (
    Arrivals,
    all_rated,
    busy_writer,
    capture,
    exchange,
    locked,
    opened,
    pass_on,
    rate,
    until,
    user,
)
from tests.support.patience import within

DEEP = b'{"messages":[{"role":"user","content":' + b"[" * 600 + b"]" * 600 + b"}]}"
PREAMBLE = """
import asyncio, resource, sys, time
from pathlib import Path
from burnish.proxy.http.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.queue import QUEUE_LIMIT_BYTES
from tests.proxy.log.exchanges import Arrivals, capture, exchange, rate, until, user

arrivals = Arrivals()
"""


def command(script: str, path: Path) -> list[str]:
    """Run a script, whose ``main`` is given a log, in another process."""
    run = "\nlog = Log.open(Path(sys.argv[1]), arrivals)\nasyncio.run(main(log))\nlog.close()"
    return [sys.executable, "-c", PREAMBLE + textwrap.dedent(script) + run, str(path)]


def log_path(tmp_path: Path) -> Path:
    """Return the path of the log that ``opened`` opens, in a folder that exists."""
    (tmp_path / "log").mkdir(exist_ok=True)
    return tmp_path / "log" / "log.sqlite3"


@pytest.mark.parametrize("body", [b"{broken", b"[]", b"null", b"\xff", b'{"messages": 5}', DEEP], ids=repr)
async def test_a_body_that_cannot_be_read_is_kept_raw_and_harms_no_other(tmp_path: Path, body: bytes):
    async with opened(tmp_path) as log:
        before = capture(log, [user("before")])
        bad = capture(log, [user("x")], request_body=body)
        after = capture(log, [user("after")])
        assert (await log.completion(before)).prompt == "before"
        assert (await log.completion(after)).prompt == "after"
        found = await log.completion(bad)
        assert (found.ended.error or "").startswith("burnish could not parse it")
        assert (await rate(log, bad)).draft.completion_id == bad
        (rated,) = await all_rated(log)
        assert rated.fault == "no_text", "counted, and not learnt from"
        assert log.healthy() is None
    with closing(sqlite3.connect(log_path(tmp_path))) as connection:
        (kept,) = connection.execute("SELECT request FROM raw WHERE completion = ?", (bad,)).fetchone()
    assert kept == body


async def test_the_same_id_twice_harms_no_other(log: Log):
    made = exchange([user("once")])
    log.capture(made)
    log.capture(made)
    after = capture(log, [user("after")])
    assert [each.id for each in await log.completions()] == [after, made.id]


async def test_four_threads_capture_at_once(log: Log):
    def work(name: int) -> None:
        for number in range(200):
            capture(log, [user(f"{name} {number}")], caller=str(name))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    assert (await log.counts())["completions"] == 800


async def test_a_waiter_that_gives_up_harms_no_other(log: Log):
    made = capture(log, [user("hi")])
    tasks = [asyncio.ensure_future(rate(log, made, rater=str(n))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raters = {each.draft.rater for each in await log.feedbacks()}
    assert raters >= {str(n) for n in range(1, 20, 2)}


async def test_a_locked_file_is_reported_and_caught_up_with(log: Log, tmp_path: Path):
    first = capture(log, [user("first")])
    await log.counts()
    with locked(tmp_path / "log" / "log.sqlite3"):
        waiting = capture(log, [user("while locked")])
        with pytest.raises(Unavailable, match="locked"):
            await rate(log, first)
        assert "locked" in (log.healthy() or "")
        with pytest.raises(Unavailable):
            await log.completion(waiting)
        assert (await log.completion(first)).rating is None
    assert (await log.completion(waiting)).prompt == "while locked"
    assert log.healthy() is None
    assert await log.feedbacks() == []


async def test_what_comes_while_the_file_is_locked_is_kept_in_order(tmp_path: Path):
    spilled = (tmp_path / "log").glob
    async with opened(tmp_path, arrivals := Arrivals()) as log:
        with locked(tmp_path / "log" / "log.sqlite3"):
            made = [capture(log, [user(str(number))]) for number in range(BATCH_ROWS // 2)]
            await until(lambda: list(spilled("*-spill/*")))
            made += [capture(log, [user(str(number))]) for number in range(BATCH_ROWS)]
        await arrivals.wait(len(made))
        await until(lambda: not list(spilled("*-spill/*")))
        assert log.healthy() is None
        assert [each.id for each in await log.completions(limit=1000)] == made[::-1]


async def test_nobody_notices_a_short_lock(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "PATIENCE_S", within(PATIENCE_S))
    await log.counts()
    with locked(tmp_path / "log" / "log.sqlite3") as other:
        made = capture(log, [user("while locked")])
        threading.Timer(0.4, lambda: other.execute("ROLLBACK")).start()
        assert (await rate(log, made)).draft.completion_id == made


async def test_closing_while_the_file_is_locked_keeps_captures_for_the_next_start(tmp_path: Path):
    with ExitStack() as unlocked:
        async with opened(tmp_path) as log:
            await log.counts()
            unlocked.enter_context(locked(tmp_path / "log" / "log.sqlite3"))
            made = [capture(log, [user(str(number))]) for number in range(3)]
    async with opened(tmp_path) as log:
        assert [each.id for each in await log.completions()] == made[::-1]


async def test_more_than_memory_should_hold_goes_into_files_while_the_writer_is_busy(tmp_path: Path):
    async with opened(tmp_path, arrivals := Arrivals()) as log:
        body = exchange([user("x" * (SPILL_BYTES // 4))]).wire.request_body
        async with busy_writer(log):
            made = [capture(log, [], request_body=body) for _ in range(6)]
            await until(lambda: list((tmp_path / "log").glob("*-spill/*")))
        await arrivals.wait(6)
        assert [each.id for each in await log.completions()] == made[::-1]
        assert log.healthy() is None


BOTH_FULL = """
    async def main(log):
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
        body = exchange([user("x" * (QUEUE_LIMIT_BYTES // 4 - 8192))]).wire.request_body
        made = [capture(log, [], request_body=body) for _ in range(5)]
        print("health:", log.healthy())
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        await arrivals.wait(4)
        print("the newest was dropped:", [each.id for each in await log.completions()] == made[3::-1])
        capture(log, [user("goes on")])
        print("stored:", (await log.counts())["completions"])
"""


def test_the_newest_are_dropped_and_counted_only_when_disk_and_memory_are_full(tmp_path: Path):
    lines = ran(BOTH_FULL, tmp_path / "log.sqlite3")
    assert "1 requests were not logged" in lines[0]
    assert lines[1:] == ["the newest was dropped: True", "stored: 5"]


def ran(script: str, path: Path) -> list[str]:
    run = command(script, path)
    done = subprocess.run(run, capture_output=True, text=True, timeout=within(60), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FULL_DISK = """
    async def main(log):
        first = capture(log, [user("first")])
        await log.counts()
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
        made = [capture(log, [user("x" * 50_000 + str(n))]) for n in range(20)]
        try:
            await rate(log, first)
        except Unavailable as error:
            print("refused:", error)
        print("health:", log.healthy())
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        await rate(log, made[-1])
        print("stored:", (await log.counts())["completions"], "ratings:", (await log.counts())["ratings"])
        print("health:", log.healthy())
"""


def test_a_full_disk_is_reported_and_caught_up_with(tmp_path: Path):
    """The process's own limit on file sizes makes every write fail, as a full disk does."""
    lines = ran(FULL_DISK, tmp_path / "log.sqlite3")
    assert len(lines) == 4
    assert lines[0].startswith("refused: nothing was stored: the log cannot be written")
    assert "cannot be written" in lines[1]
    assert lines[2] == "stored: 21 ratings: 1"
    assert lines[3] == "health: None"


RATING_LOOP = """
    async def work(log, name):
        number = 0
        while True:
            made = capture(log, [user(f"{name} {number}")])
            given = (await rate(log, made)).id
            print(given, flush=True)
            if number % 3 == 0:
                await log.undo_feedback(given)
                print(given, "undone", flush=True)
            number += 1

    async def main(log):
        await asyncio.gather(*(work(log, name) for name in range(4)))
"""


def acknowledged_until_killed(path: Path, count: int) -> list[str]:
    """Rate in a loop in another process, kill -9 it after so many answers, and return all that it acknowledged."""
    with subprocess.Popen(command(RATING_LOOP, path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout
    return [line.strip() for line in lines if line.endswith("\n")]


async def test_kill_9_loses_no_acknowledged_rating_and_no_undo(tmp_path: Path):
    path = log_path(tmp_path)
    acknowledged: set[str] = set()
    for round_ in range(4):
        acknowledged |= set(acknowledged_until_killed(path, 1 + 9 * round_))
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        async with opened(tmp_path) as log:
            stored = {each.id: each for each in await log.feedbacks(limit=100_000)}
            rated = {each.completion.id for each in await all_rated(log)}
        undone = {name for name, each in stored.items() if each.undone_at is not None}
        assert acknowledged <= stored.keys() | {f"{name} undone" for name in undone}
        assert {stored[name].draft.completion_id for name in stored.keys() - undone} == rated
    assert len(acknowledged) > 20 and undone


async def test_it_starts_while_the_file_is_locked(tmp_path: Path):
    async with opened(tmp_path) as log:
        before = capture(log, [user("before")])
    with locked(tmp_path / "log" / "log.sqlite3") as other:
        async with opened(tmp_path, arrivals := Arrivals()) as log:
            meanwhile = capture(log, [user("meanwhile")])
            other.execute("ROLLBACK")
            await arrivals.wait(1)
            assert [each.id for each in await log.completions()] == [meanwhile, before]


CAPTURES_WHILE_LOCKED = """
    async def main(log):
        print("open", flush=True)
        sys.stdin.readline()  # until it is locked
        for number in range(100_000):
            made = capture(log, [user(str(number))])
            sys.stdout.write(f"{made} {time.monotonic()}\\n")
            sys.stdout.flush()
            await asyncio.sleep(0.001)
"""


def captured_until_killed(path: Path, after_s: float) -> list[tuple[str, float]]:
    """Capture in another process while the file is locked, then kill -9 it; returns what it captured, and when."""
    script = command(CAPTURES_WHILE_LOCKED, path)
    captured: list[tuple[str, float]] = []
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "open\n"
        with locked(path):
            process.stdin.write("\n")
            process.stdin.flush()
            for name, made_at in (line.split() for line in process.stdout if line.endswith("\n")):
                captured.append((name, float(made_at)))
                if captured[-1][1] > captured[0][1] + after_s:
                    process.kill()
            process.wait()
    return captured


async def stored_after_kill(tmp_path: Path) -> list[str]:
    """Return what the next two starts find in the log, earliest first: the second finds nothing more."""

    async def stored() -> list[str]:
        async with opened(tmp_path) as log:
            await until(lambda: not log._writer.behind)
            return [each.id for each in await log.completions(limit=100_000)][::-1]

    names = await stored()
    assert await stored() == names
    return names


async def test_kill_9_while_the_file_is_locked_loses_only_the_window(tmp_path: Path):
    # Two windows: SQLite's own patience with the lock, then that of the files; and much for a busy machine.
    at_risk_s = within(1)
    captured = captured_until_killed(log_path(tmp_path), after_s=2 * at_risk_s)
    promised = [name for name, made_at in captured if made_at < captured[-1][1] - at_risk_s]
    stored = await stored_after_kill(tmp_path)
    assert stored == [name for name, _ in captured][: len(stored)], "each once, in order"
    assert promised and set(promised) <= set(stored)


CAPTURES_WHILE_BUSY = """
    async def main(log):
        made = [capture(log, [user("in the batch that is being written")])]
        hanging = asyncio.ensure_future(log._write(lambda _: time.sleep(60)))
        for number in range(40):
            await asyncio.sleep(0.005)
            made.append(capture(log, [user(f"while it is being written {number}")]))
        await until(lambda: list(Path(sys.argv[1]).parent.glob(f"*-spill/*{len(made)}.*")))  # the last one is copied
        print(*made, flush=True)
        await hanging
"""


def captured_while_busy(path: Path) -> list[str]:
    """Capture in another process while its writer hangs, kill -9 it; returns what it took."""
    with subprocess.Popen(command(CAPTURES_WHILE_BUSY, path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        made = process.stdout.readline().split()
        process.kill()
    return made


@pytest.mark.parametrize("earlier", [False, True], ids=["a new log", "copies of an earlier kill are there"])
async def test_kill_9_takes_nothing_that_waits_longer_than_the_window(tmp_path: Path, earlier: bool):
    path = log_path(tmp_path)
    made = [name for _ in range(1 + earlier) for name in captured_while_busy(path)]
    assert await stored_after_kill(tmp_path) == made, "each once, in order"
    assert list(path.with_name("log.sqlite3-spill").iterdir()) == []


@pytest.mark.parametrize("make", [lambda log: capture(log, [user("a")]), pass_on], ids=["capture", "pass_on"])
async def test_a_clock_that_was_set_back_keeps_the_order_of_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Log], str]
):
    monkeypatch.setattr("burnish.proxy.ids._latest", 0)
    async with opened(tmp_path) as log:
        with monkeypatch.context() as ahead:
            ahead.setattr(time, "time_ns", lambda: 4_000_000_000_000_000_000)
            first = make(log)
        await log.counts()
    monkeypatch.setattr("burnish.proxy.ids._latest", 0)  # as in a new process
    async with opened(tmp_path) as log:
        assert first.partition("_")[2] < capture(log, [user("b")]).partition("_")[2]
