"""The ASGI application: guard, then a route of ours or the relay; every error leaves in the OpenAI envelope."""

from __future__ import annotations

import logging
from collections.abc import Callable

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from burnish.proxy.access import IDENTITY, action_at, demand
from burnish.proxy.config import is_loopback
from burnish.proxy.errors import BurnishError, NotFound
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.headers import FORWARDED, Named, named_headers
from burnish.proxy.surfaces import error_at
from burnish.proxy.surfaces.catalogue import ANTHROPIC

logger = logging.getLogger(__name__)

OWN_PREFIXES = ("/burnish/", "/v1/feedback/")
OWN_PATHS = frozenset({"/healthz", "/metrics", "/v1/feedback"})


class App:
    """What the server runs."""

    def __init__(self, guard: Guard, own: ASGIApp, relay: ASGIApp, refused: Callable[[int], None]) -> None:
        """``refused`` is told the status of each error that leaves from here."""
        self._guard = guard
        self._refused = refused
        self._own = own
        self._relay = relay

    def use(self, own: ASGIApp, relay: ASGIApp) -> None:
        """Answer new requests with other parts; those under way end on the parts on which they began."""
        self._own = own
        self._relay = relay

    def _admit(self, scope: Scope) -> bool:
        """Find out who asks and whether they may; return whether the route is ours."""
        path, method, headers = scope["path"], scope["method"], named_headers(scope)
        identity = self._guard.check(path, headers)
        own = is_own(scope)
        if own:
            identity = identity._replace(local=_is_local(scope, headers))
        action = action_at(method, path) if own else self._guard.action_upstream(path)
        demand(identity, action, f"{method} {path}")
        scope[IDENTITY] = identity
        return own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = False

        async def noting_send(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            own = self._admit(scope)
            await (self._own if own else self._relay)(scope, receive, noting_send)
        except BurnishError as error:
            if begun:
                raise
            self._refused(error.status)
            await error_response(error, scope)(scope, receive, send)
        except Exception as error:
            # The last line of defence: one request's fault must not reach the client as a dropped connection.
            logger.exception("unexpected error on %s %s", scope["method"], scope["path"])
            if begun:
                raise
            self._refused(BurnishError.status)
            failed = BurnishError(f"burnish failed: {type(error).__name__}; see its log")
            await error_response(failed, scope)(scope, receive, send)


def _is_local(scope: Scope, headers: Named) -> bool:
    """Whether a request came from this machine, and not through a reverse proxy on it."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0]) and not any(name in headers for name in FORWARDED)


def is_own(scope: Scope) -> bool:
    """Whether a path is a route of ours; everything else belongs to the upstream."""
    path = scope["path"]
    return path in OWN_PATHS or path.startswith(OWN_PREFIXES)


def error_response(error: BurnishError, scope: Scope | None = None) -> Response:
    """Turn an error into its status and body, in the form that the client of a request expects."""
    content = error.envelope()
    if scope:
        anthropic = ANTHROPIC.encode() in named_headers(scope)
        content = error_at(scope["path"], error, anthropic=anthropic)
    response = Response(orjson.dumps(content), error.status, media_type="application/json")
    response.raw_headers.extend(error.headers)
    return response


async def on_burnish_error(request: Request, error: Exception) -> Response:
    """Answer an error of ours that a route raised."""
    assert isinstance(error, BurnishError)
    return error_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that no route of ours has."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    wrong = NotFound(f"{request.method} {path}: {error.detail}; see docs/routes.md for the routes")
    response = error_response(wrong)
    response.status_code = error.status_code
    return response
