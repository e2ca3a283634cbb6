"""The least that a proxy in Python costs which logs: copy a request to the upstream, its answer back, and store both.

An ASGI application for uvicorn with httptools and uvloop, as burnish's listener, with a pool of upstream connections.
It reads neither side: a thread stores both as they are, in one transaction for what has come in 50 ms.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from queue import SimpleQueue
from typing import Any, cast

import httptools

Message = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]
UPSTREAM = os.environ["FLOOR_UPSTREAM"].removeprefix("http://")
LINGER_S = 0.05
OF_A_CONNECTION = {b"host", b"connection", b"content-length", b"transfer-encoding", b"expect"}

rows: SimpleQueue[tuple[float, bytes, bytes]] = SimpleQueue()
"""Not stored yet: time, request, answer."""
idle: list[Upstream] = []


def store() -> None:
    """Store rows for ever."""
    log = sqlite3.connect("floor.db", isolation_level=None)
    log.execute("PRAGMA journal_mode=WAL")
    log.execute("PRAGMA synchronous=NORMAL")
    log.execute("CREATE TABLE completion (number INTEGER PRIMARY KEY, time REAL, request BLOB, answer BLOB)")
    while True:
        batch = [rows.get()]
        time.sleep(LINGER_S)
        batch += [rows.get() for _ in range(rows.qsize())]
        log.execute("BEGIN")
        log.executemany("INSERT INTO completion (time, request, answer) VALUES (?, ?, ?)", batch)
        log.execute("COMMIT")


class Upstream(asyncio.Protocol):
    """A connection to the upstream, for one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def ask(self, request: bytes) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.complete = False
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self.waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport.write(request)

    async def part(self) -> tuple[bytes, bool]:
        """Wait for more of the answer; return all that has come, and whether it is complete."""
        await self.waiter
        self.waiter = asyncio.get_running_loop().create_future()
        part = b"".join(self.parts)
        self.parts = []
        return part, self.complete

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if (self.parts or self.complete) and not self.waiter.done():
            self.waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self in idle:
            idle.remove(self)
        elif not self.waiter.done():
            self.waiter.set_exception(error or ConnectionError("the upstream has closed"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() != b"transfer-encoding":
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.complete = True


async def connected() -> Upstream:
    host, port = UPSTREAM.split(":")
    return (await asyncio.get_running_loop().create_connection(Upstream, host, int(port)))[1]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "lifespan":
        threading.Thread(target=store, daemon=True).start()
        await send({"type": "lifespan.startup.complete"})
        return
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    lines = [name + b": " + value for name, value in scope["headers"] if name not in OF_A_CONNECTION]
    lines += [b"host: " + UPSTREAM.encode(), b"content-length: %d" % len(body)]
    target = b"%s %s HTTP/1.1\r\n" % (scope["method"].encode(), scope["raw_path"])
    upstream = idle.pop() if idle else await connected()
    upstream.ask(target + b"\r\n".join(lines) + b"\r\n\r\n" + body)
    part, complete = await upstream.part()
    answer = [part]
    await send({"type": "http.response.start", "status": upstream.status, "headers": upstream.headers})
    while not complete:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        part, complete = await upstream.part()
        answer.append(part)
    await send({"type": "http.response.body", "body": part})
    idle.append(upstream)
    rows.put((time.time(), body, b"".join(answer)))
