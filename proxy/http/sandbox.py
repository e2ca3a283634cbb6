"""Pages of an upstream. They have burnish's address, so without a sandbox they'd have its page's storage and rights."""

from __future__ import annotations

from starlette.types import Scope

from burnish.proxy.http.headers import RawHeaders, by_name

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
SANDBOX = [(b"content-security-policy", b"sandbox allow-scripts allow-forms")]
"""An opaque origin: scripts run, and reach neither cookies nor storage nor burnish."""
NO_SNIFFING = [(b"x-content-type-options", b"nosniff")]


def sandboxed(headers: RawHeaders, scope: Scope) -> RawHeaders:
    """Return the headers of an answer; a document goes into a sandbox, and nothing is taken for one that isn't."""
    kind = by_name(headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if scope.get(FREE) or kind not in (*DOCUMENTS, *SNIFFED):
        return headers
    return [*headers, *(SANDBOX if kind in DOCUMENTS else ()), *NO_SNIFFING]
