"""What browsers are told, in which an upstream has no say: redirects, pages, and which pages may read answers.

Clients follow redirects, and take the prompt and burnish's own key along. An upstream's pages have burnish's address:
without a sandbox they'd have the storage and rights of its page.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urljoin, urlsplit

from starlette.types import Message, Scope, Send

from burnish.proxy.http.errors import UpstreamUnreachable
from burnish.proxy.http.headers import Named, RawHeaders, by_name, first, value_of

REDIRECTS = frozenset({300, 301, 302, 303, 305, 306, 307, 308})


def check_redirect(headers: RawHeaders, asked: str, *, completion: bool) -> None:
    """Raise UpstreamUnreachable for a redirect of a completion, or to another server than that of the URL ``asked``."""
    location = first(by_name(headers), b"location")
    if location is None and not completion:
        return
    try:
        target = urljoin(asked, (location or "").strip().replace("\\", "/"))
    except ValueError:  # no address at all
        target = ""
    if not completion and _server(target) == _server(asked):
        return
    raise UpstreamUnreachable(
        f"the upstream redirects to {_shown(target)}, and burnish doesn't follow: if you trust that server, set it as "
        "upstream",
        code="upstream_redirects",
    )


def _server(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        return (
            (parts.scheme, parts.hostname or "", parts.port or default) if "@" not in parts.netloc else None
        )
    except ValueError:  # no address at all
        return None


def _shown(url: str) -> str:
    server = _server(url)
    return f"{server[0]}://{server[1]}:{server[2]}" if server and server[1] else "an address that isn't one"


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


# -- pages of other addresses (Fetch standard, "CORS protocol"); a page that is refused may read the refusal -----------

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
