"""The server for clients: uvicorn, with limits on long and slow requests, and with websockets as tunnels.

uvicorn waits for ever for the rest of a request, and takes headers of any length. A client could fill the memory, or
hold every descriptor, without ever sending a whole request. A request that comes in one piece, as nearly all do, costs
two comparisons here. A websocket begins as an ordinary request.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
import orjson
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from burnish.proxy.http.errors import BurnishError, HeadersTooLarge, InvalidRequest, RequestTimeout
from burnish.proxy.http.headers import RawHeaders, by_name, lines
from burnish.proxy.http.tunnel import TUNNEL, ClientEnd

WRITE = "burnish.write"
"""ASGI extension: writes a piece of a response body at once, without waking the application."""
ON_LEAVE = "burnish.on_leave"
"""ASGI extension: takes a function, and calls it if the client leaves. A task that awaits the disconnect costs more."""
ENDLESS = "burnish.endless"
"""ASGI extension: marks the answer as one that never ends by itself, so that burnish cuts it when it stops."""
INFORM = "burnish.inform"
"""ASGI extension: sends a 1xx answer, which announces the answer."""
TRAIL = "burnish.trail"
"""ASGI extension: ends a chunked body with trailers; one last empty message must follow."""
WITH_TRAILERS = "burnish.with_trailers"
"""Key of the scope: the headers of a request, to which its trailers are added after its body."""

# Agents send cookies and tokens, seldom more than a few KiB. (A longer head in one piece may pass.)
HEAD_LIMIT_BYTES = 64 * 1024
# Slowest average speed of a request: less than a modem.
SLOWEST_BYTES_S = 1024
# How long a refused client is still read. Closing while it sends would reset the connection and lose the answer.
LINGER_S = 2.0
# How long an idle connection stays open when burnish stops: a client that closes none and asks on is told in time.
LAST_MOMENT_S = 0.5
# New objects between two garbage collections. By default 700, and the requests under way alone are some thousand.
YOUNG_OBJECTS = 10_000
# The thread of the log gets the interpreter this late at most when the event loop is busy. With the default of 5 ms a
# quarter more completions would wait to be stored.
SWITCH_S = 0.0005
POLL_S = 0.01
RESET_AT_ONCE = struct.pack("ii", 1, 0)

logger = logging.getLogger(__name__)


ErrorBody = Callable[[str, BurnishError], Any]
"""Returns the JSON of an error, in the format of requests to a path ("" if there is none yet)."""


def server(app: ASGIApp, *, patience_s: float, stop_s: int, error_body: ErrorBody) -> Server:
    """Return a server for an application.

    ``patience_s``: how long a client may be silent within a request. ``stop_s``: how long requests may still take when
    it stops. ``error_body`` words the errors of requests that never reach the application.
    """
    logging.getLogger("uvicorn.error").addFilter(_not_a_cut)
    settings = {"patience_s": patience_s, "error_body": staticmethod(error_body)}
    return Server(
        uvicorn.Config(
            app,
            http=type("ClientConnection", (ClientConnection,), settings),
            ws="none",  # websockets are tunnelled, see ClientConnection
            lifespan="off",
            log_level="warning",
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,  # the address of the client is used nowhere
            timeout_graceful_shutdown=stop_s,
        )
    )


def tune_interpreter() -> None:
    """Shorten the pauses of the interpreter; call it once everything is loaded.

    Without it, the garbage collector goes through everything that was loaded about once a second under load. That takes
    50 ms, stops all streams, and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    sys.setswitchinterval(SWITCH_S)


def _not_a_cut(record: logging.LogRecord) -> bool:
    """Drop a warning: the relay returns early on purpose when an upstream breaks off."""
    return "returned without completing response" not in record.getMessage()


class Server(uvicorn.Server):
    """Stops when it is told to; uvicorn itself looks ten times a second whether it was.

    Serves until ``should_exit`` is set, by a signal or by anybody in the thread of its event loop.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self.ready = asyncio.Event()
        """Set once it accepts connections."""
        self._exit = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._loop:
            # From a signal handler, nothing else wakes the loop.
            self._loop.call_soon_threadsafe(self._exit.set)

    async def main_loop(self) -> None:
        """Wait for the end. One tick is enough: uvicorn makes its own headers there, and without a date they stay."""
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        if not await self.on_tick(0):
            await self._exit.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, and wait for the requests under way, as long as the configuration allows."""
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self._under_way() and not self.force_exit:  # noqa: ASYNC110  (uvicorn has no event)
                    await asyncio.sleep(POLL_S)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            logger.error(
                "%s requests were still under way when burnish stopped", len(self.server_state.tasks)
            )
            for task in self.server_state.tasks:
                task.cancel(msg="burnish stops")

    def _under_way(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)


class ClientConnection(HttpToolsProtocol):
    """Connection of a client. It is closed when a request is too slow or its head too long."""

    patience_s: ClassVar[float]
    """How long a client may be silent within a request."""
    error_body: ClassVar[ErrorBody]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # as uvicorn has it
        self._head_bytes = 0
        """Bytes of an unfinished request since the last byte of its body."""
        self._in_body = False
        self._late_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; ``cycle`` is the one that came last."""
        self._on_leave: Callable[[], None] | None = None
        self._endless: RequestResponseCycle | None = None
        self._tunnel: ClientEnd | None = None
        self._ending = False
        # A client that never sends anything is treated like an idle one.
        self.timeout_keep_alive_task = self.loop.call_later(self.patience_s, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if len(data) > HEAD_LIMIT_BYTES and self._only_head(data):
            self._refuse(_too_large())
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.scope is not self.scope:
            self._extend_deadline(len(data))
        elif self._timer:
            self._finish_request()

    def on_headers_complete(self) -> None:
        """Copy the headers, because uvicorn adds trailers to its own list (RFC 9110 §6.5.1). Raises InvalidRequest."""
        if not self.url.startswith(b"/"):
            raise InvalidRequest(
                f"{self.parser.get_method().decode()} asks for {self.url[:200].decode('latin-1')!r}, but burnish "
                "serves paths, which begin with /. It is no HTTP proxy"
            )
        super().on_headers_complete()
        self.scope["headers"] = self.headers.copy()
        self.scope[WITH_TRAILERS] = self.headers  # type: ignore[literal-required]
        if self._ending:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._in_body = True
        super().on_body(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered, and stop all timers."""
        super().connection_lost(exc)
        if self._running and self._running is not self.cycle:
            # The client sent more requests ahead, and uvicorn notifies only the last one.
            self._running.disconnected = True
            self._running.message_event.set()
        self._leave()
        self._unset_keepalive_if_required()
        self._finish_request()

    def shutdown(self) -> None:
        """End after the request that is being answered. What never ends by itself, such as a tunnel, is cut.

        A client may be sending its next request already, so an idle connection stays open for a moment.
        """
        if self._tunnel and self._tunnel.joined:
            self._tunnel.abort()
        self._ending = True
        if self._endless and self._endless is self._running and not self._endless.response_complete:
            self.transport.close()
        self.timeout_keep_alive = LAST_MOMENT_S  # type: ignore[assignment]  # seconds for call_later
        if self.cycle and not self.cycle.response_complete:
            self.cycle.keep_alive &= self.cycle.response_started  # the head of a later answer says so
        elif self._timer is None:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                LAST_MOMENT_S, self.timeout_keep_alive_handler
            )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._on_leave = None
        cycle.scope["extensions"] = {  # functions, not dictionaries
            WRITE: partial(_write, cycle),  # type: ignore[dict-item]
            ON_LEAVE: partial(self._watch, cycle),  # type: ignore[dict-item]
            ENDLESS: partial(setattr, self, "_endless", cycle),  # type: ignore[dict-item]
            INFORM: partial(_inform, cycle),  # type: ignore[dict-item]
            TRAIL: partial(_trail, cycle),  # type: ignore[dict-item]
        }
        if cycle.scope["http_version"] == "1.0":
            app = _without_chunks(app, cycle)
        super()._start_asgi_task(cycle, app)

    def _watch(self, cycle: RequestResponseCycle, on_leave: Callable[[], None]) -> None:
        self.flow.resume_reading()  # who does not read never learns that the client left
        if cycle.disconnected:
            on_leave()
        elif cycle is self._running:
            self._on_leave = on_leave

    def _leave(self) -> None:
        on_leave, self._on_leave = self._on_leave, None
        if on_leave:
            on_leave()

    def _should_upgrade(self) -> bool:
        """Leave every request for another protocol to ``_feed``; uvicorn calls this for no other request."""
        return True

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as upgrade:
                    data = self._take_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            wrong = cause if isinstance(cause, BurnishError) else InvalidRequest(f"this is not HTTP: {error}")
            self._refuse(wrong)

    def _take_upgrade(self, rest: memoryview) -> memoryview:
        """Ignore the wish for another protocol, as a server may (RFC 9110 §7.8). A websocket gets its tunnel.

        Java's client asks for HTTP/2 with its first request. The parser has left the body in ``rest``; returns the part
        that it must still read.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        head = [b"%b %b HTTP/%b" % (method, self.url, version)]
        head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        tunnelled = method == b"GET" and _asks_for_websocket(self.headers)
        self.parser.feed_data(b"\r\n".join([*head, b"\r\n"]))
        if not tunnelled:
            return rest
        self.cycle.keep_alive = False
        self._tunnel = ClientEnd(self, self.transport, bytes(rest))
        watch = partial(self._watch, self.cycle)
        self.scope["extensions"] = {TUNNEL: {"end": self._tunnel}, ON_LEAVE: watch}  # type: ignore[dict-item]
        self.transport.set_protocol(self._tunnel)
        return rest[:0]

    def _only_head(self, data: bytes) -> bool:
        between = self.cycle is None or not self.cycle.more_body
        return between and data.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES) < 0

    def _extend_deadline(self, size: int) -> None:
        """Count a piece of an unfinished request, and move its deadline on."""
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._timer is None or self.flow.read_paused:  # paused: the upstream is slow, not the client
            self._late_at = now + self.patience_s
        else:
            self._late_at = min(now + self.patience_s, self._late_at + size / SLOWEST_BYTES_S)
        if self._timer is None:
            self._timer = self.loop.call_at(self._late_at, self._check_deadline)
        self._head_bytes = 0 if self._in_body else self._head_bytes + size
        self._in_body = False
        if self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse(_too_large())

    def _finish_request(self) -> None:
        self._head_bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _check_deadline(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused:
            self._late_at = now + self.patience_s
        if self._late_at > now:
            self._timer = self.loop.call_at(self._late_at, self._check_deadline)
        else:
            self._refuse(
                RequestTimeout(
                    f"the rest of the request did not come within {self.patience_s:g} s. If your clients "
                    "need longer, raise request_timeout_s"
                )
            )

    def _refuse(self, error: BurnishError) -> None:
        """Answer with an error unless an answer has begun, and close the connection."""
        self._finish_request()
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            asked = cycle is not None and not cycle.response_complete
            path = cycle.scope["path"] if cycle and asked else ""
            self.transport.write(_response(error.status, orjson.dumps(type(self).error_body(path, error))))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle is self._running:
                self._leave()
        self.flow.resume_reading()
        self.transport.set_protocol(_Discard(self))
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def _write(cycle: RequestResponseCycle, part: bytes) -> bool:
    """Send a piece of a body as uvicorn would; return False if the client does not keep up."""
    if cycle.disconnected:
        return False
    if cycle.chunked_encoding:
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
    else:
        cycle.expected_content_length -= len(part)
        cycle.transport.write(part)
    return not cycle.flow.write_paused


def _inform(cycle: RequestResponseCycle, status: int, headers: RawHeaders) -> None:
    if not (cycle.disconnected or cycle.response_started or cycle.scope["http_version"] == "1.0"):
        cycle.transport.write(STATUS_LINE[status] + lines(headers))


def _trail(cycle: RequestResponseCycle, trailers: RawHeaders) -> None:
    if cycle.chunked_encoding and not cycle.disconnected:
        cycle.transport.write(b"0\r\n" + lines(trailers))
        cycle.chunked_encoding, cycle.expected_content_length = False, 0


def _asks_for_websocket(headers: RawHeaders) -> bool:
    named = by_name(headers)
    protocols = [each.strip().lower() for each in named[b"upgrade"].split(b",")]
    return b"websocket" in protocols and not named.keys() & {b"content-length", b"transfer-encoding"}


class _AnyLength(int):
    """Length of a body that ends with its connection; uvicorn compares what it sends with it."""

    def __lt__(self, sent: int) -> bool:
        return False

    def __sub__(self, sent: int) -> _AnyLength:
        return self

    def __ne__(self, left: object) -> bool:
        return False

    __hash__ = int.__hash__


def _without_chunks(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """Let an answer end with its connection, or at its ``Content-Length``. A cut one ends with a reset."""
    cycle.chunked_encoding, cycle.expected_content_length = False, _AnyLength()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if cycle.response_started and not cycle.response_complete:
                # An orderly end would look like the end of the answer.
                client = cycle.transport.get_extra_info("socket")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
                cycle.transport.abort()

    return answer


class _Discard(asyncio.Protocol):
    def __init__(self, refused: ClientConnection) -> None:
        self._refused = refused

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused.connection_lost(exc)  # uvicorn counts these


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the headers are longer than {HEAD_LIMIT_BYTES} bytes: send fewer or shorter ones"
    )


def _response(code: int, content: bytes) -> bytes:
    status = HTTPStatus(code)
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
        % (status, status.phrase.encode(), len(content), content)
    )
