"""Applications on a real port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from burnish.app.app import running
from burnish.app.asgi import App
from burnish.app.serve import server_for
from burnish.config.config import load_config
from burnish.proxy.http.listener import Server
from tests.support.patience import within
from tests.support.upstream import Script, Upstream, upstream


@asynccontextmanager
async def serving(tmp_path: Path, **flags: Any) -> AsyncIterator[tuple[str, App]]:
    """Run the whole of burnish with these settings; gives its URL and the application.

    An upstream is not asked what it is unless a test wants that (``engine="auto"``).
    """
    config = load_config({"data_dir": tmp_path / "data", "engine": "none", **flags})
    async with running(config) as app, run(server_for(app, config)) as url:
        yield url, app


@asynccontextmanager
async def calling(tmp_path: Path, **flags: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(tmp_path, **flags) as (url, _),
        httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=within(60)) as client,
    ):
        yield client


@asynccontextmanager
async def behind(
    tmp_path: Path, script: Script, **flags: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream]]:
    """Run burnish before an upstream; gives a client of burnish, and the upstream."""
    async with upstream(script) as server, calling(tmp_path, **{"upstream": server.url} | flags) as client:
        yield client, server


async def logged(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return the completions, earliest first, with all that is known of them."""
    listed: list[dict[str, Any]] = []
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        behind = {"before": listed[-1]["id"]} if listed else {}
        page = (await client.get("/burnish/completions", params={"limit": 100, **behind})).json()
        listed += page["data"]
    return [(await client.get(f"/burnish/completions/{each['id']}")).json() for each in listed][::-1]


async def refusal(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int = 409) -> str:
    """Return in which words a request is refused."""
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["message"])


async def ratings(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await client.get("/v1/feedback")).json()["data"])


@asynccontextmanager
async def listening(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an application that is not burnish on a port of 127.0.0.1 (0: a free one); gives its URL."""
    config = uvicorn.Config(app, lifespan="off", log_level="warning", date_header=False, server_header=False)
    async with run(Server(config), port) as url:
        yield url


@asynccontextmanager
async def run(server: Server, port: int = 0) -> AsyncIterator[str]:
    """Run a server on a port of 127.0.0.1; gives its URL."""
    server.config.timeout_graceful_shutdown = math.ceil(within(2))
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


class Switched:
    """An application on a port that stays its own, while it is switched off and on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running = AsyncExitStack()
        self.url = ""

    async def on(self) -> None:
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self.url = await self._running.enter_async_context(listening(self._app, port))

    async def off(self) -> None:
        await self._running.aclose()
