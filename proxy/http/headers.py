"""Header lists: looking names up, and dropping what belongs to one hop (RFC 9110 §7.6.1).

Names are in lower case everywhere: uvicorn and our connections to upstreams see to that.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

RawHeaders = list[tuple[bytes, bytes]]
Named = Mapping[bytes, bytes]
"""The first value of each header, by its name in lower case."""

NAMED = "burnish.headers"
"""Key of the ASGI scope under which ``named_headers`` keeps its result."""

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
NOT_FOR_UPSTREAM = HOP_BY_HOP | {b"host", b"content-length", b"expect"}  # the pool sets its own
HARMLESS = frozenset({b"close", b"keep-alive"})
"""Values of ``Connection`` that name no header; nearly all requests have one of them."""

FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""Headers by which a reverse proxy says that it asks for somebody else."""

CREDENTIALS = (b"authorization", b"x-api-key", b"x-goog-api-key")
"""Headers for a key: OpenAI's, Anthropic's, Google's."""
NOT_BEHIND = NOT_FOR_UPSTREAM | {
    b"content-encoding", b"content-range", b"content-type", b"cookie", b"set-cookie", b"trailer", *CREDENTIALS,
}  # fmt: skip


def to_upstream(headers: RawHeaders, private: bytes) -> RawHeaders:
    """Return the headers of a request that go to an upstream: none that begins with ``private``."""
    length = len(private)
    kept = [
        header for header in headers if header[0] not in NOT_FOR_UPSTREAM and header[0][:length] != private
    ]
    return _without_connection_options(kept, headers)


def to_client(headers: RawHeaders) -> RawHeaders:
    kept = [header for header in headers if header[0] not in HOP_BY_HOP]
    return _without_connection_options(kept, headers)


def trailers(headers: RawHeaders) -> RawHeaders:
    """Return those of the headers that may follow a body (RFC 9110 §6.5.1)."""
    return [header for header in headers if header[0] not in NOT_BEHIND]


def _without_connection_options(kept: RawHeaders, headers: RawHeaders) -> RawHeaders:
    """Drop the headers that a ``Connection`` header names; order and duplicates stay."""
    connection = [value for name, value in headers if name == b"connection"]
    if HARMLESS.issuperset(connection):
        return kept
    options = {option.strip().lower() for option in b",".join(connection).split(b",")}
    return [header for header in kept if header[0] not in options]


def lines(headers: RawHeaders) -> bytes:
    """Return headers as they go over the wire, with the empty line behind them."""
    return b"".join([*(b"%b: %b\r\n" % header for header in headers), b"\r\n"])


def by_name(headers: RawHeaders) -> Named:
    return dict(reversed(headers))


def named_headers(scope: Scope) -> Named:
    """Return the headers of a request by name. They are sorted out once, and kept in the scope."""
    named: Named | None = scope.get(NAMED)
    if named is None:
        named = scope[NAMED] = by_name(scope["headers"])
    return named


def first(headers: Named, *names: bytes) -> str | None:
    """Return the value of the first of these headers that is present (names in lower case)."""
    for name in names:
        if name in headers:
            return headers[name].decode("latin-1")
    return None


def value_of(headers: RawHeaders, name: bytes) -> bytes:
    """Return the first value of a header; b"" if it is absent."""
    for other, value in headers:
        if other == name:
            return value
    return b""


def encoding_of(headers: RawHeaders) -> str:
    """Return the content-encoding in lower case; "" without one."""
    value = value_of(headers, b"content-encoding")
    return value.decode("latin-1").lower() if value else ""


def secret_in(name: bytes, value: bytes) -> bytes:
    """Return the key in a header; ``name`` in lower case."""
    if name != b"authorization":
        return value
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
