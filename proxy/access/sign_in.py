"""The page's sign-in: a cookie, and a proof that the page keeps. A request needs both, and nothing is stored here.

A browser sends a cookie to every port of a host, so another server there can read it. The page's own storage belongs
to one origin, but scripts can read it. So the cookie is httpOnly, the proof is in that storage, and neither counts
alone. Another site can't send the proof either, so it can't use the cookie (CSRF).

Both are made from the key that somebody signed in with. They end with that key, and hold after a restart.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from functools import lru_cache
from typing import NamedTuple

LIFETIME_S = 30 * 24 * 3600
CLOCK_S = 24 * 3600
"""How far our clock may have been set back since. An end further away than this and a lifetime isn't believed."""
NONCE_BYTES = 16
PROOF = b"x-burnish-page"
"""The header with the proof."""
COOKIES = b"burnish_"
"""Beginning of the cookie's name. The port follows, because two burnishes on one host share their cookies."""


class SignIn(NamedTuple):
    cookie: str
    proof: str
    until: int
    """Seconds since the epoch, UTC."""


def sign_in(key: bytes, moment: float) -> SignIn:
    """Make a cookie and its proof for somebody who has shown this key."""
    until = int(moment) + LIFETIME_S
    content = f"{until}.{secrets.token_urlsafe(NONCE_BYTES)}"
    return SignIn(f"{content}.{_mac(key, 'cookie', content)}", _mac(key, "proof", content), until)


def signed_in_until(key: bytes, cookie: str, proof: str, moment: float) -> int | None:
    """Return when a sign-in with this key ends; None if the cookie or the proof isn't from it, or it has ended."""
    content, _, mac = cookie.rpartition(".")
    if not _same(mac, _mac(key, "cookie", content)) or not _same(proof, _mac(key, "proof", content)):
        return None
    until = int(content.partition(".")[0])
    return until if moment < until <= moment + LIFETIME_S + CLOCK_S else None


def cookie_name(host: str) -> str:
    port = host.rpartition(":")[2]
    return COOKIES.decode() + (port if port.isascii() and port.isdecimal() else "")


def cookies_in(header: str, name: str) -> list[str]:
    """Return all values that a ``Cookie`` header has for a name: there is one for each path that set it."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [cookie for key, _, cookie in pairs if key == name]


def _same(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode("latin-1", "replace"), expected.encode())


def _mac(key: bytes, use: str, content: str) -> str:
    digest = hmac.digest(_stretched(key), f"{use}.{content}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=8)
def _stretched(key: bytes) -> bytes:
    """Make guesses slow: who has a stolen cookie could try short keys on it. Only once: streams wait meanwhile."""
    return hashlib.scrypt(key, salt=b"burnish page", n=2**12, r=8, p=1)
