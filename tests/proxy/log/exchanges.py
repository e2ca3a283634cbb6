"""Exchanges as the relay hands them to the log."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

import orjson

from burnish.proxy.ids import completion_id, passthrough_id
from burnish.proxy.log import Log
from burnish.proxy.log.batch import Stored
from burnish.proxy.log.faults import Rules
from burnish.proxy.log.writer import ignore
from burnish.proxy.records import Completion, Feedback, FeedbackDraft, Passthrough, RatedCompletion
from tests.support.patience import within
from tests.support.records import PLAIN, changed

Message = dict[str, Any]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any) -> Message:
    return {"role": "assistant", "content": content}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


CALL: Message = assistant("") | {
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"path": "."}'}}]
}
"""An answer that calls a tool."""
RESULT: Message = {"role": "tool", "tool_call_id": "c", "content": "done"}


def answered(message: Message, *, response_id: str = "chatcmpl-1", finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return orjson.dumps({"id": response_id, "object": "chat.completion", "choices": [choice], "usage": usage})


def exchange(messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> Completion:
    """One request and its answer; ``params`` go into the request, everything else into the record."""
    message = assistant(reply) if isinstance(reply, str) else reply
    params = changes.pop("params", {})
    facts: dict[str, Any] = {
        "id": completion_id(),
        "created_at": time.time(),
        "request_body": orjson.dumps({"model": "smollm2", "messages": messages, **params}),
        "content_type": "application/json",
        "chunks": (answered(message, response_id=changes.pop("response_id", "chatcmpl-1")),),
    }
    return changed(PLAIN, **facts | changes)


def capture(log: Log, messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> str:
    made = exchange(messages, reply, **changes)
    log.capture(made)
    return made.id


async def rate(log: Log, completion_id: str, reward: float | None = 1.0, **more: Any) -> Feedback:
    draft = FeedbackDraft(completion_id, "completion_id", reward=reward, **more)
    return (await log.add_feedback(draft))[0]


async def all_rated(log: Log, **rules: Any) -> list[RatedCompletion]:
    """Return all that is rated, as ``Log.ratings`` has it, with its texts."""
    return await log.rated(await log.ratings(Rules(**rules)), list)


def pass_on(log: Log, path: str = "/v1/embeddings", **changes: Any) -> str:
    facts: dict[str, Any] = {
        "id": passthrough_id(), "created_at": time.time(), "method": "POST", "path": path, "model": "small",
        "upstream": "http://127.0.0.1:1", "status": 200, "outcome": "complete", "error": None, "caller": "local",
        "session": None, "request_bytes": 20, "response_bytes": 3000, "prompt_tokens": 4,
        "completion_tokens": None, "first_byte_s": 0.1, "total_s": 0.2,
    }  # fmt: skip
    made = Passthrough(**facts | changes)
    log.capture(made)
    return made.id


@asynccontextmanager
async def opened(tmp_path: Path, on_stored: Callable[[Stored], None] = ignore) -> AsyncIterator[Log]:
    log = Log.open(tmp_path / "log" / "log.sqlite3", on_stored)
    try:
        yield log
    finally:
        log.close()


@asynccontextmanager
async def busy_writer(log: Log) -> AsyncIterator[None]:
    begun, release = threading.Event(), threading.Event()

    def call(_: sqlite3.Connection) -> bool:
        begun.set()
        return release.wait(within(30))

    busy = asyncio.ensure_future(log._write(call))
    assert await asyncio.to_thread(begun.wait, within(30))
    yield
    release.set()
    assert await busy


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock the log as another program would, until the block ends or the connection rolls back."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
        if other.in_transaction:
            other.execute("ROLLBACK")


class Arrivals:
    """Given to a log as ``on_stored``: tells when it has stored so many more entries."""

    def __init__(self) -> None:
        self._stored = threading.Semaphore(0)

    def __call__(self, entry: Stored) -> None:
        self._stored.release()

    async def wait(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._stored.acquire, timeout=within(30)), "nothing was stored"


async def until(reached: Callable[[], object]) -> Any:
    """Wait for something that gives no event, such as a file of another thread; returns it, awaited if need be."""
    async with asyncio.timeout(within(30)):
        while True:
            value = reached()
            if value := await value if isawaitable(value) else value:
                return value
            await asyncio.sleep(0.005)
