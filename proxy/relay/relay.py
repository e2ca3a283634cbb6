"""A request's way to the engine and back: bytes in, bytes out, with a copy for the log.

The relay parses a completion's body once and shallowly, forwards the original bytes, and hands what came
back to the log when the last byte is through. It knows no wire format (that is ``surfaces``) and stores
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from starlette.types import Receive, Scope, Send

from burnish.proxy.errors import BurnishError, InvalidRequest, UpstreamTimeout
from burnish.proxy.feedback.commands import Command, exchanges, find_command
from burnish.proxy.ids import completion_id as new_completion_id
from burnish.proxy.instant.instant import Addition
from burnish.proxy.records import Exchange
from burnish.proxy.relay.client import Client, read_body, request_body
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.guard import Guard
from burnish.proxy.relay.headers import (
    COMPLETION_ID,
    CREDENTIALS,
    INSTANT,
    SESSION_HEADERS,
    Named,
    RawHeaders,
    by_name,
    first,
    to_client,
    to_upstream,
)
from burnish.proxy.relay.origin import ConnectFailed
from burnish.proxy.relay.pool import Pool
from burnish.proxy.relay.response import UpstreamCut, UpstreamResponse
from burnish.proxy.relay.routing import Target, Upstream, join
from burnish.proxy.relay.splice import append_members, splice_model
from burnish.proxy.surfaces import SURFACES, Surface, is_completion, surface_at

# How many targets one request may find gone before it fails.
MAX_TRIES = 3
# They take what stands in Authorization for a login, and refuse a key there.
NO_BEARER = ("api.anthropic.com", "generativelanguage.googleapis.com")
BODILESS = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)
# What an engine answers to a system message that its template does not have, or to a context that is too long.
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class Answer(Protocol):
    """Carries out a ``/rl`` command and returns the text that answers it."""

    def __call__(
        self,
        command: Command,
        messages: list[dict[str, Any]],
        *,
        caller: str,
        session: str | None,
        previous: str | None,
    ) -> Awaitable[str]:
        """``messages`` is the whole request, the command included; ``previous`` the response that it goes on from."""
        ...


class Captures(Protocol):
    """Keeps what was said."""

    def capture(self, exchange: Exchange) -> None:
        """Take an exchange; returns at once."""
        ...


class Wishes(Protocol):
    """Knows what callers asked for before."""

    on: bool

    async def addition(self, caller: str, version: int | None) -> Addition | None:
        """Return what to add to a caller's system prompt where a version answers."""
        ...


class Relay:
    """The ASGI application behind every path that is no route of ours."""

    def __init__(
        self,
        *,
        pool: Pool,
        upstream: Upstream,
        guard: Guard,
        log: Captures,
        answer: Answer,
        instant: Wishes,
        max_body_bytes: int,
        total_timeout_s: float | None,
        traced: bool = False,
    ) -> None:
        self._pool = pool
        self._upstream = upstream
        self._guard = guard
        self._log = log
        self._answer = answer
        self._instant = instant
        self._max_body_bytes = max_body_bytes
        self._traced = traced
        self._total_s = total_timeout_s
        self.in_flight = 0
        """Completions that are being answered right now."""
        self.last_active = time.monotonic()
        """When the last completion began or ended, on the monotonic clock."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through; errors before the first byte are raised as BurnishError."""
        surface = surface_at(scope["path"], scope["query_string"]) if scope["method"] == "POST" else None
        if surface is None:
            await self._pass(scope, receive, send)
            return
        if not is_completion(scope["path"]):
            await self._pass_naming(surface, scope, receive, send)
            return
        self.in_flight += 1
        try:
            await self._complete(surface, scope, receive, send)
        finally:
            self.in_flight -= 1
            self.last_active = time.monotonic()

    async def _complete(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        started_at, clock = time.time(), time.perf_counter()
        headers = by_name(scope["headers"])
        caller, session = caller_of(headers), first(headers, *SESSION_HEADERS)
        body = await read_body(receive, headers, self._max_body_bytes)
        parsed = _parse(body)
        request = surface.read(parsed)
        cut: set[int] = set()
        if b"/rl" in body:
            if command := find_command(request.messages):
                text = await self._answer(
                    command, request.messages, caller=caller, session=session, previous=request.previous
                )
                await _send_local(
                    send, surface.answer(text, request, new_completion_id(), request.model or "burnish")
                )
                return
            cut = exchanges(request.messages)
        if cut or request.after_command:
            body = orjson.dumps(surface.without(parsed, request, cut))
        flight = Flight(
            completion_id=new_completion_id(),
            surface=surface.name,
            started_at=started_at,
            clock=clock,
            body=body,
            model=request.model,
            caller=caller,
            session=session,
            retry=_retry_count(headers),
            traceparent=first(headers, b"traceparent") if self._traced else None,
        )
        try:
            await self._fly(flight, scope, receive, send)
        except BurnishError as error:
            error.headers.append((COMPLETION_ID, flight.completion_id.encode()))
            raise
        finally:
            self._log.capture(flight.landed(self._upstream.name))

    async def _fly(self, flight: Flight, scope: Scope, receive: Receive, send: Send) -> None:
        async with Client(receive) as client:
            try:
                attempt = self._attempt(flight, scope, send, client)
                await (self._in_time(attempt, client) if self._total_s else attempt)
            except UpstreamCut as error:
                # Returning without the last chunk makes the server drop the client's connection, so that
                # the client sees a cut stream as a cut stream.
                flight.fail("cut", str(error))
            except BurnishError as error:
                flight.fail("failed", error.message)
                raise
        if client.gone:
            flight.fail("cancelled", "the client went away")

    async def _attempt(self, flight: Flight, scope: Scope, send: Send, client: Client) -> None:
        tried: list[Target] = []
        while True:
            target = flight.target = await self._upstream.target(flight.model)
            tried.append(target)
            try:
                body = await self._with_wishes(flight, scope, target) if self._instant.on else flight.body
                path, body = _naming(SURFACES[flight.surface], target, scope["raw_path"], body)
                with await self._open(scope, target, body, path) as response:
                    # 404: the engine was restarted and has forgotten the version; reconciling loads it again.
                    forgotten = response.status == HTTPStatus.NOT_FOUND and target.version
                    if forgotten and len(tried) == 1 and self._upstream.lost(target):
                        continue
                    if flight.instant and response.status in REFUSED:
                        flight.as_sent = True
                        continue
                    await self._stream(response, send, client, flight)
                return
            except ConnectFailed:
                # Nothing was sent, so another try is safe: on another replica, or when the engine is back.
                if not self._upstream.lost(target) or len(tried) == MAX_TRIES:
                    raise
            finally:
                target.release()

    async def _with_wishes(self, flight: Flight, scope: Scope, target: Target) -> bytes:
        """Return the body with what its caller asked for before in the system prompt; untouched where it can't be.

        The body is written anew, so that the addition stands in it whatever its shape: the same JSON, other bytes.
        """
        flight.instant = None
        addition = await self._instant.addition(flight.caller, target.version)
        flight.wishes = 0 if addition else None
        if addition is None or flight.as_sent:
            return flight.body
        asked = SURFACES[flight.surface].with_system(orjson.loads(flight.body), addition.text)
        if asked is None:
            return flight.body
        flight.instant, flight.wishes = addition.text, addition.count
        return orjson.dumps(asked)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request that is no completion: streamed both ways, not logged."""
        async with Client(receive, watch=False) as client:
            body = request_body(receive, by_name(scope["headers"]), client)
            if body is None:
                client.watch()
            await self._forward(self._exchange(scope, send, client, body), client)

    async def _pass_naming(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request that names a model, but is no completion: with the model's name there, not logged."""
        body = await read_body(receive, by_name(scope["headers"]), self._max_body_bytes)
        model = surface.read(_parse(body)).model
        async with Client(receive) as client:
            await self._forward(self._exchange(scope, send, client, body, model), client)

    async def _forward(self, exchange: Awaitable[None], client: Client) -> None:
        try:
            await (self._in_time(exchange, client) if self._total_s else exchange)
        except UpstreamCut:
            return  # as in _fly

    async def _exchange(
        self,
        scope: Scope,
        send: Send,
        client: Client,
        body: bytes | AsyncIterator[bytes] | None,
        model: str | None = None,
    ) -> None:
        target = await self._upstream.target(model)
        try:
            path = scope["raw_path"]
            if isinstance(body, bytes) and (surface := surface_at(scope["path"])):
                path, body = _naming(surface, target, path, body)
            with await self._open(scope, target, body, path) as response:
                await self._stream(response, send, client, None)
        finally:
            target.release()

    async def _in_time(self, answering: Awaitable[None], client: Client) -> None:
        """Wait no longer than ``total_timeout_s``. Raises UpstreamTimeout, UpstreamCut besides what it raises."""
        try:
            async with asyncio.timeout(self._total_s):
                await answering
        except UpstreamTimeout:
            raise
        except TimeoutError as error:
            late = f"the answer took longer than total_timeout_s, {self._total_s:g} s"
            raise (UpstreamCut(late) if client.begun else UpstreamTimeout(late)) from error

    async def _open(
        self, scope: Scope, target: Target, body: bytes | AsyncIterator[bytes] | None, raw_path: bytes
    ) -> UpstreamResponse:
        headers = self._guard.without_key(to_upstream(scope["headers"]))
        if target.authorization and not (target.keep_caller_authorization and _brings_key(headers)):
            headers = [(name, value) for name, value in headers if name.lower() not in CREDENTIALS]
            headers += _our_credentials(target, target.authorization.encode(), surface_at(scope["path"]))
        if not isinstance(body, bytes) and (length := by_name(scope["headers"]).get(b"content-length")):
            headers.append((b"content-length", length))
        path = raw_path.decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        return await self._pool.send(
            scope["method"], join(target.url, path), headers, body, reuse=target.reuse_connections
        )

    async def _stream(
        self, response: UpstreamResponse, send: Send, client: Client, flight: Flight | None
    ) -> None:
        headers = to_client(response.headers)
        if (
            response.status in BODILESS
        ):  # it may say how long the body would be, which the server takes at its word
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        if flight:
            flight.head(response)
            headers.append((COMPLETION_ID, flight.completion_id.encode()))
            if flight.wishes is not None:
                headers.append((INSTANT, str(flight.wishes).encode()))
        client.begun = True
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        more = True
        while more:
            chunk = await response.read()
            more = not response.finished
            if flight and chunk:
                flight.tee(chunk)
            if not more:
                client.finished = True
                if flight:
                    flight.outcome = "complete"
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


def caller_of(headers: Named) -> str:
    """Whose request it is: the header x-burnish-user, or the person at this machine."""
    return first(headers, b"x-burnish-user") or "local"


def _brings_key(headers: RawHeaders) -> bool:
    """Whether a caller has a key of its own for the upstream."""
    given = by_name(headers)
    return any(given.get(name) for name in CREDENTIALS)


def _our_credentials(target: Target, authorization: bytes, surface: Surface | None) -> RawHeaders:
    """Return the headers that hold our own key for an upstream, in all the places where it may look for one."""
    bearer = (b"authorization", authorization)
    if surface is None or surface.key_header is None:
        return [bearer]
    own = (surface.key_header, authorization.removeprefix(b"Bearer "))
    return [own] if urlsplit(target.url).hostname in NO_BEARER else [bearer, own]


def _naming(surface: Surface, target: Target, path: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Return path and body as they ask a target for its model."""
    if target.model is not None:
        named = surface.path_naming(path.decode("latin-1"), target.model)
        if named is None:
            body = splice_model(body, target.model)
        else:
            path = named.encode("latin-1")
    return path, append_members(body, target.fields)


def _retry_count(headers: Named) -> int:
    value = first(headers, b"x-stainless-retry-count") or "0"
    return int(value) if value.isdecimal() else 0


def _parse(body: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("the body must be a JSON object")
    return parsed


async def _send_local(send: Send, answer: tuple[str, Any]) -> None:
    content_type, parts = answer
    headers = [(b"content-type", content_type.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
