"""Upstreams behind an HTTP proxy (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), which httpx asks.

A corporate proxy wants CONNECT, credentials, TLS inside TLS. Our own pool has none of that, and the way through a proxy
costs more than httpx does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

from burnish.proxy.http.connection import Body, Deadlines, Sink
from burnish.proxy.http.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.origin import ConnectFailed, UpstreamCut, UpstreamResponse


class ProxiedUpstreams:
    def __init__(self, connect_s: float, deadlines: Deadlines, max_connections: int) -> None:
        self._first_byte_s = deadlines.first_byte_s
        self._idle_s = deadlines.idle_s
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=connect_s),
            limits=httpx.Limits(max_connections=max_connections),
        )
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self, method: str, address: str, path: str, headers: RawHeaders, body: Body
    ) -> ProxiedResponse:
        """Send a request and wait for the head of its answer. Raises what the pool raises."""
        try:
            # Never one text, in which a path could end the name of the server.
            url = httpx.URL(address).copy_with(raw_path=path.encode("latin-1"))
        except httpx.InvalidURL as error:
            raise ValueError("the path is none, or holds what no path may") from error
        # AsyncClient.build_request would add headers.
        request = httpx.Request(method, url, headers=headers, content=body)
        try:
            async with asyncio.timeout(self._first_byte_s):
                response = await self._client.send(request, stream=True)
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"{request.url.host} did not begin to answer within {self._first_byte_s:g} s"
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise ConnectFailed(
                f"cannot connect to {request.url.host} through the proxy that the environment sets: {error}. If it "
                "needs no proxy, add it to NO_PROXY"
            ) from error
        except httpx.HTTPError as error:
            raise UpstreamUnreachable(f"{request.url.host} broke off before it answered: {error}") from error
        return ProxiedResponse(response, self._idle_s, self._closing)

    async def close(self) -> None:
        await self._client.aclose()


class ProxiedResponse(UpstreamResponse):
    """An answer through httpx; ``read`` never uses its sink."""

    def __init__(self, response: httpx.Response, idle_s: float, closing: set[asyncio.Task[None]]) -> None:
        self.status = response.status_code
        self.headers = [(name.lower(), value) for name, value in response.headers.raw]
        self._finished = False
        self._response = response
        self._parts: AsyncIterator[bytes] = response.aiter_raw()
        self._idle_s = idle_s
        self._closing = closing

    @property
    def finished(self) -> bool:
        return self._finished

    async def read(self, sink: Sink | None = None) -> bytes:
        try:
            async with asyncio.timeout(self._idle_s):
                return await anext(self._parts)
        except StopAsyncIteration:
            self._finished = True
            return b""
        except TimeoutError as error:
            raise UpstreamCut("the upstream fell silent in the middle of its answer") from error
        except httpx.HTTPError as error:
            raise UpstreamCut(f"the upstream broke off: {error}") from error

    def close(self) -> None:
        # httpx closes with an await, and a cancelled request has no time for that.
        task = asyncio.get_running_loop().create_task(self._response.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
