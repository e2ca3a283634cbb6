"""A tunnel: passes bytes between a client and an upstream once they have left HTTP for websockets.

It knows nothing of frames. Each side is one ``End``, which sends to the other what it receives. A side that does not
read stops only the other's sending. A half-close is passed on as well.
"""

from __future__ import annotations

import asyncio
from typing import cast

from burnish.proxy.http.headers import RawHeaders, lines

TUNNEL = "burnish.tunnel"
"""Extension of the ASGI scope of a request for a websocket; its ``end`` is the client's end of a tunnel."""

# What a side may send before the other is there. The client of a websocket must wait (RFC 6455 §4.1), a server needn't.
EARLY_BYTES = 64 * 1024


class End(asyncio.Protocol):
    """One side's connection, as the protocol of its transport."""

    def __init__(self, transport: asyncio.Transport, early: bytes = b"") -> None:
        """``early`` came behind the head, in the same piece."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._other: End | None = None
        self._early = [early] if early else []
        self.received_bytes = len(early)
        self.received_at = self._loop.time()
        self.half_closed = False
        """True after its half-close."""
        self.fault: Exception | None = None
        """Error that broke the connection, if any."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""

    def join(self, other: End) -> None:
        """Send to the other end what is received here."""
        self._other = other

    def forward(self) -> None:
        """Send to the other end what was received before there was one."""
        assert self._other is not None
        self.read(True)
        if self._early:
            self._other.send(b"".join(self._early))
            self._early = []
        if self.lost.done():
            self._other.close()
        elif self.half_closed:
            self._other.half_close()

    @property
    def joined(self) -> bool:
        return self._other is not None

    def send(self, content: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(content)

    def half_close(self) -> None:
        """Half-close this side; TLS can only close."""
        if self.half_closed or not self._transport.can_write_eof():
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()

    def read(self, on: bool) -> None:
        """Read from this side, or stop reading."""
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # -- called by the event loop --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.received_at = self._loop.time()
        if self._other:
            self._other.send(data)
            return
        self._early.append(data)
        if self.received_bytes > EARLY_BYTES:
            self.read(False)

    def eof_received(self) -> bool:
        """Pass the half-close on; return whether this side can still receive."""
        if not self._transport.can_write_eof():
            return False
        self.half_closed = True
        if self._other is None:
            return True
        self._other.half_close()
        return not self._other.half_closed

    def connection_lost(self, exc: Exception | None) -> None:
        self.fault = exc
        if not self.lost.done():
            self.lost.set_result(None)
        if self._other:
            self._other.close()

    def pause_writing(self) -> None:
        """Stop reading the other side, which sends faster than this one reads."""
        if self._other:
            self._other.read(False)

    def resume_writing(self) -> None:
        if self._other:
            self._other.read(True)


class ClientEnd(End):
    """The client's side. Until the upstream agrees, it is an HTTP request that can get any answer."""

    def __init__(self, http: asyncio.Protocol, transport: asyncio.BaseTransport, early: bytes) -> None:
        """``http`` is the protocol that has read the request."""
        super().__init__(cast(asyncio.Transport, transport), early)
        self._http = http

    def agree(self, headers: RawHeaders) -> None:
        self.send(b"HTTP/1.1 101 Switching Protocols\r\n" + lines(headers))

    def eof_received(self) -> bool:
        """Pass the half-close on. Before there is a tunnel, it means that the client has left."""
        return self.joined and super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify uvicorn too, which counts connections and cancels the request."""
        super().connection_lost(exc)
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop reading the other side, and writing the answer to the request."""
        super().pause_writing()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._http.resume_writing()


async def carry(client: End, upstream: End, idle_s: float) -> bool:
    """Pass bytes on until both connections are gone; return False if both were silent for ``idle_s``."""
    loop = asyncio.get_running_loop()
    client.join(upstream)
    upstream.join(client)
    client.forward()
    upstream.forward()
    try:
        while not (client.lost.done() and upstream.lost.done()):
            left_s = max(client.received_at, upstream.received_at) + idle_s - loop.time()
            if left_s <= 0:
                return False
            await asyncio.wait(
                {client.lost, upstream.lost}, timeout=left_s, return_when=asyncio.ALL_COMPLETED
            )
        return True
    finally:
        client.abort()
        upstream.abort()
        await asyncio.wait({client.lost, upstream.lost})  # at once
