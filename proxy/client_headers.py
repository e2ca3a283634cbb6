"""Headers between clients and burnish, and placeholder keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

PREFIX = b"x-burnish-"
"""Headers with this prefix are between a client and burnish. They never reach an upstream."""

CORS = b"access-control-"
"""So begin the headers that say which web pages may read an answer."""
_PREFIX, _CORS = len(PREFIX), len(CORS)
ABOUT_THE_ADDRESS = frozenset({
    b"set-cookie", b"set-cookie2", b"clear-site-data", b"refresh", b"strict-transport-security", b"alt-svc",
    b"public-key-pins", b"service-worker-allowed", b"reporting-endpoints", b"report-to", b"nel",
})  # fmt: skip
"""Headers that a browser applies to the address that it asked, which is burnish's."""

CALLER = b"x-burnish-user"
LOCAL_CALLER = "local"
"""The caller of a request without that header: the person at this machine."""
SESSION_HEADERS = (b"x-burnish-session", b"x-claude-code-session-id", b"x-session-id", b"session-id")
"""Where known clients name the session of a request; burnish's own header goes first."""
SUB_AGENT_HEADERS = (b"x-claude-code-agent-id", b"x-parent-session-id")
"""Sent only by sub-agents of Claude Code and opencode."""

COMPLETION_ID = b"x-burnish-completion-id"
BEST_OF = b"x-burnish-best-of"
"""Of a request: of how many answers the best one is wanted. Of an answer: of how many it is."""
REWARD = b"x-burnish-reward"
INSTRUCTIONS = b"x-burnish-instructions"
"""How many instructions were added to the system prompt. 0: the request or the engine takes none of the caller's."""

KEY_HEADER = "x-burnish-key"
"""Carries the key of burnish, so ``Authorization`` can carry the key of the upstream."""
ANY_KEY = "burnish"
"""For agents that require a key when burnish needs none."""
NO_KEYS = frozenset({ANY_KEY, "-", "DUMMY_KEY"})
"""Placeholders, which count as no key: ``ANY_KEY``, ``-`` (our examples), and the key that ``llm`` sends."""

AGENTS = {
    "claude-cli": "claude-code",
    "codex_cli_rs": "codex",
    "codex_exec": "codex",
    "codex-tui": "codex",
    "qwencode": "qwen-code",
    "geminicli": "gemini-cli",
    "mozilla": "browser",
}
"""Names by which programs call themselves in User-Agent, in lower case → ours. Others keep theirs."""
PRODUCT = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,39}(?=[/ (]|\Z)")


def without_ours(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Drop what only burnish may say to a client.

    An upstream may be another burnish, with IDs of its own. And what it tells a browser to keep, to forget or to allow
    would hold for burnish's own page, which has the same address.
    """
    return [
        header
        for header in headers
        if header[0] not in ABOUT_THE_ADDRESS and header[0][:_PREFIX] != PREFIX and header[0][:_CORS] != CORS
    ]


def caller_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the user that a request names (headers by their names in lower case)."""
    caller = headers[CALLER].decode("latin-1") if CALLER in headers else ""
    return caller or LOCAL_CALLER


def agent_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the program that sends a request; None if it doesn't say."""
    return _agent(headers.get(b"user-agent", b""))


@lru_cache(maxsize=256)
def _agent(user_agent: bytes) -> str | None:
    match = PRODUCT.match(user_agent)
    if match is None:
        return None
    name = match[0].decode().lower()
    return AGENTS.get(name, name)
