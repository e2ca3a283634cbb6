"""Sends requests to targets: with which headers, whose key, to which address, and with which name of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from starlette.types import Scope

from burnish.proxy.access.guard import Guard
from burnish.proxy.client_headers import NO_KEYS, PREFIX, without_ours
from burnish.proxy.http.browsers import REDIRECTS, check_redirect, sandboxed
from burnish.proxy.http.connection import Body, Inform
from burnish.proxy.http.errors import BurnishError
from burnish.proxy.http.headers import (
    CREDENTIALS,
    NAMED,
    RawHeaders,
    by_name,
    first,
    named_headers,
    to_client,
    to_upstream,
    trailers,
)
from burnish.proxy.http.listener import INFORM, WITH_TRAILERS
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.http.pool import DirectResponse, Pool
from burnish.proxy.relay.routing import KEY_HEADERS, Target, placed
from burnish.proxy.surfaces import Surface, surface_at, usual_path
from burnish.proxy.surfaces.catalogue import ANTHROPIC
from burnish.proxy.surfaces.paths import GOOGLE

# Clients of Google may also put their key into the query.
ANTHROPIC_KEY_HEADER = b"x-api-key"
GOOGLE_KEY_HEADER, QUERY_KEY = b"x-goog-api-key", b"key="
_NO_KEYS = frozenset(key.encode() for key in NO_KEYS) | {b"", b"Bearer"}
SWITCH = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


class Sender(Protocol):
    async def send(self, scope: Scope, target: Target, body: Body, raw_path: bytes) -> UpstreamResponse:
        """Send a request and wait for the head of its answer. Raises what the pool raises."""


class Outbound:
    def __init__(self, pool: Pool, guard: Guard) -> None:
        self._pool = pool
        self._guard = guard

    async def send(self, scope: Scope, target: Target, body: Body, raw_path: bytes) -> UpstreamResponse:
        headers, (address, path) = self._addressed(scope, target, raw_path)
        whole = body is None or isinstance(body, bytes)
        if not whole and (length := named_headers(scope).get(b"content-length")):
            headers.append((b"content-length", length))
        inform: Inform | None = scope["extensions"].get(INFORM)
        response = await self._pool.send(
            scope["method"],
            address,
            headers,
            body,
            path=path,
            reuse=target.reuse_connections,
            inform=partial(_inform, inform) if inform else None,
            trailers=None if whole else partial(self._trailers, scope),
        )
        if response.status in REDIRECTS:
            completion = surface_at(scope["path"]) is not None
            try:
                check_redirect(response.headers, address + path, completion=completion)
            except BurnishError:
                response.close()
                raise
        response.headers = sandboxed(without_ours(response.headers), scope)
        return response

    async def switch(self, scope: Scope, target: Target) -> DirectResponse:
        headers, (address, path) = self._addressed(scope, target, scope["raw_path"])
        response = await self._pool.switch(address, path, headers + SWITCH)
        named = [(name.lower(), value) for name, value in response.headers]
        kept = without_ours(named)
        if response.switched:
            kept = [
                as_came for as_came, header in zip(response.headers, named, strict=True) if header in kept
            ]
        response.headers = kept
        return response

    def key_for(self, scope: Scope, target: Target) -> str | None:
        """Return the key with which a request reaches a target, if that is a bearer token."""
        given = by_name(self._addressed(scope, target, b"/")[0])
        kind, _, key = (first(given, b"authorization") or "").partition(" ")
        return key if kind.lower() == "bearer" and key else None

    def _trailers(self, scope: Scope) -> RawHeaders:
        """Return what may go upstream of the trailers of a request, whose body was read."""
        behind: RawHeaders = scope.get(WITH_TRAILERS, [])[len(scope["headers"]) :]
        return trailers(self._guard.without_key(to_upstream(behind, PREFIX)))

    def _addressed(self, scope: Scope, target: Target, raw_path: bytes) -> tuple[RawHeaders, tuple[str, str]]:
        """Return the headers of a request, its server and its path there."""
        headers = self._guard.without_key(to_upstream(scope["headers"], PREFIX))
        query = scope["query_string"]
        if query:
            query = self._guard.query_without_key(query)
        if target.table is not None:  # a cookie is of a server on this host, such as the main upstream's page
            headers = [header for header in headers if header[0] != b"cookie"]
        ours = target.authorization
        if ours and target.keep_caller_authorization:
            headers = [header for header in headers if not _holds_no_key(header)]
            given = by_name(headers)
            if any(given.get(name) for name in CREDENTIALS):
                ours = None
        if ours:
            own_header = _key_header(scope)
            headers = [(name, value) for name, value in headers if name not in CREDENTIALS]
            headers += _our_credentials(target, ours.encode(), own_header)
            if query and own_header == GOOGLE_KEY_HEADER:
                query = b"&".join(each for each in query.split(b"&") if not each.startswith(QUERY_KEY))
        path = raw_path.decode("latin-1")
        if query:
            path += "?" + query.decode("latin-1")
        return headers, placed(target.url, path)


def uncompressed(scope: Scope) -> Scope:
    """Return the scope of a request whose body goes out decompressed."""
    return with_headers(scope, [header for header in scope["headers"] if header[0] != b"content-encoding"])


def readable(scope: Scope) -> Scope:
    """Return the scope of a request whose answer burnish reads: it isn't to be compressed."""
    headers = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
    return with_headers(scope, [*headers, (b"accept-encoding", b"identity")])


def with_headers(scope: Scope, headers: RawHeaders) -> Scope:
    return {**scope, "headers": headers, NAMED: by_name(headers)}


def _inform(inform: Inform, status: int, headers: RawHeaders) -> None:
    inform(status, to_client(without_ours(headers)))


def naming(
    surface: Surface, target: Target, path: bytes, body: bytes, named_at: Spans | None = None
) -> tuple[bytes, bytes]:
    """Return path and body as the target needs them: with its name of the model, and the paths that it has.

    ``named_at``: where the body names the model, if that is known.
    """
    if target.embedded:
        path = usual_path(path.decode("latin-1")).encode("latin-1")
    if target.model is not None:
        named = surface.path_naming(path.decode("latin-1"), target.model)
        if named is None:
            body = splice_model(body, target.model, named_at)
        else:
            path = named.encode("latin-1")
    return path, append_members(body, target.fields)


def _holds_no_key(header: tuple[bytes, bytes]) -> bool:
    """Return whether a header holds the placeholder key of a client that requires one."""
    return header[0] in CREDENTIALS and header[1].rpartition(b" ")[2] in _NO_KEYS


def _key_header(scope: Scope) -> bytes | None:
    """Return the header beside Authorization that may take the key of a request, by its path or its client."""
    if surface := surface_at(scope["path"]):
        return surface.key_header
    if GOOGLE.match(scope["path"]):
        return GOOGLE_KEY_HEADER
    return ANTHROPIC_KEY_HEADER if ANTHROPIC.encode() in named_headers(scope) else None


def _our_credentials(target: Target, authorization: bytes, own_header: bytes | None) -> RawHeaders:
    """Return burnish's own key in every header in which the upstream may look for it."""
    bearer = (b"authorization", authorization)
    if own_header is None:
        return [bearer]
    own = (own_header, authorization.removeprefix(b"Bearer "))
    return [own] if urlsplit(target.url).hostname in KEY_HEADERS else [bearer, own]


_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(rb"%b|[{}\[\]]" % _STRING, re.DOTALL)
_INSIDE = rb'(?:[^"{}\[\]]++|%b)*+' % _STRING
for _ in range(3):
    _INSIDE = rb'(?:[^"{}\[\]]++|%b|[{\[]%b[}\]])*+' % (_STRING, _INSIDE)
_MUCH_INSIDE = re.compile(_INSIDE, re.DOTALL)
"""Inside an object or a list, all that is nested three times at most: whole messages in one step."""
_AFTER_KEY = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_END = re.compile(rb"[ \t\r\n]*\}")


Spans = list[tuple[int, int]]
"""Begins and ends of values in a body."""


def splice_model(body: bytes, model: str, named_at: Spans | None = None) -> bytes:
    """Return the body with the value of every top-level ``model`` key replaced; all other bytes stay.

    ``body`` must be valid JSON with an object at its top whose ``model``, if any, is a string. A body
    without the key gets one. ``named_at``: where the values are, if that is known.
    """
    value = orjson.dumps(model)
    spans = models_in(body) if named_at is None else named_at
    if not spans:
        brace = body.index(b"{") + 1
        comma = b"" if _END.match(body, brace) else b","
        return body[:brace] + b'"model":' + value + comma + body[brace:]
    parts: list[bytes] = []
    end = 0
    for start, stop in spans:
        parts += [body[end:start], value]
        end = stop
    return b"".join([*parts, body[end:]])


def append_members(body: bytes, members: Sequence[tuple[str, Any]]) -> bytes:
    """Return the body with members added at its end; there they win over earlier ones of the same name.

    ``body`` must be valid JSON with an object that is not empty at its top.
    """
    if not members:
        return body
    end = body.rindex(b"}")
    return body[:end] + b"," + orjson.dumps(dict(members))[1:-1] + body[end:]


def models_in(body: bytes) -> Spans:
    """Return the spans of the values of all top-level keys that spell "model" (escapes included)."""
    spans: Spans = []
    at = body.index(b"{") + 1
    value_at = -1
    while token := _TOKEN.search(body, at):
        at = token.end()
        if body[token.start()] in b"{[":
            at = _end_of_value(body, at)
        elif token.start() == value_at:
            spans.append(token.span())
        elif (colon := _AFTER_KEY.match(body, at)) and _spells_model(token.group()):
            value_at = colon.end()
    return spans


def _end_of_value(body: bytes, at: int) -> int:
    """Return the end of the object or list in which ``at`` is."""
    depth = 1
    while depth:
        inside = _MUCH_INSIDE.match(body, at)
        assert inside
        at = inside.end() + 1
        depth += 1 if body[at - 1] in b"{[" else -1
    return at


def _spells_model(token: bytes) -> bool:
    return token == b'"model"' or (b"\\" in token and json.loads(token) == "model")
