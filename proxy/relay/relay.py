"""The way of a request to the engine and back: bytes in, bytes out, with a copy for the log.

The relay parses the body of a completion once and shallowly, and forwards the original bytes. After the last byte of
the answer it hands a copy to the log. It knows no wire format (``surfaces`` does) and stores nothing. What parts of
burnish do with a request are steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus

import orjson
from starlette.types import Receive, Scope, Send

from burnish.config.config import Config
from burnish.proxy.access.carried import ROLLOUT, Carried
from burnish.proxy.access.guard import Guard
from burnish.proxy.client_headers import (
    COMPLETION_ID,
    SESSION_HEADERS,
    SUB_AGENT_HEADERS,
    agent_of,
    caller_of,
)
from burnish.proxy.http.errors import BurnishError, InvalidRequest
from burnish.proxy.http.headers import Named, first, named_headers
from burnish.proxy.http.origin import ConnectFailed, UpstreamResponse
from burnish.proxy.ids import completion_id
from burnish.proxy.records import Answerer, Completion, RequestFacts
from burnish.proxy.relay.client import Client, answered, read_body, read_request, stream, unpacked
from burnish.proxy.relay.commands import Log
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.inside import UNLOGGED
from burnish.proxy.relay.large import gist_of, reading
from burnish.proxy.relay.outbound import Outbound, naming, uncompressed
from burnish.proxy.relay.passthrough import PassthroughRelay
from burnish.proxy.relay.routing import MAX_TRIES
from burnish.proxy.relay.steps import Exchange, Outgoing, Step, act, acting
from burnish.proxy.relay.translated import UNKNOWN_PATH, Translator
from burnish.proxy.relay.upstreams import Upstreams
from burnish.proxy.surfaces import SURFACES, Surface, is_completion, surface_at
from burnish.proxy.surfaces.base import nothing_asked
from burnish.proxy.surfaces.writing import LocalAnswer
from burnish.system.apart import LARGE_BYTES, WorkerProcess

CHAT = "chat"
RETRY_DIGITS = 4
"""More are no number of retries."""
# Answers to a system message that the chat template doesn't have, or to a context that is too long.
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class Relay:
    """The ASGI application for every path that isn't one of our own routes."""

    def __init__(
        self,
        *,
        outbound: Outbound,
        guard: Guard,
        upstream: Upstreams,
        log: Log,
        steps: Sequence[Step],
        config: Config,
        traced: bool,
        apart: WorkerProcess,
    ) -> None:
        """``steps``: in the order in which they act. ``traced``: keep the trace that a request belongs to."""
        self._upstream = upstream
        self._name = upstream.name
        self._outbound = outbound
        self._translator = Translator(outbound, guard, log, apart)
        self._apart = apart
        self._passthrough = PassthroughRelay(outbound, self._translator, upstream, log, config, apart)
        self._log = log
        self._before_target = acting(steps, "before_target")
        self._with_target = acting(steps, "with_target")
        self._before_send = acting(steps, "before_send")
        self._config = config
        self._traced = traced
        self.in_flight = 0
        """Completions that are being answered now."""
        self.flights: dict[str, Flight] = {}
        """Completions that are sent to an upstream or being answered by one, by ID."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Errors before the first byte are raised as BurnishError."""
        surface = surface_at(scope["path"], scope["query_string"]) if scope["method"] == "POST" else None
        if surface is None:
            await self._passthrough(scope, receive, send)
            return
        if not is_completion(scope["path"]):
            await self._passthrough.naming(surface, scope, receive, send)
            return
        self.in_flight += 1
        try:
            await self._complete(surface, scope, receive, send)
        finally:
            self.in_flight -= 1

    async def _complete(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        started_at, clock = time.time(), time.perf_counter()
        headers, limit = named_headers(scope), self._config.max_body_bytes
        sent = await read_body(receive, headers, limit)
        gist = None
        try:
            body = await unpacked(sent, headers, limit)
            if len(body) > LARGE_BYTES:
                gist = await reading(self._apart, gist_of, surface, scope["path"], body)
            members, request = (
                (gist.asked, gist.request) if gist else read_request(surface, scope["path"], body)
            )
        except InvalidRequest as fault:
            note = f"not logged as a completion, because burnish can't read it: {fault.message}"
            await self._passthrough.unread(surface, scope, send, sent, fault=fault, note=note)
            return
        packed = None
        if body is not sent:
            packed, scope = (scope, sent), uncompressed(scope)
        exchange = Exchange(surface, scope, headers, body, members, members, request, large=gist is not None)
        for step in self._before_target:
            if step.concerns(exchange):
                await act(step, step.before_target(exchange))
                if exchange.answer:
                    await _send_local(send, exchange.answer)
                    return
        request = exchange.request
        if gist:
            body, packed = gist.changed or body, None if gist.changed else packed
        elif exchange.cut or request.after_command or exchange.kept is not members:
            body, packed = orjson.dumps(surface.without(exchange.kept, request, exchange.cut)), None
        carried: Carried | None = scope.get(ROLLOUT)
        flight = Flight(
            clock=clock,
            id=completion_id(),
            asked=_asked(surface, headers, request.model, started_at, carried),
            model=(carried and carried.model) or request.model,
            served=Answerer(self._name, model_served=request.model or ""),
            body=body,
            messages=request.messages,
            params=request.params,
            captures_tokens=(carried is not None or self._config.capture.tokens) and not scope.get(UNLOGGED),
            threaded=request.previous is not None and "thread" in request.params,
            packed=packed,
            asks=gist.asks if gist else bool(request.messages),
            named_at=gist.named_at if gist else None,
            traceparent=first(headers, b"traceparent") if self._traced else None,
        )
        if exchange.deliver:
            await exchange.deliver(self, flight, scope, send)
        else:
            await self._deliver(flight, scope, send)

    async def _deliver(self, flight: Flight, scope: Scope, send: Send) -> None:
        unlogged = UNLOGGED in scope and scope[UNLOGGED]
        if not unlogged:
            self.flights[flight.id] = flight
        try:
            async with Client(scope) as client:
                await self.ask(flight, scope, send, client)
        except BurnishError as error:
            error.headers.append((COMPLETION_ID, flight.id.encode()))
            raise
        finally:
            if not unlogged:
                del self.flights[flight.id]
                self._log.capture(flight.finish())

    async def ask(self, flight: Flight, scope: Scope, send: Send, client: Client) -> None:
        """Send a request and pass its answer on, within the time that is set. Raises BurnishError."""
        asking = self._ask(flight, scope, send, client)
        await answered(asking, client, flight, self._config.total_timeout_s)

    def store(self, completion: Completion) -> None:
        """Take the record of a completion that has ended."""
        self._log.capture(completion)

    async def _ask(self, flight: Flight, scope: Scope, send: Send, client: Client) -> None:
        tries = 0
        while True:
            target = await self._upstream.target(flight.model, scope["headers"])
            tries += 1
            flight.served_by(target)
            try:
                outgoing = Outgoing(flight, scope, target, flight.body, flight.named_at)
                for step in self._with_target:
                    if step.concerns_target(flight, scope):
                        await act(step, step.with_target(outgoing))
                with await self._send(outgoing) as response:
                    # 404: the engine was restarted without the version; reconciling loads it again.
                    forgotten = response.status == HTTPStatus.NOT_FOUND and target.version
                    if forgotten and tries == 1 and self._upstream.lost(target):
                        continue
                    if outgoing.body is not flight.body and response.status in REFUSED:
                        flight.as_sent = True
                        continue
                    await stream(response, scope, send, client, flight)
                return
            except ConnectFailed:
                # Nothing was sent, so another try is safe: on another replica, or when the engine is back.
                if not self._upstream.lost(target) or tries == MAX_TRIES:
                    raise
            finally:
                target.release()

    async def _send(self, outgoing: Outgoing) -> UpstreamResponse:
        """Send the request as the client did, or translated into chat if the target lacks the format."""
        flight, scope, target = outgoing.flight, outgoing.scope, outgoing.target
        translator, name = self._translator, flight.asked.surface
        for step in self._before_send:
            if step.concerns_target(flight, scope):
                await act(step, step.before_send(outgoing))
        response = None
        # A step's sender speaks chat.
        in_chat = outgoing.sender and name != CHAT
        if not in_chat and not translator.needed(target, name, scope["path"], threaded=flight.threaded):
            surface = SURFACES[name]
            if target.embedded and not flight.asks:
                raise nothing_asked(surface)
            path, named = naming(surface, target, scope["raw_path"], outgoing.body, outgoing.named_at)
            # As it came if nothing in it had to change; burnish compresses nothing again.
            as_came = flight.packed if named is flight.body and not outgoing.sender else None
            scope_sent, content = as_came or (scope, named)
            sender = outgoing.sender or self._outbound
            response = await sender.send(scope_sent, target, content, path)
            if target.embedded:
                response = await translator.own_error(response, surface)
            if response.status not in UNKNOWN_PATH:
                return response
        return await translator.answer(response, outgoing)


def _asked(
    surface: Surface, headers: Named, model: str | None, at: float, carried: Carried | None
) -> RequestFacts:
    return RequestFacts(
        created_at=at,
        surface=surface.name,
        model_asked=model or "",
        caller=caller_of(headers),
        # Rollouts of one group send the same words, so the headers of their agents can't tell them apart.
        session=carried.id if carried else first(headers, *SESSION_HEADERS),
        retry=_retry_count(headers),
        sub_agent=first(headers, *SUB_AGENT_HEADERS) is not None,
        agent=agent_of(headers),
        rollout=carried.id if carried else None,
    )


def _retry_count(headers: Named) -> int:
    value = headers.get(b"x-stainless-retry-count", b"")
    return int(value) if value.isdigit() and len(value) <= RETRY_DIGITS else 0


async def _send_local(send: Send, answer: LocalAnswer) -> None:
    content_type, parts = answer
    headers = [(b"content-type", content_type.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
