"""Which headers cross the proxy: everything but what belongs to one hop (RFC 9110 §7.6.1)."""

from __future__ import annotations

from collections.abc import Mapping

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

CREDENTIALS = (b"authorization", b"x-api-key", b"x-goog-api-key")
"""Where clients put their key: OpenAI's, Anthropic's, Google's."""

COMPLETION_ID = b"x-burnish-completion-id"
INSTRUCTIONS = b"x-burnish-instructions"
"""How many were added to the system prompt. 0: the caller has some, but the request or the engine takes none."""

SESSION_HEADERS = (b"x-burnish-session", b"x-claude-code-session-id", b"x-session-id", b"session-id")
"""Where known clients say which session a request belongs to, ours first."""
SUB_AGENT_HEADERS = (b"x-claude-code-agent-id", b"x-parent-session-id")
"""What only an agent's own agents send: Claude Code's, opencode's."""


def to_upstream(headers: RawHeaders) -> RawHeaders:
    """Headers of a request as the upstream gets them; ``host`` and ``content-length`` are set by the pool."""
    kept = [
        header
        for header in headers
        if (name := header[0].lower()) not in NOT_FOR_UPSTREAM and not name.startswith(OURS)
    ]
    return _without_named(kept, headers)


def to_client(headers: RawHeaders) -> RawHeaders:
    """Headers of a response as the client gets them."""
    return _without_named([header for header in headers if header[0].lower() not in HOP_BY_HOP], headers)


def _without_named(kept: RawHeaders, headers: RawHeaders) -> RawHeaders:
    """Drop what the ``Connection`` headers among all of them name, too; order and duplicates stay."""
    said = [value for name, value in headers if name.lower() == b"connection"]
    named = {token.strip().lower() for token in b",".join(said).split(b",")} if said else HARMLESS
    return [header for header in kept if header[0].lower() not in named] if named - HARMLESS else kept


def by_name(headers: RawHeaders) -> Named:
    """Return headers so that they can be looked up."""
    return {name.lower(): value for name, value in reversed(headers)}


def first(headers: Named, *names: bytes) -> str | None:
    """Return the value of the first of some headers that is present (names in lower case)."""
    for name in names:
        if (value := headers.get(name)) is not None:
            return value.decode("latin-1")
    return None


def caller_of(headers: Named) -> str:
    """Whose request it is: the header x-burnish-user, or the person at this machine."""
    return first(headers, b"x-burnish-user") or "local"
