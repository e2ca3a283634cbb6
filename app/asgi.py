"""The ASGI application: guard, then a route of ours or the relay; every error leaves in the OpenAI envelope."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from burnish.config.config import is_loopback
from burnish.parts.page.paths import (
    READS,
    below_engine,
    is_front,
    is_page,
    proof_in_query,
    put_below_engine,
    strip_engine,
)
from burnish.proxy.access.access import IDENTITY, IN_ROLLOUT, Action, action_at, demand
from burnish.proxy.access.carried import ROLLOUT, Carried, RolloutName, named_by
from burnish.proxy.access.guard import Guard, crosses
from burnish.proxy.client_headers import CALLER
from burnish.proxy.http.browsers import is_preflight, preflight, readable
from burnish.proxy.http.errors import BurnishError, InvalidRequest, NotFound
from burnish.proxy.http.headers import FORWARDED, NAMED, Named, named_headers
from burnish.proxy.surfaces import error_at
from burnish.proxy.surfaces.catalogue import ANTHROPIC

logger = logging.getLogger(__name__)

OWN_PREFIXES = ("/burnish/", "/v1/feedback/", "/v1/rollouts/")
OWN_PATHS = frozenset({"/healthz", "/metrics", "/v1/feedback", "/v1/rollouts"})
BY_PROXY = ("api_key", "none")
"""Keys behind which a trusted proxy may say who asks."""
PATH_CHARACTERS = 200
"""Of a path that is logged."""


@dataclass(eq=False, slots=True)
class App:
    guard: Guard
    own: ASGIApp
    relay: ASGIApp
    carried: Callable[[RolloutName], Awaitable[Carried]]
    """Returns an open rollout."""
    refused: Callable[[int], None]
    """Gets the status of each error answered here."""
    engine_port: int | None = None
    """Where the engine's own page is, at an address of its own; None: nowhere."""

    def use(self, own: ASGIApp, relay: ASGIApp) -> None:
        """Answer new requests with other parts; those under way end on the parts on which they began."""
        self.own = own
        self.relay = relay

    def _admit(self, scope: Scope, rollout: RolloutName | None) -> bool:
        """Find out who asks and whether they may; return whether the route is ours."""
        path, method, headers = scope["path"], scope["method"], named_headers(scope)
        front = is_front(scope)
        from_engine = below_engine(scope)
        own = not from_engine and (front or is_own(path))
        action = Action.ASK
        if own:
            action = Action.OPEN if front or is_page(scope) else action_at(method, path)
        identity = self.guard.check(
            path,
            headers,
            public=action is Action.OPEN,
            navigation=front,
            proof=proof_in_query(scope) if own else None,
            rollout_key=rollout is not None and rollout.proof is not None,
        )
        if own:
            identity = IN_ROLLOUT if rollout else identity._replace(local=_is_local(scope, headers))
        else:
            if from_engine:
                strip_engine(scope)
                path = scope["path"]
            action = self.guard.action_upstream(path, by_page=from_engine and method in READS)
        if CALLER in headers and identity.key in BY_PROXY and self.guard.vouched(scope):
            identity = identity._replace(key="proxy")
        demand(identity, action, f"{method} {path}")
        scope[IDENTITY] = identity
        return own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        headers = named_headers(scope)
        if self.engine_port and scope["server"][1] == self.engine_port:
            put_below_engine(scope)
        elif (
            self.engine_port
            and below_engine(scope)
            and scope["method"] in READS
            and is_loopback(host_in(headers))
        ):
            await _to_engine(headers, scope, self.engine_port)(scope, receive, send)
            return
        if is_preflight(scope, headers):
            allowed = Response(status_code=HTTPStatus.NO_CONTENT)
            allowed.raw_headers.extend(preflight(headers))
            await allowed(scope, receive, send)
            return
        if b"origin" in headers and crosses(headers):
            send = readable(headers[b"origin"], send)

        async def noting_send(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            rollout = named_by(scope, headers)
            own = self._admit(scope, rollout)
            if rollout:
                scope[ROLLOUT] = await self.carried(rollout)
                name_caller(scope, scope[ROLLOUT].caller)
            await (self.own if own else self.relay)(scope, receive, noting_send)
        except BurnishError as error:
            if begun:
                raise
            self.refused(error.status)
            await error_response(error, scope)(scope, receive, send)
        except Exception as error:
            path, query = scope["path"][:PATH_CHARACTERS], scope["query_string"]
            logger.error(
                "unexpected error on %s %s", scope["method"], path, exc_info=error, extra={"query": query}
            )
            if begun:
                return  # the server closes the connection, so that no client takes half an answer for a whole one
            self.refused(BurnishError.status)
            await error_response(_failed(error), scope)(scope, receive, send)


def name_caller(scope: Scope, caller: str) -> None:
    """Replace the name of the user in a request: what an agent in a rollout says proves nothing."""
    headers = [header for header in scope["headers"] if header[0].lower() != CALLER]
    scope["headers"] = [*headers, (CALLER, caller.encode("latin-1", "replace"))]
    scope.pop(NAMED, None)


def host_in(headers: Named) -> str:
    """Return the name by which a client calls burnish, without the port; "" if it is none."""
    try:
        return urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname or ""
    except ValueError:  # half an IPv6 address
        return ""


def _to_engine(headers: Named, scope: Scope, port: int) -> Response:
    """Send a browser to the port of the engine's own page."""
    strip_engine(scope)
    host = host_in(headers)
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    there = f"http://{f'[{host}]' if ':' in host else host}:{port}".encode() + scope["raw_path"] + query
    response = Response(status_code=HTTPStatus.TEMPORARY_REDIRECT)
    response.raw_headers.append((b"location", there))
    return response


def _failed(error: Exception) -> BurnishError:
    return BurnishError(f"burnish failed: {type(error).__name__}; see its log")


def _is_local(scope: Scope, headers: Named) -> bool:
    """Return whether a request came from this machine, and not through a reverse proxy on it."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0]) and not any(name in headers for name in FORWARDED)


def is_own(path: str) -> bool:
    """Return whether a path is a route of ours. Everything else belongs to the upstream, except a browser's ``/``."""
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


def own_application(routes: Sequence[BaseRoute]) -> ASGIApp:
    handlers = {
        BurnishError: _on_error,
        ClientDisconnect: _on_leaving,
        HTTPException: _on_http_error,
        Exception: _on_error,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, BurnishError) else _failed(error))


async def _on_leaving(request: Request, error: Exception) -> Response:
    return error_response(InvalidRequest("the client left before its request was complete"))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that no route of ours has."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    wrong = NotFound(f"{request.method} {path}: {error.detail}; see docs/routes.md for the routes")
    response = error_response(wrong)
    response.status_code = error.status_code
    return response
