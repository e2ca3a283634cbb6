"""One HTTP/1.1 connection to an upstream: a request goes out, its answer comes back as it arrives.

httptools (llhttp, Node's parser) reads what the upstream sends and refuses whatever two readers could take for two
different things: two lengths, a length beside chunks, bare line feeds. A connection is used for the next request only
if nothing at all is left of the one before.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import cast

import httptools

from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.tunnel import End

# Large enough for a burst of tokens, small enough that a slow reader holds little memory.
HIGH_WATER_BYTES = 64 * 1024
# Providers answer with long headers: rate limits, policies, cookies. The same limit holds for whatever else comes
# without a byte of the body: 1xx answers, chunk extensions, trailers.
HEAD_LIMIT_BYTES = 64 * 1024
SWITCHING_PROTOCOLS = 101
INTERIM, FINAL = range(100, 200), range(200, 600)
"""Statuses that announce an answer, and those of answers. There are no others (RFC 9110 §15)."""

Body = bytes | AsyncIterator[bytes] | None
Sink = Callable[[bytes], bool]
"""Takes a part of a body at once; says whether it would take another."""


class Broken(ConnectionError):
    """The connection ended, or what came over it is not HTTP."""


class Silent(TimeoutError):
    """The upstream let a deadline pass."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long an upstream may be silent, in seconds."""

    first_byte_s: float
    idle_s: float


class Connection(asyncio.Protocol):
    """A connection, and the exchange that is under way on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._poll = select.poll()
        self.open = False
        """Whether another request may be sent on it, once ``busy`` is over."""
        self.busy = False
        self.idle_since = 0.0
        self.may_switch = False
        """Whether the request asks for another protocol, so that 101 is an answer."""
        self.switched: End | None = None
        """What it speaks since the upstream has agreed."""
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._begin("GET")
        self.busy = False

    # -- one exchange --------------------------------------------------------------------------------------------------

    def _begin(self, method: str) -> None:
        self.busy = True
        self.status = 0
        self.headers: RawHeaders = []
        self.heard = False
        """Whether a byte of the answer has come."""
        self._bare_bytes = 0
        """How much has come since there was a byte of the body."""
        self._in_body = False
        self._no_body = method == "HEAD"
        self._finished = False
        self._reusable = False
        self._failure: Exception | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._sending: asyncio.Task[None] | None = None

    async def send(
        self, method: str, head: bytes, body: Body, deadlines: Deadlines, *, chunked: bool
    ) -> None:
        """Send a request and wait for the head of its answer: ``status``, ``headers``. Raises Broken, Silent.

        An answer may come before the request's body is through; what is left of it is sent meanwhile.
        """
        if not self.open:
            raise Broken("it closed the connection at once")
        self._begin(method)
        self._deadlines = deadlines
        if isinstance(body, bytes) or body is None:
            self._transport.write(head + body if body else head)
        else:
            self._transport.write(head)
            self._sending = self._loop.create_task(self._send_body(body, chunked=chunked))
        self._expect(deadlines.first_byte_s)
        while not self._in_body and not self._finished:
            await self._wait()

    async def _send_body(self, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for part in body:
                if not self.open:
                    return
                if part:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                    self._expect(self._deadlines.first_byte_s)
                    await self._writable.wait()
            if chunked:
                self._transport.write(b"0\r\n\r\n")
        except Exception as error:  # noqa: BLE001  (whatever kept the client from saying all, the request is not whole)
            self._fail(error)

    @property
    def finished(self) -> bool:
        """Whether the whole answer has come, read or not."""
        return self._finished

    async def read(self, sink: Sink | None = None) -> bytes:
        """Return what has come of the body since, undecoded; b"" at its end. Raises Broken, Silent.

        What comes while it waits goes into the sink instead, until that is full; the last part never does.
        """
        self._sink = sink
        while not self._parts:
            if self._finished:
                return b""
            await self._wait()
        self._sink = None
        found = self._take()
        if self._paused:
            self._paused = False
            self._expect(self._deadlines.idle_s)
            self._transport.resume_reading()
        return found

    def _take(self) -> bytes:
        parts = self._parts
        self._parts = []
        self._held = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> bool:
        """End the exchange; return whether the connection can take another one. One that can't is closed."""
        self.busy = False
        self._deadline = None
        if self.open and self._reusable and not self._paused:
            self.idle_since = self._loop.time()
            return True
        self.close()
        return False

    # -- while it is idle ----------------------------------------------------------------------------------------------

    def usable(self, keep_alive_s: float) -> bool:
        """Whether it is still good for a request: not too old, and nothing has come from the other side."""
        # What the kernel has and the loop has not read yet: an upstream that hung up a moment ago, or that says
        # something (a 408, say), which would be taken for the answer to the next request.
        return self.open and self._loop.time() - self.idle_since < keep_alive_s and not self._poll.poll(0)

    def close(self) -> None:
        """Close it at once: nothing that is left to send is worth sending."""
        if self._sending:
            self._sending.cancel()
        self.open = self.busy = False
        self._deadline = None
        self._transport.abort()

    # -- what the loop tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can be used from now on."""
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and wake who waits for it."""
        if not self.busy or self._finished:
            self.close()  # it speaks out of turn
            return
        self.heard = True
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        held = self._held
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            why = error.__context__
            self._fail(why if isinstance(why, Broken) else Broken(f"not HTTP: {error}"))
            return
        except httptools.HttpParserUpgrade as agreed:
            self._switch(data[agreed.args[0] :])
            return
        if self._held != held:
            self._bare_bytes = 0
        else:
            self._bare_bytes += len(data)
            if self._bare_bytes > HEAD_LIMIT_BYTES:
                self._fail(Broken(f"more than {HEAD_LIMIT_BYTES} bytes of headers, or around a chunk"))
                return
        if self._sink and self._parts and not self._finished:
            self._expect(self._deadlines.idle_s)
            if not self._sink(self._take()):
                self._sink = None
            return
        if self._held > HIGH_WATER_BYTES and not self._paused and not self._finished:
            self._paused = True
            self._deadline = None  # it is not the upstream that is slow
            self._transport.pause_reading()
        elif self._in_body and not self._paused:
            self._expect(self._deadlines.idle_s)
        self._wake()

    def eof_received(self) -> None:
        """Take note that nothing more will come. Under TLS that was said then (close_notify), so it is no cut.

        uvloop calls this for nothing else under TLS; asyncio's own transport also does for a connection that just ends.
        """
        if self.busy and self._in_body and self._ends_with_the_connection():
            self._finished = True
            self._wake()
        # It may still take what is left of the request, but nobody will say what became of it.
        self._lose(None)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that it is gone; unless that was said before, whatever was under way is cut."""
        self._lose(exc)
        self._writable.set()
        if self._timer:
            self._timer.cancel()
        # It refers back to this object, which would wait for the garbage collector then.
        self._parser = None

    def _lose(self, exc: Exception | None) -> None:
        self.open = False
        if self.busy and not self._finished:
            self._failure = self._failure or Broken(str(exc) if exc else "it closed the connection")
            self._wake()

    def pause_writing(self) -> None:
        """The upstream is slower than the client."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._writable.set()

    # -- what the parser tells -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self._finished:
            raise Broken("it answers twice")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if not self._in_body:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The end of a head, of the answer's or of one that only announces it."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        switches = status == SWITCHING_PROTOCOLS and self.may_switch and self._parser.should_upgrade()
        if status not in FINAL and not switches:
            if status not in INTERIM or status == SWITCHING_PROTOCOLS:
                raise Broken(f"it answers with status {status}, which nobody asked for")
            self.headers.clear()
            return
        self.status = status
        self._in_body = True
        if self._no_body:
            self._finish()
            # It waits for a body that never comes.
            self._parser = None

    def on_body(self, body: bytes) -> None:
        """A part of the body, without its framing."""
        if self._finished:
            raise Broken("it answers HEAD with a body")
        self._parts.append(body)
        self._held += len(body)

    def on_message_complete(self) -> None:
        """The end of an answer, or of what only announces it."""
        if self._in_body and not self._finished:  # an answer to HEAD has ended already
            self._finish()

    def _finish(self) -> None:
        assert self._parser is not None
        self._finished = True
        # An upstream that answered before it had the whole request may take the rest for another one.
        sent = (not self._sending or self._sending.done()) and not self._transport.get_write_buffer_size()
        self._reusable = sent and self._parser.should_keep_alive()

    def _switch(self, early: bytes) -> None:
        """Leave HTTP: what comes from now on is another protocol's."""
        self.open = False
        self._deadline = None
        if self._timer:
            self._timer.cancel()
        self._parser = None
        self.switched = End(self._transport, early)
        self._transport.set_protocol(self.switched)
        self._wake()

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Wait until something has come. Raises what went wrong."""
        if self._failure:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._failure and not self._parts and not self._finished:
            raise self._failure

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.close()
        self._wake()

    def _expect(self, seconds: float) -> None:
        """Let the upstream be silent for so long from now on."""
        deadline = self._deadline = self._loop.time() + seconds
        if self._timer and deadline < self._timer.when():
            self._timer.cancel()
            self._timer = None
        # A timer that fires early looks again: to move one on with each chunk costs more than all else here.
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None or self._finished:
            return
        if self._deadline > self._loop.time():
            self._timer = self._loop.call_at(self._deadline, self._look)
        else:
            self._fail(Silent())

    def _ends_with_the_connection(self) -> bool:
        """Whether the answer says neither how long it is nor that it comes in chunks."""
        return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
