"""The HTTP client for upstreams: sends the bytes of a request, hands on those of the answer as they arrive."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from burnish.proxy.http.connection import Body, Broken, Connection, Deadlines, Inform, Request, Silent, Sink
from burnish.proxy.http.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.origin import KEEP_ALIVE_S, Origin, UpstreamCut, UpstreamResponse, is_proxied
from burnish.proxy.http.tunnel import End

if TYPE_CHECKING:
    from burnish.proxy.http.proxied import ProxiedUpstreams

REQUEST_LINE_WORDS = 3
# How long an upstream may take to end an answer that is complete for its reader: OpenAI's SDKs leave at the last event,
# and a gateway's book-keeping comes between that and the end of the body.
READ_ON_S = 1.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that may be sent twice (RFC 9110 §9.2.1)."""


class DirectResponse(UpstreamResponse):
    __slots__ = ("_connection", "_origin", "_pool", "_reads_on")

    def __init__(self, pool: Pool, origin: Origin, connection: Connection) -> None:
        self._pool = pool
        self._origin = origin
        self._connection = connection
        self._reads_on = False
        self.status = connection.status
        self.headers = connection.headers

    @property
    def switched(self) -> End | None:
        """The upstream's end of a tunnel if it has agreed to another protocol."""
        return self._connection.switched

    async def read(self, sink: Sink | None = None) -> bytes:
        try:
            return await self._connection.read(sink)
        except Silent as error:
            raise UpstreamCut("the upstream fell silent in the middle of its answer") from error
        except Broken as error:
            raise UpstreamCut(f"the upstream broke off: {error}") from error

    @property
    def finished(self) -> bool:
        return self._connection.finished

    @property
    def trailers(self) -> RawHeaders:
        return self._connection.trailers

    def read_on(self) -> None:
        self._reads_on = True

    def close(self) -> None:
        if self._reads_on and not self.finished:
            self._pool.close_later(self._end())
        else:
            self._pool.give_back(self._origin, self._connection)

    async def _end(self) -> None:
        try:
            with suppress(UpstreamCut, TimeoutError):
                async with asyncio.timeout(READ_ON_S):
                    while await self.read():
                        pass
        finally:
            self._pool.give_back(self._origin, self._connection)


class Pool:
    """Keeps connections to upstreams. Follows no redirect, keeps no cookie, adds no header."""

    def __init__(
        self, *, connect_s: float, turn_s: float, first_byte_s: float, idle_s: float, max_connections: int
    ) -> None:
        """``turn_s``: how long a request waits for one of the ``max_connections`` to a server.

        ``first_byte_s`` and ``idle_s``: how long an upstream may be silent before and within an answer.
        """
        self._connect_s = connect_s
        self._turn_s = turn_s
        self._most = max_connections
        self._deadlines = Deadlines(first_byte_s, idle_s)
        self._origins: dict[str, Origin] = {}
        self._proxied: ProxiedUpstreams | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self,
        method: str,
        address: str,
        headers: RawHeaders,
        body: Body,
        *,
        path: str = "/",
        reuse: bool = True,
        inform: Inform | None = None,
        trailers: Callable[[], RawHeaders] | None = None,
    ) -> UpstreamResponse:
        """Send a request to a server (``https://host:port``) and wait for the head of its answer.

        ``reuse`` allows an idle connection.

        ``inform`` and ``trailers``: as of a ``Request``; they don't pass an HTTP proxy.

        Raises ConnectFailed, UpstreamUnreachable, UpstreamTimeout, Unavailable (no connection came free), ValueError (a
        line break or space in the path or a header, or a path that doesn't begin with a slash).
        """
        origin = self._origins.get(address) or self._direct(address)
        if origin is None:
            from burnish.proxy.http.proxied import ProxiedUpstreams

            if self._proxied is None:
                self._proxied = ProxiedUpstreams(self._connect_s, self._deadlines, self._most)
            return await self._proxied.send(method, address, path, headers, body)
        head, chunked = _head(method, path, origin.authority, headers, body, close=not reuse)
        request = Request(method, head, body, chunked, inform=inform, trailers=trailers)
        return await self._exchange(origin, request, reuse=reuse)

    async def switch(self, address: str, path: str, headers: RawHeaders) -> DirectResponse:
        """Ask for another protocol, on a connection of its own. Raises as ``send`` does."""
        origin = self._origins.get(address) or self._direct(address)
        if origin is None:
            raise UpstreamUnreachable(
                f"{address} is reached through the proxy that the environment sets, and burnish opens no websockets "
                "through one. If it needs no proxy, add it to NO_PROXY"
            )
        head, chunked = _head("GET", path, origin.authority, headers, None, close=False)
        return await self._exchange(origin, Request("GET", head, None, chunked, switch=True), reuse=False)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Keep a connection for the next request if it can take one, and free its place."""
        if connection.end():
            origin.keep(connection)
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._sweep)
        origin.leave()

    def close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._sweeper:
            self._sweeper.cancel()
        for origin in self._origins.values():
            origin.close()
        if self._proxied:
            await self._proxied.close()

    def _direct(self, address: str) -> Origin | None:
        """Make the origin of a new server; return None if it is reached through a proxy."""
        if is_proxied(address):
            return None
        origin = self._origins[address] = Origin(address, self._most, lambda: self._tls)
        return origin

    async def _exchange(self, origin: Origin, request: Request, *, reuse: bool) -> DirectResponse:
        """Wait for a place, send a request, and wait for the head of its answer."""
        if not origin.enter():
            await origin.wait(self._turn_s)
        try:
            while True:
                kept = origin.kept() if reuse else None
                connection = kept or await origin.connect(self._connect_s)
                try:
                    await connection.send(request, self._deadlines)
                    return DirectResponse(self, origin, connection)
                except Silent as error:
                    connection.close()
                    late = f"{origin.url} did not begin to answer within {self._deadlines.first_byte_s:g} s"
                    raise UpstreamTimeout(late) from error
                except Broken as error:
                    connection.close()
                    # The upstream closed an idle connection just when the request went in.
                    again = request.method in SAFE and isinstance(request.body, bytes | None)
                    if kept and not connection.answering and again:
                        continue
                    raise UpstreamUnreachable(
                        f"{origin.url} broke off before it answered: {error}"
                    ) from error
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            origin.leave()
            raise

    def _sweep(self) -> None:
        self._sweeper = None
        if any([origin.sweep() for origin in self._origins.values()]):
            self._sweeper = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._sweep)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Trust the authorities of the system, or those in SSL_CERT_FILE and SSL_CERT_DIR."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


def _head(
    method: str, path: str, authority: bytes, headers: RawHeaders, body: Body, *, close: bool
) -> tuple[bytes, bool]:
    """Write the head of a request; return it, and whether the body goes in chunks. Raises ValueError."""
    parts = [f"{method} {path} HTTP/1.1\r\nhost: ".encode("latin-1"), authority, b"\r\n"]
    announced = False
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
        announced = announced or name == b"content-length"
    chunked = False
    if close:
        parts.append(b"connection: close\r\n")
    if isinstance(body, bytes):
        parts.append(b"content-length: %d\r\n" % len(body))
    elif body is not None and not announced:
        chunked = True
        parts.append(b"transfer-encoding: chunked\r\n")
    parts.append(b"\r\n")
    head = b"".join(parts)
    lines = len(headers) + 3 + close + (body is not None and (chunked or isinstance(body, bytes)))
    words = head.count(b" ", 0, head.find(b"\r")) + 1
    if head.count(b"\n") != lines or head.count(b"\r") != lines or words != REQUEST_LINE_WORDS:
        raise ValueError("a header or the path holds a line break or a space")
    if not path.startswith("/"):
        raise ValueError("the path doesn't begin with a slash")
    return head, chunked
