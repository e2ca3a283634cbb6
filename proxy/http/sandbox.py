"""Pages of an upstream. They have burnish's address, so without a sandbox they'd have its page's storage and rights."""

from __future__ import annotations

from functools import lru_cache

from starlette.types import Scope

from burnish.proxy.http.headers import RawHeaders, value_of

FREE = "burnish.free_page"
"""Key of the ASGI scope of a request for the engine's own page, which needs its storage."""
DOCUMENTS = (
    b"text/html",
    b"application/xhtml+xml",
    b"image/svg+xml",
    b"text/xml",
    b"application/xml",
    b"text/xsl",
)
SNIFFED = (b"", b"*/*", b"unknown/unknown", b"application/unknown")
"""Types that a browser replaces by what it takes the content for."""
SANDBOX = (b"content-security-policy", b"sandbox allow-scripts allow-forms")
"""An opaque origin: scripts run, and reach neither cookies nor storage nor burnish."""
NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def sandboxed(headers: RawHeaders, scope: Scope) -> RawHeaders:
    """Return the headers of an answer; a document goes into a sandbox, and nothing is taken for one that isn't."""
    added = _added(value_of(headers, b"content-type"))
    return [*headers, *added] if added and FREE not in scope else headers


@lru_cache(maxsize=256)
def _added(content_type: bytes) -> tuple[tuple[bytes, bytes], ...]:
    kind = content_type.partition(b";")[0].strip().lower()
    if kind in DOCUMENTS:
        return (SANDBOX, NO_SNIFFING)
    return (NO_SNIFFING,) if kind in SNIFFED else ()
