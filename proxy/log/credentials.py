"""Finds keys and tokens in what is logged, by the patterns of those who issue them.

Most texts have no long word, so they aren't searched at all. In others the mark of each kind is searched first, near
the long words. Every repetition is bounded, so the time grows with the length of the text only.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

WORD = (string.ascii_letters + string.digits + "_-").encode()
AS_WORDS = bytes(ord("w") if each in WORD else ord(" ") for each in range(256))
LONG_WORD = b"w" * 20
"""In each kind of key."""
DISTINCT = 10
"""Different characters in a real key, at least; placeholders have fewer (``sk-xxxx…``)."""
SAMPLE = b"EXAMPLE"
"""In the keys that AWS prints in its documentation."""
LOOK_BACK = 12
MARK_BEFORE = 56
"""Bytes before a long word in which the mark of its kind begins, unless that stands apart: a JSON web token may have
a short word between, and Slack's addresses have two."""
TOKEN = re.compile(rb"\A[^\s\"'<>,;]*")
"""The rest of a key that has been found."""
REPLACEMENT = "…".encode()


class Kind(NamedTuple):
    """A kind of key: its mark, and what stands before and after it."""

    mark: bytes
    after: re.Pattern[bytes]
    """Begins with the mark, which makes it fast."""
    before: re.Pattern[bytes]
    apart: bool = False
    """True if its long word may stand far behind its mark."""


# The text is JSON, where a line break is a backslash and a letter.
BEGINNING = rb"(?:\A|[^A-Za-z0-9_-]|\\[nrt])\Z"


def _kind(mark: bytes, after: bytes, before: bytes = BEGINNING, *, apart: bool = False) -> Kind:
    return Kind(mark, re.compile(re.escape(mark) + after, re.ASCII), re.compile(before), apart)


KINDS = (
    # OpenAI, Anthropic, OpenRouter, DeepSeek, Groq, xAI and others
    _kind(b"sk-", rb"(?:(?:proj|svcacct|admin|ant|or)-[\w-]{40}|(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{32})"),
    _kind(b"gsk_", rb"[A-Za-z0-9]{40}"),
    _kind(b"xai-", rb"[A-Za-z0-9]{60}"),
    _kind(b"hf_", rb"[A-Za-z0-9]{34}"),  # Hugging Face
    _kind(b"AIza", rb"[\w-]{35}"),  # Google
    _kind(b"GOCSPX-", rb"[\w-]{28}"),
    _kind(b"AKIA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS
    _kind(b"ASIA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _kind(b"ghp_", rb"[A-Za-z0-9]{36}"),  # GitHub
    _kind(b"gho_", rb"[A-Za-z0-9]{36}"),
    _kind(b"ghs_", rb"[A-Za-z0-9]{36}"),
    _kind(b"ghu_", rb"[A-Za-z0-9]{36}"),
    _kind(b"github_pat_", rb"\w{50}"),
    _kind(b"glpat-", rb"[\w-]{20}"),  # GitLab
    _kind(b"xox", rb"[abeoprs]-(?=[A-Za-z-]{0,20}\d)[A-Za-z0-9-]{20}"),  # Slack
    _kind(b"hooks.slack.com/services/T", rb"\w{6,12}/B\w{6,12}/\w{20}", rb""),
    _kind(b"k_live_", rb"[A-Za-z0-9]{20}", rb"[sr]\Z"),  # Stripe
    _kind(b"npm_", rb"[A-Za-z0-9]{36}"),
    _kind(b"pypi-AgE", rb"[\w-]{50}"),
    _kind(b"SG.", rb"[\w-]{22}\.[\w-]{43}"),  # SendGrid
    _kind(b":AA", rb"[\w-]{33}(?![\w-])", rb"[0-9]{8}\Z"),  # Telegram's bots
    _kind(b".eyJ", rb"[\w-]{10,8192}\.[\w-]{20}", rb"[A-Za-z0-9_-]{10}\Z"),  # JSON web tokens
    _kind(b"PRIVATE KEY-----", rb"(?:\\+[nr]|\s){1,4}[A-Za-z0-9+/]{40}", rb"", apart=True),
    _kind(b"earer ", rb"(?=[A-Za-z._~+/=-]{0,200}\d)[A-Za-z0-9._~+/=-]{24}", rb"[Bb]\Z", apart=True),
)


def holds_credential(text: bytes) -> bool:
    """Return whether a text, as JSON, holds what looks like a key or a token."""
    words = text.translate(AS_WORDS)
    start = words.find(LONG_WORD)
    if start < 0:
        return False
    near = _long_words(text, words, start)
    marked = [kind for kind in KINDS if kind.mark in (text if kind.apart else near)]
    return any(_found(kind, text) for kind in marked)


def _long_words(text: bytes, words: bytes, start: int) -> bytes:
    """Return the long words of a text, each with what stands before it; the first begins at ``start``."""
    parts = []
    while start >= 0:
        end = words.find(b" ", start)
        end = end if end >= 0 else len(text)
        parts.append(text[max(0, start - MARK_BEFORE) : end])
        start = words.find(LONG_WORD, end)
    return b" ".join(parts)


def without_credentials(text: str) -> str:
    found = text.encode(errors="backslashreplace")
    if not holds_credential(found):
        return text
    for kind in KINDS:
        while key := _found(kind, found):
            after = b"" if kind.mark.startswith(b"PRIVATE") else TOKEN.sub(b"", found[key.end() :], 1)
            found = found[: key.start()] + REPLACEMENT + after
    return found.decode()


def _found(kind: Kind, text: bytes) -> re.Match[bytes] | None:
    """Return the first key of a kind, or its beginning if it is long."""
    for found in kind.after.finditer(text):
        start = found.start()
        if (
            len(set(found[0])) >= DISTINCT
            and SAMPLE not in found[0]
            and kind.before.search(text[max(0, start - LOOK_BACK) : start])
        ):
            return found
    return None
