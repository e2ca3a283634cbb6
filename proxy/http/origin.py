"""One server: its address, its idle connections, the queue for them, and its answers as the relay reads them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from burnish.proxy.http.connection import Connection, Sink
from burnish.proxy.http.errors import Unavailable, UpstreamUnreachable
from burnish.proxy.http.headers import RawHeaders

logger = logging.getLogger(__name__)

# llama.cpp, vLLM and uvicorn close idle connections after 5 s; a request sent into that moment would be lost.
KEEP_ALIVE_S = 4.0
# Retry-After of a request that found no free connection; it has waited in the queue already.
RETRY_AFTER_S = 1
WHOLE_LIMIT_BYTES = 32 * 1024 * 1024
"""Of an answer that burnish must have as a whole, because it changes it."""


class ConnectFailed(UpstreamUnreachable):
    """No connection was made, so nothing was sent: trying again is safe."""


class UpstreamCut(UpstreamUnreachable):
    """The upstream broke off in the middle of its answer."""


class UpstreamResponse(ABC):
    """An answer whose head has arrived. Leaving its block ends the exchange, read to the end or not."""

    __slots__ = ("headers", "status")

    status: int
    headers: RawHeaders

    @abstractmethod
    async def read(self, sink: Sink | None = None) -> bytes:
        """Return what has come of the body, undecoded; b"" at its end. Raises UpstreamCut.

        While this waits, pieces may go into the sink instead until it is full. The last piece is always returned.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True when the next ``read`` returns all that is left."""

    async def whole(self) -> bytes:
        """Return the rest of the body. Raises UpstreamCut, also if it is longer than burnish reads at once."""
        parts, size = [], 0
        while part := await self.read():
            parts.append(part)
            size += len(part)
            if size > WHOLE_LIMIT_BYTES:
                raise UpstreamCut(f"the upstream's answer is longer than {WHOLE_LIMIT_BYTES} bytes")
        return b"".join(parts)

    @property
    def trailers(self) -> RawHeaders:
        """Headers behind the body, once it was read."""
        return []

    def read_on(self) -> None:  # noqa: B027  (httpx has closed the connection by then)
        """Let ``close`` wait a moment for the end of a body that nobody reads, to use the connection again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the exchange."""


class Origin:
    """Scheme, host and port (RFC 9110 §4.3.1), and the connections there."""

    def __init__(self, url: str, most: int, tls: Callable[[], ssl.SSLContext]) -> None:
        scheme, _, authority = url.partition("://")
        if scheme not in ("http", "https") or not authority or "@" in authority:
            raise ValueError(f"{url!r} is not the http(s) address of a server")
        has_port = ":" in authority.rpartition("]")[2]
        host, _, port = authority.rpartition(":") if has_port else (authority, "", "")
        self.url = url
        self.authority = authority.encode("ascii")
        self._host = host.strip("[]")
        self._port = int(port) if port else 443 if scheme == "https" else 80
        self._tls = tls if scheme == "https" else None
        self._most = most
        self._in_use = 0
        self._idle: deque[Connection] = deque()
        """The oldest first."""
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._down = False

    # -- the queue -----------------------------------------------------------------------------------------------------

    def enter(self) -> bool:
        """Take a place for one connection; return False when all are taken."""
        free = self._in_use < self._most
        self._in_use += free
        return free

    async def wait(self, seconds: float) -> None:
        """Wait for a place, first come, first served. Raises Unavailable."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self.leave()
            if isinstance(error, TimeoutError):
                busy = Unavailable(
                    f"all {self._most} connections to {self.url} are in use, and none came free within {seconds:g} s: "
                    "try again, or raise max_connections",
                    code="upstream_busy",
                )
                busy.headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
                raise busy from error
            raise

    def leave(self) -> None:
        """Give the place to the request that has waited longest, or back."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self._in_use -= 1

    # -- connections ---------------------------------------------------------------------------------------------------

    def kept(self) -> Connection | None:
        """Return an idle connection that can take a request, if there is one."""
        while self._idle:
            connection = self._idle.pop()  # the youngest, so that the others grow old and are closed
            if connection.usable(KEEP_ALIVE_S):
                return connection
            connection.close()
        return None

    async def connect(self, seconds: float) -> Connection:
        try:
            connection = await self._connect(seconds)
        except ConnectFailed as error:
            if not self._down:
                self._down = True
                logger.warning("%s", error)
            raise
        if self._down:
            self._down = False
            logger.warning("%s can be reached again", self.url)
        return connection

    async def _connect(self, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection,
                    self._host,
                    self._port,
                    ssl=self._tls() if self._tls else None,
                    server_hostname=self._host if self._tls else None,
                )
        except TimeoutError as error:
            raise ConnectFailed(
                f"cannot connect to {self.url} within {seconds:g} s. Is it running?"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise ConnectFailed(
                f"{self.url} has a certificate that is not trusted: {error.verify_message}. If the authority is your "
                "own, set SSL_CERT_FILE to its file"
            ) from error
        except ssl.SSLError as error:
            raise ConnectFailed(
                f"{self.url} failed the TLS handshake: {error.reason}. Is it https?"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect to {self.url}: {reason}. Is it running?") from error
        return connection

    def keep(self, connection: Connection) -> None:
        self._idle.append(connection)

    def sweep(self) -> bool:
        """Close connections that were idle too long; each holds a slot of the server. Return whether any is left."""
        while self._idle and not self._idle[0].usable(KEEP_ALIVE_S):
            self._idle.popleft().close()
        return bool(self._idle)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def is_proxied(address: str) -> bool:
    """Check whether the environment sets a proxy for a server (``https://host:port``)."""
    parts = urlsplit(address)
    if not getproxies().keys() & {parts.scheme, "all"}:
        return False
    return not (_is_this_machine(parts.hostname or "") or proxy_bypass(parts.netloc))


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        return False
