"""Large captures are read in a child process within limits, and those that can't be read are kept as they came."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.proxy.log import Log
from burnish.proxy.log.capture import parsed, read
from burnish.proxy.log.writer import READ_LIMIT_S
from burnish.system.apart import LARGE_BYTES, WorkerExit, WorkerProcess
from tests.proxy.log.exchanges import answered, assistant, exchange, opened, rate, system, user
from tests.support.patience import within
from tests.support.upstream import events

LONG = "word " * (LARGE_BYTES // 4)


@pytest.fixture(scope="module")
def apart() -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(within(READ_LIMIT_S))) as child:
        yield child


def streamed(times: int) -> dict[str, Any]:
    """A long answer: the same word again and again."""
    begin, word, *_, end = events("many words")
    return {"chunks": (begin, word * times, end), "content_type": "text/event-stream"}


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [system(LONG), user("hi")]},
        {"reply": LONG},
        {"chunks": (gzip.compress(answered(assistant(LONG))),), "content_encoding": "gzip"},
        {"chunks": (gzip.compress(answered(assistant("short"))),), "content_encoding": "gzip"},
        {"chunks": (b"no gzip",), "content_encoding": "gzip"},
    ],
    ids=["request", "answer", "packed", "short", "damaged"],
)
def test_what_is_read_in_the_child_is_what_is_read_here(apart: WorkerProcess, changes: dict):
    made = exchange(**({"messages": [user("hi")]} | changes))
    assert read(made, apart, lambda: None) == parsed(made)


def test_an_answer_that_takes_too_long_keeps_its_request_and_its_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("burnish.system.apart.WALL_PER_CPU", 600)
    made = exchange([user("hi")], **streamed(150_000))
    with closing(WorkerProcess(cpu_limit_s=0.15)) as hurried:
        found = read(made, hurried, lambda: None)
    assert [step.role for step in found.context] == ["user"]
    assert (found.reply, found.raw) == (None, True)
    assert found.completion.ended.error == "the answer was not read: it took too long"
    assert found.completion.wire.chunks == made.wire.chunks


async def test_an_answer_that_no_model_gives_delays_no_rating_and_is_found(log: Log):
    call = {"function": {"name": "f", "arguments": "{}"}}
    calls = [orjson.dumps({"index": at, "id": f"c{at}", **call}) for at in range(50_000)]
    stream = tuple(b'data: {"choices": [{"delta": {"tool_calls": [%b]}}]}\n\n' % call for call in calls)
    log.capture(hostile := exchange([user("hi")], chunks=stream, content_type="text/event-stream"))
    log.capture(made := exchange([user("hello")]))
    assert (await log.completion(made.id)).reply == assistant("Hello!")
    kept = await log.completion(hostile.id)
    assert (kept.messages, kept.reply) == ((user("hi"),), None)
    assert kept.ended.error == "more than 2048 tool calls in one answer"
    assert log.healthy() is None


async def test_a_rating_does_not_wait_for_the_reading_of_a_large_answer(log: Log, tmp_path: Path):
    log.capture(made := exchange([user("hello")]))
    await log.completion(made.id)
    reader = await log._writer._apart.ask(os.getpid)
    os.kill(reader, signal.SIGSTOP)
    try:
        log.capture(large := exchange([user("hi")], **streamed(100_000)))
        log.capture(later := exchange([user("and now?")]))
        for each in (made, later):
            await rate(log, each.id)
            assert (await log.completion(each.id)).rating == 1.0
        assert log.backlog().entries == 2, "the large one isn't stored yet, and another one waits behind it"
    finally:
        os.kill(reader, signal.SIGCONT)
    assert (await rate(log, large.id)).draft.completion_id == large.id
    assert log.backlog().entries == 0
    assert (await log.completion(large.id)).reply == assistant("many" * 100_000)


async def test_the_next_start_reads_what_a_stop_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("burnish.proxy.log.writer.CLOSE_LIMIT_S", 0.0)
    made = exchange([user("hi")], **streamed(100_000))
    async with opened(tmp_path) as log:
        log.capture(made)
        while log.backlog().entries and not log._writer._queue.busy:
            await asyncio.sleep(0)
    async with opened(tmp_path) as log:
        assert (await log.completion(made.id)).reply == assistant("many" * 100_000)


def test_a_child_that_is_killed_is_replaced_and_the_call_is_made_again(apart: WorkerProcess):
    os.kill(apart.submit(os.getpid).result(), signal.SIGKILL)
    assert apart.submit(len, b"body").result() == 4
    with pytest.raises(WorkerExit):
        apart.submit(os._exit, 1).result()
    with pytest.raises(ZeroDivisionError):
        apart.submit(divmod, 1, 0).result()
    assert apart.submit(len, b"body").result() == 4


def test_closing_ends_a_call_that_is_under_way():
    child = WorkerProcess(READ_LIMIT_S)
    assert child.submit(len, b"body").result() == 4
    call = child.submit(signal.pause)
    while not call.running():
        pass
    child.close()
    with pytest.raises(WorkerExit):
        call.result()


def test_a_child_gets_no_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    with closing(WorkerProcess(READ_LIMIT_S)) as child:
        assert child.submit(os.getenv, "OPENAI_API_KEY").result() is None
