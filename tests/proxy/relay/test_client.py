"""The watch for a client that leaves. What it does for requests under way, test_leaving.py has."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.types import Receive, Scope, Send

from burnish.app.serve import server_for
from burnish.config.config import load_config
from burnish.proxy.relay.client import Client, read_body
from tests.support.inprocess import run
from tests.support.patience import within
from tests.support.raw_server import dialled

REQUEST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nHi"


async def test_a_client_that_left_before_the_watch_began_is_noticed(tmp_path: Path) -> None:
    arrival = asyncio.Event()
    departure: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, {}, 100)
        arrival.set()
        assert (await receive())["type"] == "http.disconnect"
        async with Client(scope) as client:
            await asyncio.Event().wait()
        departure.set_result(client.gone)

    async with run(server_for(app, load_config({"data_dir": tmp_path}))) as url, asyncio.timeout(within(30)):
        async with dialled(url, REQUEST):
            await arrival.wait()
        assert await departure
