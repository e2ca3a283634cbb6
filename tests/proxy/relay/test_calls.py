"""What a plain completion costs in function calls, which no load on the machine changes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest
from starlette.types import Message, Receive, Scope

from burnish.app.app import running
from burnish.config.config import load_config
from burnish.proxy.http.listener import ON_LEAVE, TRAIL
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.http.pool import Pool

MOST_CALLS = 220
"""Of the event loop for one completion, from the request to its place in the log's queue. 374 were twice too slow."""
MOST_WRITER_CALLS = 320
"""Of the log's writer for one completion, until it is stored. Load changes what its watcher does."""
COMPLETIONS = 100
REPLY = orjson.dumps({
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 200}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 400, "completion_tokens": 200, "total_tokens": 600},
})  # fmt: skip


class Answer(UpstreamResponse):
    """An answer without a connection, whose calls aren't those of the relay."""

    __slots__ = ("_body",)

    def __init__(self) -> None:
        self.status = 200
        length = b"%d" % len(REPLY)
        self.headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        self._body = REPLY

    async def read(self, sink: object = None) -> bytes:
        body, self._body = self._body, b""
        return body

    @property
    def finished(self) -> bool:
        return not self._body

    def close(self) -> None:
        pass


class Calls:
    """Counts the calls of each thread that it is set for, builtins included."""

    def __init__(self) -> None:
        self.by_thread: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            self.by_thread[threading.current_thread().name] += 1


def request(number: int) -> tuple[Scope, Receive]:
    """Return a request of 2 KB, as OpenAI's SDK sends it."""
    question = " ".join(f"word{number * 300 + at}" for at in range(200))
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": question}]
    body = orjson.dumps({"model": "mock", "messages": messages})
    headers = [
        (b"host", b"127.0.0.1:8787"), (b"accept-encoding", b"gzip, deflate"), (b"connection", b"keep-alive"),
        (b"accept", b"application/json"), (b"content-type", b"application/json"),
        (b"user-agent", b"OpenAI/Python 2.0"), (b"authorization", b"Bearer sk-none"),
        (b"x-stainless-retry-count", b"0"), (b"content-length", b"%d" % len(body)),
    ]  # fmt: skip
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": "POST", "query_string": b"",
        "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions", "headers": headers,
        "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8787), "state": {},
        "extensions": {ON_LEAVE: lambda leave: None, TRAIL: lambda trailers: None},
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return scope, receive


async def test_a_plain_completion_takes_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object, **__: object) -> UpstreamResponse:
        return Answer()

    async def ignore(message: Message) -> None:
        pass

    monkeypatch.setattr(Pool, "send", answer)
    calls = Calls()
    threading.setprofile(calls)
    config = load_config({"data_dir": tmp_path, "engine": "none", "upstream": "http://127.0.0.1:9"})
    try:
        async with running(config) as app:
            for number in range(COMPLETIONS):  # what is made once
                scope, receive = request(number)
                await app(scope, receive, ignore)
            requests = [request(COMPLETIONS + number) for number in range(COMPLETIONS)]
            sys.setprofile(calls)
            for scope, receive in requests:
                await app(scope, receive, ignore)
            sys.setprofile(None)
        # Now all of them are stored.
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert calls.by_thread["MainThread"] / COMPLETIONS <= MOST_CALLS
    assert calls.by_thread["burnish-log"] / (2 * COMPLETIONS) <= MOST_WRITER_CALLS
