"""The paths that belong to the page."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.types import Scope

from burnish.proxy.http.browsers import FREE
from burnish.proxy.http.headers import named_headers

FILES = "/burnish/page/"
ENGINE = "/burnish/engine/"
"""Below it the upstream answers as it would at ``/``: an engine's own page lives there."""
EVENTS = "/burnish/events"
READS = ("GET", "HEAD")


def is_page(scope: Scope) -> bool:
    """Whether a request is for the page or one of its files. Anybody may load them: a login begins there."""
    if scope["method"] not in READS:
        return False
    path: str = scope["path"]
    return path.startswith(FILES) or is_front(scope)


def is_front(scope: Scope) -> bool:
    """Whether a browser asks for ``/``. Other programs get what the upstream answers there."""
    if scope["path"] != "/" or scope["method"] not in READS:
        return False
    return b"text/html" in named_headers(scope).get(b"accept", b"")


def below_engine(scope: Scope) -> bool:
    """Whether a request is for the engine's own page."""
    path: str = scope["path"]
    raw_path: bytes = scope["raw_path"]
    return path.startswith(ENGINE) and raw_path.startswith(ENGINE.encode())


def put_below_engine(scope: Scope) -> None:
    """Take a request at the port of the engine's own page for one below ``ENGINE``."""
    scope[FREE] = True
    scope["path"], scope["raw_path"] = ENGINE[:-1] + scope["path"], ENGINE[:-1].encode() + scope["raw_path"]


def strip_engine(scope: Scope) -> None:
    """Leave the path that the upstream has."""
    cut = len(ENGINE) - 1
    scope["path"], scope["raw_path"] = scope["path"][cut:], scope["raw_path"][cut:]


def proof_in_query(scope: Scope) -> str | None:
    """Return the sign-in's proof from the query of the event stream: an EventSource can't send headers."""
    if scope["path"] != EVENTS:
        return None
    query: bytes = scope["query_string"]
    return next(iter(parse_qs(query.decode("latin-1")).get("proof", ())), None)
