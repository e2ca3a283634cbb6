"""The one HTTP client of burnish: sends a request's bytes, gives back the response's bytes as they arrive."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from functools import cache
from types import TracebackType

from burnish.proxy.config import Config
from burnish.proxy.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.relay.connection import Body, Broken, Connection, Deadlines, Silent
from burnish.proxy.relay.headers import RawHeaders

# llama.cpp, vLLM and uvicorn close idle connections after 5 s; a request sent into that moment would be lost.
KEEP_ALIVE_S = 4.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that may be sent twice (RFC 9110 §9.2.1)."""


class UpstreamCut(ConnectionError):
    """The upstream broke off in the middle of its answer."""


class ConnectFailed(UpstreamUnreachable):
    """No connection was made, so nothing was sent: trying again is safe."""


class UpstreamResponse:
    """An answer whose head has arrived."""

    __slots__ = ("_connection", "_pool", "_server", "headers", "status")

    def __init__(self, pool: Pool, server: _Server, connection: Connection) -> None:
        self._pool = pool
        self._server = server
        self._connection = connection
        self.status = connection.status
        self.headers: RawHeaders = connection.headers

    async def read(self) -> bytes:
        """Return what has come of the body since, undecoded; b"" at its end. Raises UpstreamCut."""
        try:
            return await self._connection.read()
        except Silent as error:
            raise UpstreamCut("the upstream fell silent in the middle of its answer") from error
        except Broken as error:
            raise UpstreamCut(f"the upstream broke off: {error}") from error

    @property
    def finished(self) -> bool:
        """Whether nothing more will come than what the next ``read`` returns."""
        return self._connection.finished

    async def whole(self) -> bytes:
        """Return the rest of the body. Raises UpstreamCut."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def __enter__(self) -> UpstreamResponse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self._server, self._connection)


class Pool:
    """Keeps connections to upstreams. Follows no redirect, keeps no cookie, adds no header."""

    def __init__(self, config: Config) -> None:
        self._connect_s = config.connect_timeout_s
        self._deadlines = Deadlines(config.first_byte_timeout_s, config.idle_timeout_s)
        self._servers: dict[str, _Server] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    async def send(
        self, method: str, url: str, headers: RawHeaders, body: Body, *, reuse: bool = True
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its answer; ``reuse``: on a connection that was kept.

        Raises ConnectFailed, UpstreamUnreachable, UpstreamTimeout, ValueError (not a request that HTTP can say).
        """
        origin, path = _split(url)
        server = self._servers.get(origin) or self._servers.setdefault(origin, _Server.of(origin))
        head, chunked = _head(method, path, server.authority, headers, body, close=not reuse)
        while True:
            connection, kept = await self._connected(server, reuse=reuse)
            try:
                await connection.send(method, head, body, self._deadlines, chunked=chunked)
                return UpstreamResponse(self, server, connection)
            except Silent as error:
                connection.close()
                raise UpstreamTimeout(
                    f"{origin} did not begin to answer within {self._deadlines.first_byte_s:g} s"
                ) from error
            except Broken as error:
                connection.close()
                # The upstream closed it for its age just when the request went in.
                if (
                    kept
                    and not connection.heard
                    and method in SAFE
                    and (body is None or isinstance(body, bytes))
                ):
                    continue
                raise UpstreamUnreachable(f"{origin} broke off before it answered: {error}") from error
            except BaseException:
                connection.close()
                raise

    def give_back(self, server: _Server, connection: Connection) -> None:
        """Keep a connection for the next request where it can take one."""
        if connection.end():
            server.idle.append(connection)
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._sweep)

    async def close(self) -> None:
        """Close every connection that is not in use."""
        if self._sweeper:
            self._sweeper.cancel()
        for server in self._servers.values():
            while server.idle:
                server.idle.pop().close()

    async def _connected(self, server: _Server, *, reuse: bool) -> tuple[Connection, bool]:
        """Return a connection, and whether it was kept from an earlier request. Raises ConnectFailed."""
        while reuse and server.idle:
            kept = server.idle.pop()  # the youngest: the others may grow old and be closed
            if kept.usable(KEEP_ALIVE_S):
                return kept, True
            kept.close()
        try:
            async with asyncio.timeout(self._connect_s):
                _, fresh = await asyncio.get_running_loop().create_connection(
                    Connection,
                    server.host,
                    server.port,
                    ssl=_tls() if server.tls else None,
                    server_hostname=server.host if server.tls else None,
                )
        except TimeoutError as error:
            raise ConnectFailed(
                f"cannot connect to {server.origin} within {self._connect_s:g} s. Is it running?"
            ) from error
        except OSError as error:
            words = error.strerror or str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect to {server.origin}: {words}. Is it running?") from error
        return fresh, False

    def _sweep(self) -> None:
        """Close what has been idle for too long; else the upstream holds a thread or a slot for each."""
        self._sweeper = None
        for server in self._servers.values():
            while server.idle and not server.idle[0].usable(KEEP_ALIVE_S):
                server.idle.popleft().close()
            if server.idle and self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._sweep)


@dataclass(slots=True)
class _Server:
    """An upstream's address, and connections to it that nobody uses, the oldest first."""

    origin: str
    host: str
    port: int
    tls: bool
    authority: bytes
    idle: deque[Connection]

    @classmethod
    def of(cls, origin: str) -> _Server:
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https") or not authority or "@" in authority:
            raise ValueError(f"{origin!r} is no http(s) address of a server")
        tls = scheme == "https"
        host, _, port = authority.rpartition(":") if _has_port(authority) else (authority, "", "")
        number = int(port) if port else 443 if tls else 80
        return cls(origin, host.strip("[]"), number, tls, authority.encode("ascii"), deque())


def _has_port(authority: str) -> bool:
    return ":" in authority.rpartition("]")[2]


def _split(url: str) -> tuple[str, str]:
    """Return origin, and path with query."""
    at = url.find("/", url.find("://") + 3)
    return (url[:at], url[at:]) if at > 0 else (url, "/")


def _head(
    method: str, path: str, authority: bytes, headers: RawHeaders, body: Body, *, close: bool
) -> tuple[bytes, bool]:
    """Return a request's head, and whether its body goes in chunks. Raises ValueError."""
    parts = [f"{method} {path} HTTP/1.1\r\nhost: ".encode("latin-1"), authority, b"\r\n"]
    announced = False
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
        announced = announced or name.lower() == b"content-length"
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
    if head.count(b"\n") != lines or head.count(b"\r") != lines or head.count(b" ", 0, head.find(b"\r")) != 2:
        raise ValueError("a header or the path holds a line break or a space")
    return head, chunked


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
