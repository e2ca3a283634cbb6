"""Faults of single rows, of the database and of the machine: nothing acknowledged is lost, nothing is pretended."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from burnish.proxy.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.queue import SPILL_BYTES
from burnish.proxy.log.writer import BATCH_ROWS
from burnish.proxy.records import FeedbackDraft
from tests.proxy.log.exchanges import capture, exchange, opened, user

DEEP = b'{"messages":[{"role":"user","content":' + b"[" * 600 + b"]" * 600 + b"}]}"


PREAMBLE = """
import asyncio, resource, sys, time
from pathlib import Path
from burnish.proxy.errors import Unavailable
from burnish.proxy.log import Log
from burnish.proxy.log.queue import QUEUE_LIMIT_BYTES
from burnish.proxy.records import FeedbackDraft
from tests.proxy.log.exchanges import capture, exchange, user
"""


def command(script: str, path: Path) -> list[str]:
    """Run a script, whose ``main`` is given a log, in another process."""
    run = "\nlog = Log.open(Path(sys.argv[1]))\nasyncio.run(main(log))\nlog.close()"
    return [sys.executable, "-c", PREAMBLE + textwrap.dedent(script) + run, str(path)]


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock the log as another program would, until the block ends or the connection rolls back."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
        if other.in_transaction:
            other.execute("ROLLBACK")


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
        feedback, created = await log.add_feedback(FeedbackDraft(bad, "completion_id", reward=1.0))
        assert created and feedback.draft.completion_id == bad
        (rated,) = await log.rated()
        assert rated.fault == "no_text", "counted, and not learnt from"
        assert log.healthy() is None
    connection = sqlite3.connect(tmp_path / "log" / "log.sqlite3")
    (kept,) = connection.execute("SELECT request FROM raw WHERE completion = ?", (bad,)).fetchone()
    connection.close()
    assert kept == body


async def test_the_same_id_twice_harms_no_other(tmp_path: Path):
    async with opened(tmp_path) as log:
        made = exchange([user("once")])
        log.capture(made)
        log.capture(made)
        after = capture(log, [user("after")])
        assert [each.id for each in await log.completions()] == [after, made.id]


async def test_four_threads_capture_at_once(tmp_path: Path):
    async with opened(tmp_path) as log:

        def work(name: int) -> None:
            for number in range(200):
                capture(log, [user(f"{name} {number}")], caller=str(name))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        assert (await log.counts())["completions"] == 800


async def test_a_waiter_that_gives_up_harms_no_other(tmp_path: Path):
    async with opened(tmp_path) as log:
        made = capture(log, [user("hi")])
        tasks = [
            asyncio.ensure_future(
                log.add_feedback(FeedbackDraft(made, "completion_id", reward=1.0, rater=str(n)))
            )
            for n in range(20)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raters = {each.draft.rater for each in await log.feedbacks()}
        assert raters >= {str(n) for n in range(1, 20, 2)}


async def test_a_locked_file_is_reported_and_caught_up_with(tmp_path: Path):
    async with opened(tmp_path) as log:
        first = capture(log, [user("first")])
        await log.counts()
        with locked(tmp_path / "log" / "log.sqlite3"):
            waiting = capture(log, [user("while locked")])
            with pytest.raises(Unavailable, match="locked"):
                await log.add_feedback(FeedbackDraft(first, "completion_id", reward=1.0))
            assert "locked" in (log.healthy() or "")
            with pytest.raises(Unavailable):
                await log.completion(waiting)
            assert (await log.completion(first)).rating is None
        assert (await log.completion(waiting)).prompt == "while locked"
        assert log.healthy() is None
        assert await log.feedbacks() == []


async def test_what_comes_while_the_file_is_locked_is_kept_in_order(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.counts()
        with locked(tmp_path / "log" / "log.sqlite3"):
            made = []
            for number in range(BATCH_ROWS + 50):
                made.append(capture(log, [user(str(number))]))
                if number % 100 == 0:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            segments = list((tmp_path / "log" / "log.sqlite3-spill").iterdir())
            assert segments
        found = [each.id for each in await log.completions(limit=1000)]
        while len(found) < len(made):
            await asyncio.sleep(0.05)
            found = [each.id for each in await log.completions(limit=1000)]
        assert not any(segment.exists() for segment in segments)
        assert log.healthy() is None
    connection = sqlite3.connect(tmp_path / "log" / "log.sqlite3")
    in_order = [name for (name,) in connection.execute("SELECT id FROM completion ORDER BY n")]
    connection.close()
    assert in_order == made


async def test_a_short_lock_is_waited_for_and_nobody_notices(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.counts()
        with locked(tmp_path / "log" / "log.sqlite3") as other:
            made = capture(log, [user("while locked")])
            threading.Timer(0.4, lambda: other.execute("ROLLBACK")).start()
            feedback, created = await log.add_feedback(FeedbackDraft(made, "completion_id", reward=1.0))
        assert created and feedback.draft.completion_id == made


async def test_closing_while_the_file_is_locked_keeps_captures_for_the_next_start(tmp_path: Path):
    with ExitStack() as unlocked:
        async with opened(tmp_path) as log:
            await log.counts()
            unlocked.enter_context(locked(tmp_path / "log" / "log.sqlite3"))
            made = [capture(log, [user(str(number))]) for number in range(3)]
    async with opened(tmp_path) as log:
        assert [each.id for each in await log.completions()] == made[::-1]


async def test_more_than_memory_should_hold_goes_into_files_while_the_writer_is_busy(tmp_path: Path):
    async with opened(tmp_path) as log:
        release = threading.Event()
        busy = asyncio.ensure_future(log._write(lambda _: release.wait(30)))
        await asyncio.sleep(0.1)
        body = exchange([user("x" * (SPILL_BYTES // 4))]).wire.request_body
        made = [capture(log, [], request_body=body) for _ in range(6)]
        folder = tmp_path / "log" / "log.sqlite3-spill"
        while not (folder.is_dir() and list(folder.iterdir())):
            await asyncio.sleep(0.02)
        release.set()
        assert await busy
        while len(found := await log.completions()) < 6:
            await asyncio.sleep(0.05)
        assert [each.id for each in found] == made[::-1]
        assert log.healthy() is None


BOTH_FULL = """
    async def main(log):
        await log.counts()
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
        body = exchange([user("x" * (QUEUE_LIMIT_BYTES // 4 - 8192))]).wire.request_body
        made = [capture(log, [], request_body=body) for _ in range(5)]
        print("health:", log.healthy())
        await asyncio.sleep(0.5)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        while len(found := await log.completions()) < 4:
            await asyncio.sleep(0.1)
        print("the newest was dropped:", [each.id for each in found] == made[3::-1])
        capture(log, [user("goes on")])
        print("stored:", (await log.counts())["completions"])
"""


def test_the_newest_are_dropped_and_counted_only_when_disk_and_memory_are_full(tmp_path: Path):
    lines = ran(BOTH_FULL, tmp_path / "log.sqlite3")
    assert "1 requests were not logged" in lines[0]
    assert lines[1:] == ["the newest was dropped: True", "stored: 5"]


def ran(script: str, path: Path) -> list[str]:
    """Run a script to its end and return what it printed."""
    done = subprocess.run(command(script, path), capture_output=True, text=True, timeout=60, check=False)
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
            await log.add_feedback(FeedbackDraft(first, "completion_id", reward=1.0))
        except Unavailable as error:
            print("refused:", error)
        print("health:", log.healthy())
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        await log.add_feedback(FeedbackDraft(made[-1], "completion_id", reward=1.0))
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
    async def rate(log, name):
        number = 0
        while True:
            made = capture(log, [user(f"{name} {number}")])
            feedback, _ = await log.add_feedback(FeedbackDraft(made, "completion_id", reward=1.0))
            sys.stdout.write(feedback.id + "\\n")
            sys.stdout.flush()
            number += 1

    async def main(log):
        await asyncio.gather(*(rate(log, name) for name in range(4)))
"""


def acknowledged_until_killed(path: Path, after_s: float) -> list[str]:
    """Rate in a loop in another process, kill -9 it, and return what it was told is stored."""
    process = subprocess.Popen(command(RATING_LOOP, path), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    first = process.stdout.readline()
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    lines = (first + process.stdout.read()).splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    return [line.strip() for line in lines if line.endswith("\n")]


async def test_kill_9_loses_no_acknowledged_rating(tmp_path: Path):
    path = tmp_path / "log.sqlite3"
    acknowledged: set[str] = set()
    for round_ in range(4):
        acknowledged |= set(acknowledged_until_killed(path, after_s=0.1 + 0.13 * round_))
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        log = Log.open(path)
        try:
            stored = {each.id: each for each in await log.feedbacks(limit=100_000)}
            rated = {each.completion.id for each in await log.rated()}
        finally:
            log.close()
        assert acknowledged <= set(stored)
        assert {each.draft.completion_id for each in stored.values()} == rated
    assert len(acknowledged) > 20


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


def captured_until_killed(path: Path, after_s: float) -> tuple[list[tuple[str, float]], float]:
    """Capture in another process while the file is locked, kill -9 it; returns what it took and when, and its end."""
    process = subprocess.Popen(
        command(CAPTURES_WHILE_LOCKED, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "open\n"
    with locked(path):
        process.stdin.write("\n")
        process.stdin.flush()
        threading.Timer(after_s, process.kill).start()
        lines = [line.split() for line in process.stdout if line.endswith("\n")]
        killed_at = time.monotonic()
        process.wait()
    process.stdin.close()
    process.stdout.close()
    return [(name, float(made_at)) for name, made_at in lines], killed_at


async def test_kill_9_while_the_file_is_locked_loses_only_the_window(tmp_path: Path):
    path = tmp_path / "log.sqlite3"
    lines, killed_at = captured_until_killed(path, after_s=1.0)
    # Two windows: SQLite's own patience with the lock, then that of the files; and some for a busy machine.
    promised = [name for name, made_at in lines if made_at < killed_at - 0.3]
    assert promised
    for _ in range(2):  # a second start finds nothing more
        log = Log.open(path)
        try:
            while log._writer.behind:
                await asyncio.sleep(0.02)
            stored = [each.id for each in await log.completions(limit=100_000)]
        finally:
            log.close()
        assert stored[::-1] == [name for name, _ in lines][: len(stored)], "each once, in order"
        assert set(promised) <= set(stored)


CAPTURES_WHILE_BUSY = """
    async def main(log):
        made = [capture(log, [user("in the batch that is being written")])]
        hanging = asyncio.ensure_future(log._write(lambda _: time.sleep(60)))
        for number in range(40):
            await asyncio.sleep(0.005)
            made.append(capture(log, [user(f"while it is being written {number}")]))
        await asyncio.sleep(0.5)
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
    path = tmp_path / "log" / "log.sqlite3"
    path.parent.mkdir()
    made: list[str] = []
    for _ in range(1 + earlier):
        made += captured_while_busy(path)
    for _ in range(2):  # a second start finds nothing more
        async with opened(tmp_path) as log:
            while log._writer.behind:
                await asyncio.sleep(0.02)
            stored = [each.id for each in await log.completions(limit=1000)]
        assert stored[::-1] == made, "each once, in order"
    assert list(path.with_name("log.sqlite3-spill").iterdir()) == []


async def test_copies_are_gone_when_all_is_stored(tmp_path: Path):
    folder = tmp_path / "log" / "log.sqlite3-spill"
    async with opened(tmp_path) as log:
        release = threading.Event()
        busy = asyncio.ensure_future(log._write(lambda _: release.wait(30)))
        await asyncio.sleep(0.1)
        made = []
        while not (folder.is_dir() and len(list(folder.iterdir())) >= 3):
            made.append(capture(log, [user(str(len(made)))]))
            await asyncio.sleep(0.005)
        release.set()
        assert await busy
        assert [each.id for each in await log.completions(limit=len(made) + 1)] == made[::-1]
        await log._write(lambda _: None)
        assert list(folder.iterdir()) == []


async def test_a_clock_that_was_set_back_keeps_the_order_of_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("burnish.proxy.ids._latest", 0)
    async with opened(tmp_path) as log:
        with monkeypatch.context() as ahead:
            ahead.setattr(time, "time_ns", lambda: 4_000_000_000_000_000_000)
            first = capture(log, [user("a")])
        await log.counts()
    monkeypatch.setattr("burnish.proxy.ids._latest", 0)  # as in a new process
    async with opened(tmp_path) as log:
        second = capture(log, [user("b")])
        assert [each.id for each in await log.completions()] == [second, first]
        assert first < second
