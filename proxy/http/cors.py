"""Which web pages of other addresses may read burnish's answers (Fetch standard, "CORS protocol").

An upstream has no say in that. A page that is refused may read the refusal, which names the line to add.
"""

from __future__ import annotations

from starlette.types import Message, Scope, Send

from burnish.proxy.http.headers import Named, RawHeaders, first

KEPT_S = b"600"
"""How long a browser remembers what it may send."""


def is_preflight(scope: Scope, headers: Named) -> bool:
    """Return whether a browser only asks what a page may send."""
    return (
        scope["method"] == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers
    )


def preflight(headers: Named) -> RawHeaders:
    """Let a page send anything: the request itself has its origin, and is refused if that isn't allowed."""
    allowed = [
        (b"access-control-allow-origin", headers[b"origin"]),
        (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
        (b"access-control-max-age", KEPT_S),
        (b"vary", b"origin"),
    ]
    if asked := headers.get(b"access-control-request-headers"):
        allowed.append((b"access-control-allow-headers", asked))
    if first(headers, b"access-control-request-private-network") == "true":
        allowed.append((b"access-control-allow-private-network", b"true"))
    return allowed


def readable(origin: bytes, send: Send) -> Send:
    """Return ``send`` so that pages of an origin may read what it sends."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            readable_by = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", b"*"),
                (b"vary", b"origin"),
            ]
            message = {**message, "headers": [*message["headers"], *readable_by]}
        await send(message)

    return sending
