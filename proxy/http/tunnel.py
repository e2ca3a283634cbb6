"""A tunnel: what a client and an upstream say to each other once they have left HTTP for websockets, byte for byte.

Nothing here knows a frame. Each side is one end, which says at the other what it hears; one that does not read holds up
only the other's speaking. That a side has nothing more to say (half-close) is passed on as well.
"""

from __future__ import annotations

import asyncio
from typing import cast

from burnish.proxy.http.headers import RawHeaders

TUNNEL = "burnish.tunnel"
"""Extension of the ASGI scope of a request for a websocket; its ``end`` is the client's end of a tunnel."""

# What a side may say before the other is there. A websocket's client has to wait (RFC 6455 §4.1), a server has not.
EARLY_BYTES = 64 * 1024


class End(asyncio.Protocol):
    """One side's connection, as the protocol of its transport."""

    def __init__(self, transport: asyncio.Transport, early: bytes = b"") -> None:
        """``early`` came behind the head, in the same piece."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._other: End | None = None
        self._early = [early] if early else []
        self.heard_bytes = len(early)
        self.heard_at = self._loop.time()
        self.silent = False
        """Whether it has said that it will say nothing more."""
        self.fault: Exception | None = None
        """What broke the connection, where it was broken."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""

    def join(self, other: End) -> None:
        """Have what is heard here said at the other end from now on."""
        self._other = other

    def go_on(self) -> None:
        """Say at the other end what was heard before there was one."""
        assert self._other is not None
        self.listen(True)
        if self._early:
            self._other.say(b"".join(self._early))
            self._early = []
        if self.lost.done():
            self._other.close()
        elif self.silent:
            self._other.fall_silent()

    @property
    def joined(self) -> bool:
        """Whether there is another end."""
        return self._other is not None

    def say(self, content: bytes) -> None:
        """Send something to this side."""
        if not self._transport.is_closing():
            self._transport.write(content)

    def fall_silent(self) -> None:
        """Tell this side that nothing more will come; TLS cannot say so without closing."""
        if self.silent or not self._transport.can_write_eof():
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()

    def listen(self, on: bool) -> None:
        """Hear this side from now on, or do not."""
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close the connection once all that was said to this side is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        self._transport.abort()

    # -- what the loop tells -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass on what has come."""
        self.heard_bytes += len(data)
        self.heard_at = self._loop.time()
        if self._other:
            self._other.say(data)
            return
        self._early.append(data)
        if self.heard_bytes > EARLY_BYTES:
            self.listen(False)

    def eof_received(self) -> bool:
        """Pass on that nothing more will come; return whether this side may still be told something."""
        if not self._transport.can_write_eof():
            return False
        self.silent = True
        if self._other is None:
            return True
        self._other.fall_silent()
        return not self._other.silent

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other connection as well."""
        self.fault = exc
        if not self.lost.done():
            self.lost.set_result(None)
        if self._other:
            self._other.close()

    def pause_writing(self) -> None:
        """Hold up the other side, which speaks faster than this one reads."""
        if self._other:
            self._other.listen(False)

    def resume_writing(self) -> None:
        """Go on: it has caught up."""
        if self._other:
            self._other.listen(True)


class ClientEnd(End):
    """The client's side. Until the upstream has agreed, it is a request of HTTP, which may be answered as any other."""

    def __init__(self, http: asyncio.Protocol, transport: asyncio.BaseTransport, early: bytes) -> None:
        """``http`` is the protocol that has read the request."""
        super().__init__(cast(asyncio.Transport, transport), early)
        self._http = http

    def agree(self, headers: RawHeaders) -> None:
        """Tell the client that the upstream has agreed, in its own words."""
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.say(b"".join([b"HTTP/1.1 101 Switching Protocols\r\n", *lines, b"\r\n"]))

    def eof_received(self) -> bool:
        """As above; a client that says so before there is a tunnel has left, as with any request."""
        return self.joined and super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server, which counts its connections and cancels the request."""
        super().connection_lost(exc)
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hold up the other side, or the answer to the request."""
        super().pause_writing()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Go on: it has caught up."""
        super().resume_writing()
        self._http.resume_writing()


async def carry(client: End, upstream: End, idle_s: float) -> bool:
    """Pass on what each side says until both connections are gone; False when neither said anything for too long."""
    loop = asyncio.get_running_loop()
    client.join(upstream)
    upstream.join(client)
    client.go_on()
    upstream.go_on()
    try:
        while not (client.lost.done() and upstream.lost.done()):
            left_s = max(client.heard_at, upstream.heard_at) + idle_s - loop.time()
            if left_s <= 0:
                return False
            await asyncio.wait(
                {client.lost, upstream.lost}, timeout=left_s, return_when=asyncio.ALL_COMPLETED
            )
        return True
    finally:
        client.abort()
        upstream.abort()
        await asyncio.wait({client.lost, upstream.lost})  # which is at once
