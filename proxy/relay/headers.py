"""Which headers cross the proxy: everything but what belongs to one hop (RFC 9110 §7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable

RawHeaders = list[tuple[bytes, bytes]]

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
OURS = b"x-burnish-"
"""Prefix of the headers that speak to burnish; they stop here."""

COMPLETION_ID = b"x-burnish-completion-id"
INSTANT = b"x-burnish-instant"
"""How many wishes were added to the system prompt; 0: there are some, but the request or the engine takes none."""

SESSION_HEADERS = (b"x-burnish-session", b"x-claude-code-session-id", b"x-session-id", b"session-id")
"""Where known clients say which session a request belongs to, ours first."""


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Drop hop-by-hop headers and those that ``Connection`` names; order and duplicates stay."""
    kept = [(name, value) for name, value in headers]
    named = {
        token.strip().lower()
        for name, value in kept
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return [(name, value) for name, value in kept if name.lower() not in HOP_BY_HOP | named]


def to_upstream(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of a request as the upstream gets them; ``host`` and ``content-length`` are set by the client."""
    return [
        (name, value)
        for name, value in _end_to_end(headers)
        if name.lower() not in (b"host", b"content-length", b"expect") and not name.lower().startswith(OURS)
    ]


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of a response as the client gets them."""
    return _end_to_end(headers)


def first(headers: Iterable[tuple[bytes, bytes]], *names: bytes) -> str | None:
    """Return the value of the first of some headers that is present (names in lower case)."""
    present: dict[bytes, bytes] = {}
    for name, value in headers:
        present.setdefault(name.lower(), value)
    for name in names:
        if name in present:
            return present[name].decode("latin-1")
    return None
