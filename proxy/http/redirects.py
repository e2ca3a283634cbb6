"""Redirects of an upstream. Clients follow them, and take the prompt and burnish's own key along."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from burnish.proxy.http.errors import UpstreamUnreachable
from burnish.proxy.http.headers import RawHeaders, by_name, first

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
