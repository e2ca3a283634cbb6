"""The side that clients connect to: uvicorn, with limits to how long and how slow a request may be.

uvicorn waits for ever for the rest of a request, and takes headers of any length: whoever can reach the port could fill
the memory, or hold every descriptor, without sending one whole request. A request that comes whole in one piece, as
nearly all do, costs two comparisons here. One for a websocket is an ordinary request with a tunnel to open.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
import orjson
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from burnish.proxy.config import Config
from burnish.proxy.errors import BurnishError, HeadersTooLarge, RequestTimeout
from burnish.proxy.http.headers import RawHeaders, by_name
from burnish.proxy.http.response import WRITE
from burnish.proxy.http.tunnel import TUNNEL, ClientEnd

# Agents send cookies and tokens, seldom more than a few KiB. (A longer head that comes in one piece may pass.)
HEAD_LIMIT_BYTES = 64 * 1024
# The slowest that a request may be on average: less than a modem did.
SLOWEST_BYTES_S = 1024
# A client that was refused is read from for so long: to close on what it still sends would reset the connection, and
# the answer would be lost with it.
LINGER_S = 2.0
# Python looks for garbage in cycles each time that so many objects more are alive, unless told otherwise each 700: the
# requests under way alone are some thousand.
YOUNG_OBJECTS = 10_000
# The log's thread shares the interpreter with the event loop, which gives it up late when it is busy (5 ms unless told
# otherwise): a quarter more would wait to be stored.
SWITCH_S = 0.0005
# Streams that are still running when burnish is told to stop get this long to end by themselves.
GRACE_S = 5


ErrorBody = Callable[[str, BurnishError], Any]
"""Returns the JSON of an error, in the format of requests to a path ("" if there is none yet)."""


def server(app: ASGIApp, config: Config, error_body: ErrorBody) -> uvicorn.Server:
    """Return a server for an application; ``error_body`` words the errors of requests that never reach it."""
    logging.getLogger("uvicorn.error").addFilter(_not_a_cut)
    settings = {"patience_s": config.request_timeout_s, "error_body": staticmethod(error_body)}
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=type("ClientConnection", (ClientConnection,), settings),
            ws="none",  # they are tunnelled, see below
            lifespan="off",
            log_level="warning",
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,  # nothing here asks who the client is
            timeout_graceful_shutdown=GRACE_S,
        )
    )


def tune_interpreter() -> None:
    """Have the interpreter stop for as short as can be from now on; call it when all that stays is there.

    Looking through all that was loaded at the start takes the garbage collector 50 ms, in which no stream gets on,
    about once a second under load. Nothing of it ever becomes garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    sys.setswitchinterval(SWITCH_S)


def _not_a_cut(record: logging.LogRecord) -> bool:
    """The relay returns early on purpose when an upstream breaks off; the log of completions has it."""
    return "returned without completing response" not in record.getMessage()


class ClientConnection(HttpToolsProtocol):
    """A client's connection, which is closed when a request does not get on."""

    patience_s: ClassVar[float]
    """How long a client may be silent within a request."""
    error_body: ClassVar[ErrorBody]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request."""
        super().connection_made(transport)  # type: ignore[arg-type]  # as uvicorn has it
        self._head_bytes = 0
        """What has come of a request that is not whole yet since there was a byte of its body."""
        self._in_body = False
        self._late_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; ``cycle`` is the latest that has come."""
        self._tunnel: ClientEnd | None = None
        # A client that never begins is like one that has nothing more to ask.
        self.timeout_keep_alive_task = self.loop.call_later(self.patience_s, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Take what has come, if it is not too much."""
        if len(data) > HEAD_LIMIT_BYTES and self._only_head(data):
            self._refuse(_too_large())
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.scope is not self.scope:
            self._goes_on(len(data))
        elif self._timer:
            self._whole()

    def on_headers_complete(self) -> None:
        """Keep the headers as they are now: uvicorn would add a request's trailers to them (RFC 9110 §6.5.1)."""
        super().on_headers_complete()
        self.scope["headers"] = self.headers.copy()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._in_body = True
        super().on_body(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered, and stop all timers."""
        super().connection_lost(exc)
        if self._running and self._running is not self.cycle:
            # Others were sent ahead, and uvicorn tells only the last of them.
            self._running.disconnected = True
            self._running.message_event.set()
        self._unset_keepalive_if_required()
        self._whole()

    def shutdown(self) -> None:
        """Let the request that is being answered be the last; a tunnel would never end by itself."""
        super().shutdown()
        if self._tunnel and self._tunnel.joined:
            self._tunnel.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["extensions"] = {WRITE: partial(_write, cycle)}  # type: ignore[dict-item]  # ours is no dictionary
        super()._start_asgi_task(cycle, app)

    def _should_upgrade(self) -> bool:
        """Whether ``_feed`` sees to a request that asks for another protocol; uvicorn does not ask of any other."""
        return True

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as asked:
                    data = self._take_upgrade(memoryview(data)[asked.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _take_upgrade(self, rest: memoryview) -> memoryview:
        """Take a request that asks for another protocol as if it did not; one for a websocket may become a tunnel.

        A server may do so (RFC 9110 §7.8), and Java's client asks for HTTP/2 at first. The parser has left the body in
        ``rest``; returns what of that it is to read on.
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
        self.scope["extensions"] = {TUNNEL: {"end": self._tunnel}}
        self.transport.set_protocol(self._tunnel)
        return rest[:0]

    def _only_head(self, data: bytes) -> bool:
        between = self.cycle is None or not self.cycle.more_body
        return between and data.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES) < 0

    def _goes_on(self, size: int) -> None:
        """Take note of a piece of a request that is not whole yet."""
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._timer is None or self.flow.read_paused:  # paused: it is the upstream that does not get on
            self._late_at = now + self.patience_s
        else:
            self._late_at = min(now + self.patience_s, self._late_at + size / SLOWEST_BYTES_S)
        if self._timer is None:
            self._timer = self.loop.call_at(self._late_at, self._look)
        self._head_bytes = 0 if self._in_body else self._head_bytes + size
        self._in_body = False
        if self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse(_too_large())

    def _whole(self) -> None:
        self._head_bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused:
            self._late_at = now + self.patience_s
        if self._late_at > now:
            self._timer = self.loop.call_at(self._late_at, self._look)
        else:
            self._refuse(
                RequestTimeout(
                    f"the request did not get on for {self.patience_s:g} s; raise request_timeout_s if it must"
                )
            )

    def _refuse(self, error: BurnishError) -> None:
        """Say what is wrong, where no answer has begun, and close the connection."""
        self._whole()
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            begun = cycle is not None and not cycle.response_complete
            path = cycle.scope["path"] if cycle and begun else ""
            self.transport.write(_response(error.status, orjson.dumps(type(self).error_body(path, error))))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.flow.resume_reading()
        self.transport.set_protocol(_Deaf(self))
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def _write(cycle: RequestResponseCycle, part: bytes) -> bool:
    """Send a part of a body that goes on, as the cycle itself would; False when the client does not keep up."""
    if cycle.disconnected:
        return False
    if cycle.chunked_encoding:
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
    else:
        cycle.expected_content_length -= len(part)
        cycle.transport.write(part)
    return not cycle.flow.write_paused


def _asks_for_websocket(headers: RawHeaders) -> bool:
    named = by_name(headers)
    protocols = [each.strip().lower() for each in named[b"upgrade"].split(b",")]
    return b"websocket" in protocols and not named.keys() & {b"content-length", b"transfer-encoding"}


class _Deaf(asyncio.Protocol):
    """Drops whatever a client that was refused still sends."""

    def __init__(self, refused: ClientConnection) -> None:
        self._refused = refused

    def connection_lost(self, exc: Exception | None) -> None:
        """It is what uvicorn counts."""
        self._refused.connection_lost(exc)


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the headers are longer than {HEAD_LIMIT_BYTES} bytes: send fewer, or shorter ones"
    )


def _response(code: int, content: bytes) -> bytes:
    status = HTTPStatus(code)
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
        % (status, status.phrase.encode(), len(content), content)
    )
