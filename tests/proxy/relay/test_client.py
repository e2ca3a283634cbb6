"""The watch for a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from burnish.app.serve import server_for
from burnish.config.config import load_config
from burnish.proxy.relay.client import Client, read_body
from tests.support.inprocess import run
from tests.support.patience import within
from tests.support.raw_server import dialled

REQUEST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nHi"


class Watched:
    """An ASGI application that watches its clients, and answers when the test says so."""

    def __init__(self, *, late: bool = False) -> None:
        self.read, self.watching, self.answer = (asyncio.Event() for _ in range(3))
        self.late = late
        """Watch only those who have left."""
        self.ended: asyncio.Queue[tuple[bool, bool]] = asyncio.Queue()
        """Of each request: did its client leave, and was it answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, {}, 100)
        self.read.set()
        if self.late:
            assert (await receive())["type"] == "http.disconnect"
        answered = False
        async with Client(scope) as client:
            self.watching.set()
            await self.answer.wait()
            client.finished = answered = True
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok"})
        self.ended.put_nowait((client.gone, answered))


@asynccontextmanager
async def served(app: Watched, folder: Path) -> AsyncIterator[str]:
    config = load_config({"data_dir": folder})
    made = server_for(app, config)
    async with run(made) as url, asyncio.timeout(within(30)):
        yield url


@pytest.mark.parametrize("ahead", [1, 2])
async def test_a_client_that_leaves_ends_its_request_though_it_sent_another_ahead(
    tmp_path: Path, ahead: int
) -> None:
    app = Watched()
    async with served(app, tmp_path) as url:
        async with dialled(url, ahead * REQUEST):
            await app.watching.wait()
        assert await app.ended.get() == (True, False)


async def test_a_client_that_left_before_the_watch_began_is_noticed(tmp_path: Path) -> None:
    app = Watched(late=True)
    async with served(app, tmp_path) as url:
        async with dialled(url, REQUEST):
            await app.read.wait()
        assert await app.ended.get() == (True, False)


async def test_a_client_that_stays_gets_its_answer_however_its_request_comes(tmp_path: Path) -> None:
    app = Watched()
    async with served(app, tmp_path) as url, dialled(url) as (reader, writer):
        for part in (REQUEST[:-1], REQUEST[-1:], REQUEST[:9]):
            writer.write(part)
            await writer.drain()
        await app.watching.wait()
        app.answer.set()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        writer.write(REQUEST[9:])
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        assert [await app.ended.get() for _ in range(2)] == [(False, True)] * 2
