"""Which headers cross the proxy: everything but what belongs to one hop (RFC 9110 §7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

RawHeaders = list[tuple[bytes, bytes]]
Named = Mapping[bytes, bytes]
"""The first value of each header, by its name in lower case."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_FOR_UPSTREAM = HOP_BY_HOP | {b"host", b"content-length", b"expect"}  # which the pool sets
HARMLESS = frozenset({b"close", b"keep-alive"})
"""What ``Connection`` says that names no header."""
OURS = b"x-burnish-"
"""Prefix of the headers that speak to burnish; they stop here."""

COMPLETION_ID = b"x-burnish-completion-id"
INSTANT = b"x-burnish-instant"
"""How many wishes were added to the system prompt; 0: there are some, but the request or the engine takes none."""

SESSION_HEADERS = (b"x-burnish-session", b"x-claude-code-session-id", b"x-session-id", b"session-id")
"""Where known clients say which session a request belongs to, ours first."""


def _without(dropped: frozenset[bytes], headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Drop headers, and those that ``Connection`` names; order and duplicates stay."""
    kept, named = list[tuple[bytes, bytes]](), set[bytes]()
    for header in headers:
        name = header[0].lower()
        if name == b"connection":
            named.update(token.strip().lower() for token in header[1].split(b","))
        elif name not in dropped:
            kept.append(header)
    return [header for header in kept if header[0].lower() not in named] if named - HARMLESS else kept


def to_upstream(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of a request as the upstream gets them; ``host`` and ``content-length`` are set by the pool."""
    kept = _without(NOT_FOR_UPSTREAM, headers)
    return [header for header in kept if not header[0].lower().startswith(OURS)]


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of a response as the client gets them."""
    return _without(HOP_BY_HOP, headers)


def by_name(headers: Sequence[tuple[bytes, bytes]]) -> Named:
    """Return headers so that they can be looked up."""
    return {name.lower(): value for name, value in reversed(headers)}


def first(headers: Named, *names: bytes) -> str | None:
    """Return the value of the first of some headers that is present (names in lower case)."""
    for name in names:
        if (value := headers.get(name)) is not None:
            return value.decode("latin-1")
    return None
