"""Answers to HTTP/1.0 clients (``curl -0``, nginx by default), which know no chunks (RFC 9112 §6.1)."""

from __future__ import annotations

import socket
import struct

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

RESET_AT_ONCE = struct.pack("ii", 1, 0)


class _AnyLength(int):
    """Length of a body that ends with its connection; uvicorn compares what it sends with it."""

    def __lt__(self, sent: int) -> bool:
        return False

    def __sub__(self, sent: int) -> _AnyLength:
        return self

    def __ne__(self, left: object) -> bool:
        return False

    __hash__ = int.__hash__


def without_chunks(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
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
