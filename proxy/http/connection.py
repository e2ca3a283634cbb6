"""One HTTP/1.1 connection to an upstream: sends a request, hands on the answer as it arrives.

httptools (llhttp, the parser of Node) reads the answer. It refuses whatever two readers could understand differently:
two lengths, a length beside chunks, bare line feeds. A connection takes another request only if nothing of the last
exchange is left.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, cast

import httptools

from burnish.proxy.http.headers import RawHeaders, lines
from burnish.proxy.http.tunnel import End

# Large enough for a burst of tokens, small enough that a slow reader holds little memory.
HIGH_WATER_BYTES = 64 * 1024
# Providers answer with long headers: rate limits, policies, cookies. The limit also holds for everything else that
# comes without a byte of the body: 1xx answers, chunk extensions, trailers.
HEAD_LIMIT_BYTES = 64 * 1024
CONTINUE, SWITCHING_PROTOCOLS = 100, 101
INTERIM, FINAL = range(100, 200), range(200, 600)
"""Statuses that announce an answer, and those of answers. There are no others (RFC 9110 §15)."""

Body = bytes | AsyncIterator[bytes] | None
Sink = Callable[[bytes], bool]
"""Takes a piece of a body at once; returns whether it would take another one."""
Inform = Callable[[int, RawHeaders], None]
"""Takes status and headers of a 1xx answer."""


class Broken(ConnectionError):
    """The connection ended, or the upstream sent something that isn't HTTP."""


class Silent(TimeoutError):
    """The upstream let a deadline pass."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long an upstream may be silent, in seconds."""

    first_byte_s: float
    idle_s: float


class Request(NamedTuple):
    """A request as it is sent."""

    method: str
    head: bytes
    body: Body
    chunked: bool = False
    switch: bool = False
    """Whether it asks for another protocol; then 101 is an answer."""
    inform: Inform | None = None
    trailers: Callable[[], RawHeaders] | None = None
    """Called after the last part of a chunked body."""


class State(Enum):
    """Stage of a connection and of the exchange on it."""

    IDLE = auto()
    """May take a request."""
    WAITING = auto()
    """A request was sent, and the head of its answer has not come yet."""
    BODY = auto()
    """The head of the answer has come, and its end has not."""
    COMPLETE = auto()
    """The whole answer has come. Some of it may not have been read yet."""
    SWITCHED = auto()
    """The upstream has agreed to another protocol."""
    CLOSED = auto()


# Looking a member up in its class costs ten times as much (Python 3.11), and each chunk does it several times.
IDLE, WAITING, BODY, COMPLETE, SWITCHED, CLOSED = State


class Deadline:
    """Calls ``on_late`` when a time has passed; moving it on is cheap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_late: Callable[[], None]) -> None:
        self._loop = loop
        self._on_late: Callable[[], None] | None = on_late
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        at = self._at = self._loop.time() + seconds
        if self._timer and at < self._timer.when():
            self._timer.cancel()
            self._timer = None
        # The timer stays, and looks at the time when it fires: a new one for each chunk costs more than all else here.
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._check)

    def clear(self) -> None:
        self._at = None

    def cancel(self) -> None:
        """Clear it for good, and drop the references to its owner, which would wait for the garbage collector."""
        self._at = self._on_late = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._at > self._loop.time():
            self._timer = self._loop.call_at(self._at, self._check)
        elif self._on_late:
            self._on_late()


class Connection(asyncio.Protocol):
    """A connection, and the exchange that is under way on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._poll = select.poll()
        self._deadline = Deadline(self._loop, self._on_late)
        self._writable = asyncio.Event()
        self._writable.set()
        self.idle_since = 0.0
        self.switched: End | None = None
        """The upstream's end of the tunnel once the protocol has been switched."""
        self._prepare(Request("GET", b"", None))
        self._state = CLOSED

    # -- one exchange --------------------------------------------------------------------------------------------------

    def _prepare(self, request: Request) -> None:
        self._state = WAITING
        self._request = request
        self.status = 0
        self.headers: RawHeaders = []
        self.trailers: RawHeaders = []
        self.answering = False
        """True when a byte of the answer has come."""
        self._bare_bytes = 0
        """How much has come since the last byte of the body."""
        self._reusable = False
        self._failure: Exception | None = None
        self._pieces: list[bytes] = []
        """What has come of the body and was not read yet."""
        self._unread_bytes = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._sending: asyncio.Task[None] | None = None

    async def send(self, request: Request, deadlines: Deadlines) -> None:
        """Send a request and wait for the head of its answer: ``status``, ``headers``. Raises Broken, Silent.

        An answer may come before the whole body is sent; the rest is sent meanwhile.
        """
        if self._state is not IDLE:
            raise Broken("it closed the connection at once")
        self._prepare(request)
        self._deadlines = deadlines
        if isinstance(request.body, bytes) or request.body is None:
            self._transport.write(request.head + (request.body or b""))
        else:
            self._transport.write(request.head)
            self._sending = self._loop.create_task(self._send_body(request.body, chunked=request.chunked))
        self._deadline.set(deadlines.first_byte_s)
        while not self.status:
            await self._wait()

    async def _send_body(self, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for part in body:
                if self._state is CLOSED:
                    return  # the exchange is over
                if part:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                    self._deadline.set(self._deadlines.first_byte_s)
                    await self._writable.wait()
            if chunked:
                behind = self._request.trailers() if self._request.trailers else []
                self._transport.write(b"0\r\n" + lines(behind))
        except Exception as error:  # noqa: BLE001  (whatever kept the client from sending all, the request isn't whole)
            self._fail(error)

    @property
    def finished(self) -> bool:
        """True when the whole answer has come, read or not."""
        return self._state is COMPLETE or (self._state is CLOSED and self._failure is None)

    async def read(self, sink: Sink | None = None) -> bytes:
        """Return what has come of the body, undecoded; b"" at its end. Raises Broken, Silent.

        While this waits, pieces go into the sink instead until it is full. The last piece is always returned.
        """
        self._sink = sink
        while not self._pieces:
            if self.finished:
                return b""
            await self._wait()
        self._sink = None
        found = self._take()
        if self._paused and self._state is BODY:
            self._paused = False
            self._deadline.set(self._deadlines.idle_s)
            self._transport.resume_reading()
        return found

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        self._unread_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> bool:
        """End the exchange; return whether the connection can take another one. If it can't, it is closed."""
        self._deadline.clear()
        if self._state is COMPLETE and self._reusable and not self._paused:
            self._state = IDLE
            self.idle_since = self._loop.time()
            return True
        self.close()
        return False

    # -- while it is idle ----------------------------------------------------------------------------------------------

    def usable(self, keep_alive_s: float) -> bool:
        """Check that it can take a request: it isn't too old, and the upstream has sent nothing."""
        # The kernel may hold what the loop has not read yet: the end of the connection, or an answer out of turn (408,
        # say), which would be taken for the answer to the next request.
        idle = self._state is IDLE
        return idle and self._loop.time() - self.idle_since < keep_alive_s and not self._poll.poll(0)

    def close(self) -> None:
        """Close it at once; what is left to send is dropped."""
        if self._sending:
            self._sending.cancel()
        self._state = CLOSED
        self._deadline.clear()
        self._transport.abort()

    # -- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._state = IDLE

    def data_received(self, data: bytes) -> None:
        if self._state is not BODY and self._state is not WAITING:
            self.close()  # the upstream sends out of turn
            return
        self.answering = True
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        unread = self._unread_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, Broken) else Broken(f"not HTTP: {error}"))
            return
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
            return
        if self._unread_bytes != unread:
            self._bare_bytes = 0
        else:
            self._bare_bytes += len(data)
            if self._bare_bytes > HEAD_LIMIT_BYTES:
                self._fail(Broken(f"more than {HEAD_LIMIT_BYTES} bytes of headers, or around a chunk"))
                return
        if self._state is BODY:
            if self._sink and self._pieces:
                self._deadline.set(self._deadlines.idle_s)
                if not self._sink(self._take()):
                    self._sink = None
                return
            self._await_reader()
        self._wake()

    def _await_reader(self) -> None:
        """Stop reading while too much is unread. The upstream isn't slow then, so it has no deadline."""
        if self._paused:
            return
        if self._unread_bytes > HIGH_WATER_BYTES:
            self._paused = True
            self._deadline.clear()
            self._transport.pause_reading()
        else:
            self._deadline.set(self._deadlines.idle_s)

    def eof_received(self) -> None:
        """End the exchange: under TLS the upstream has said that nothing more comes (close_notify).

        uvloop calls this for nothing else under TLS; asyncio's own transport also does when a connection just ends.
        """
        if self._state is BODY and self._ends_with_the_connection():
            self._state = COMPLETE
            self._wake()
        # The upstream may still take the rest of the request, but it can't answer any more.
        self._lose(None)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc)
        self._state = CLOSED
        self._writable.set()
        self._deadline.cancel()
        # It refers back to this object, which would wait for the garbage collector.
        self._parser = None

    def _lose(self, exc: Exception | None) -> None:
        if self._under_way():
            self._failure = Broken(str(exc) if exc else "it closed the connection")
            self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- called by the parser ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._state is COMPLETE:
            raise Broken("it answers twice")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._request.switch:  # a client of another protocol gets the agreement as it came
            name = name.lower()
        (self.headers if self._state is WAITING else self.trailers).append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        switches = status == SWITCHING_PROTOCOLS and self._request.switch and self._parser.should_upgrade()
        if status not in FINAL and not switches:
            if status not in INTERIM or status == SWITCHING_PROTOCOLS:
                raise Broken(f"it answers with status {status}, which was not asked for")
            if self._request.inform and status != CONTINUE:  # which the client gets from us
                self._request.inform(status, self.headers.copy())
            self.headers.clear()
            return
        self.status = status
        self._state = BODY
        if self._request.method == "HEAD":
            self._complete()
            # It would wait for a body that never comes.
            self._parser = None

    def on_body(self, body: bytes) -> None:
        if self._state is COMPLETE:
            raise Broken("it answers HEAD with a body")
        self._pieces.append(body)
        self._unread_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._state is BODY:  # not a 1xx answer, nor one to HEAD
            self._complete()

    def _complete(self) -> None:
        assert self._parser is not None
        self._state = COMPLETE
        # An upstream that answered before it had the whole request may take the rest for another one.
        sent = (not self._sending or self._sending.done()) and not self._transport.get_write_buffer_size()
        self._reusable = sent and self._parser.should_keep_alive()

    def _switch(self, early: bytes) -> None:
        self._state = SWITCHED
        self._deadline.cancel()
        self._parser = None
        self.switched = End(self._transport, early)
        self._transport.set_protocol(self.switched)
        self._wake()

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _under_way(self) -> bool:
        return self._state is WAITING or self._state is BODY

    async def _wait(self) -> None:
        """Wait until something has come. Raises Broken, Silent, or what the client's body raised."""
        if self._failure:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._failure and not self._pieces:
            raise self._failure

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_late(self) -> None:
        if self._under_way():
            self._fail(Silent())

    def _fail(self, error: Exception) -> None:
        if self._under_way():
            self._failure = error
        self.close()
        self._wake()

    def _ends_with_the_connection(self) -> bool:
        """True if the answer has neither a length nor chunks."""
        return not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
