"""The way of a request to the engine and back: bytes in, bytes out, with a copy for the log.

The relay parses the body of a completion once and shallowly, and forwards the original bytes. After the last byte of
the answer it hands a copy to the log. It knows no wire format (``surfaces`` does) and stores nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus

import orjson
from starlette.types import Receive, Scope, Send

from burnish.proxy.access import Heard, heard_by, identity_of
from burnish.proxy.apart import LARGE_BYTES, Apart
from burnish.proxy.client_headers import (
    BEST_OF,
    COMPLETION_ID,
    SESSION_HEADERS,
    SUB_AGENT_HEADERS,
    agent_of,
    caller_of,
)
from burnish.proxy.config import Config
from burnish.proxy.errors import BurnishError, InvalidRequest
from burnish.proxy.feedback.commands import Answer, exchanges, find_command
from burnish.proxy.feedback.grammar import Command, may_hold_command
from burnish.proxy.http.carried import ROLLOUT, Carried
from burnish.proxy.http.guard import Guard
from burnish.proxy.http.headers import Named, first, named_headers
from burnish.proxy.http.origin import ConnectFailed, UpstreamResponse
from burnish.proxy.http.pool import Pool
from burnish.proxy.ids import completion_id as new_completion_id
from burnish.proxy.instructions.instructions import Instructions
from burnish.proxy.records import Asked, Served
from burnish.proxy.relay.best_of import MEMBER, Try, chosen, finished, replay, waiting, wanted
from burnish.proxy.relay.capturing import CHAT, Capturing
from burnish.proxy.relay.client import Client, answered, read_body, read_request, stream, unpacked
from burnish.proxy.relay.flight import CAPTURE_LIMIT_BYTES, Flight
from burnish.proxy.relay.history import freed, may_hold_own_words
from burnish.proxy.relay.inside import UNLOGGED
from burnish.proxy.relay.large import Gist, gist_of, reading, with_system
from burnish.proxy.relay.log import Log
from burnish.proxy.relay.outbound import Outbound, Spans, naming, uncompressed
from burnish.proxy.relay.passthrough import PassthroughRelay
from burnish.proxy.relay.routing import MAX_TRIES, Target
from burnish.proxy.relay.scoring import Score
from burnish.proxy.relay.translated import UNKNOWN_PATH, Translator
from burnish.proxy.relay.upstreams import Upstreams
from burnish.proxy.surfaces import SURFACES, ChatRequest, Surface, is_completion, surface_at
from burnish.proxy.surfaces.base import nothing_asked
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import LocalAnswer

# Answers to a system message that the chat template doesn't have, or to a context that is too long.
RETRY_DIGITS = 4
"""More are no number of retries."""
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class Relay:
    """The ASGI application for every path that isn't one of our own routes."""

    def __init__(
        self,
        *,
        pool: Pool,
        upstream: Upstreams,
        guard: Guard,
        log: Log,
        answer: Answer,
        instructions: Instructions,
        score: Score,
        config: Config,
        traced: bool,
        apart: Apart,
    ) -> None:
        self._upstream = upstream
        self._name = upstream.name
        self._outbound = Outbound(pool, guard)
        self._translator = Translator(self._outbound, guard, log.held_up_to, apart)
        self._capturing = Capturing(self._outbound, apart)
        self._apart = apart
        self._passthrough = PassthroughRelay(
            self._outbound, self._translator, upstream, log, config=config, apart=apart
        )
        self._log = log
        self._answer = answer
        self._instructions = instructions
        self._score = score
        self._config = config
        self._traced = traced
        self.in_flight = 0
        """Completions that are being answered now."""
        self.last_active = time.monotonic()
        """Start or end of the latest completion, on the monotonic clock."""
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
            self.last_active = time.monotonic()

    async def _complete(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        started_at, clock = time.time(), time.perf_counter()
        headers, limit = named_headers(scope), self._config.max_body_bytes
        sent = await read_body(receive, headers, limit)
        try:
            body = await unpacked(sent, headers, limit)
            parsed, request, gist = await self._read(surface, scope["path"], body)
        except InvalidRequest as fault:
            note = f"not logged as a completion, because burnish can't read it: {fault.message}"
            await self._passthrough.unread(surface, scope, send, sent, fault=fault, note=note)
            return
        packed = None
        if body is not sent:
            packed, scope = (scope, sent), uncompressed(scope)
        kept, cut = parsed, set[int]()
        has_own_words = may_hold_own_words(body)
        if has_own_words or may_hold_command(body):
            kept, request = await freed(surface, parsed, request, body, log=self._log, headers=headers)
            if command := find_command(request.messages):
                await _send_local(send, await self._obey(command, surface, request, scope))
                return
            cut = exchanges(request.messages) if has_own_words else cut
        count = 1
        if BEST_OF in headers or MEMBER in parsed:
            count = wanted(headers, parsed, self._config.reward.best_of_max)
            if MEMBER in kept:
                kept = {name: value for name, value in kept.items() if name != MEMBER}
        if count > 1:
            _check_size(gist)
            await self._score((), ())  # before anything is asked for in vain
        if gist:
            body = gist.changed or body
            packed = None if gist.changed else packed
        elif cut or request.after_command or kept is not parsed:
            body, packed = orjson.dumps(surface.without(kept, request, cut)), None
        carried: Carried | None = scope.get(ROLLOUT)
        captures = (carried is not None or self._config.capture.tokens) and not scope.get(UNLOGGED)
        asked = _asked(surface, headers, request.model, started_at, carried)
        flight = Flight(
            clock=clock,
            id=new_completion_id(),
            asked=asked,
            model=(carried and carried.model) or request.model,
            served=Served(self._name, model_served=request.model or ""),
            body=body,
            messages=request.messages,
            params=request.params,
            captures_tokens=captures,
            threaded=request.previous is not None and "thread" in request.params,
            packed=packed,
            asks=gist.asks if gist else bool(request.messages),
            named_at=gist.named_at if gist else None,
            traceparent=first(headers, b"traceparent") if self._traced else None,
        )
        if count == 1:
            await self._send_only(flight, scope, send)
        else:
            flights = [flight] + [
                replace(flight, id=new_completion_id(), chunks=[]) for _ in range(count - 1)
            ]
            tries = [Try(each, CAPTURE_LIMIT_BYTES // count) for each in flights]
            await self._send_best(tries, scope, send)

    async def _send_only(self, flight: Flight, scope: Scope, send: Send) -> None:
        unlogged = UNLOGGED in scope and scope[UNLOGGED]
        if not unlogged:
            self.flights[flight.id] = flight
        try:
            async with Client(scope) as client:
                attempt = self._attempt(flight, scope, send, client)
                await answered(attempt, client, flight, self._config.total_timeout_s)
        except BurnishError as error:
            error.headers.append((COMPLETION_ID, flight.id.encode()))
            raise
        finally:
            if not unlogged:
                del self.flights[flight.id]
                self._log.capture(flight.finish())

    async def _send_best(self, tries: Sequence[Try], scope: Scope, send: Send) -> None:
        """Get all answers, and send the best one. All of them are logged."""
        self.flights |= {each.flight.id: each.flight for each in tries}
        sent, scored = tries[0], None
        try:
            async with Client(scope) as client:
                await asyncio.gather(*(self._try(each, waiting(scope)) for each in tries))
                sent, scored = await chosen(tries, tries[0].flight.messages, self._score)
                client.begun = True
                await replay(sent, len(tries), send)
        except BurnishError as error:
            error.headers.append((COMPLETION_ID, sent.flight.id.encode()))
            raise
        finally:
            for each in sorted(
                tries, key=lambda each: each is not sent
            ):  # whose conversation the others join
                del self.flights[each.flight.id]
                if each.flight.outcome == "cancelled":
                    each.flight.fail("cancelled", "the client went away")
                self._log.capture(finished(each, sent, scored))

    async def _try(self, one: Try, scope: Scope) -> None:
        async with Client(scope) as client:
            attempt = self._attempt(one.flight, scope, one.take, client)
            try:
                await answered(attempt, client, one.flight, self._config.total_timeout_s)
            except BurnishError as error:
                one.error = error

    async def _read(self, surface: Surface, path: str, body: bytes) -> tuple[Json, ChatRequest, Gist | None]:
        """Return the body of a completion and what it asks; without the conversation if the child process read it."""
        if len(body) > LARGE_BYTES and (gist := await reading(self._apart, gist_of, surface, path, body)):
            return gist.asked, gist.request, gist
        return *read_request(surface, path, body), None

    async def _obey(
        self, command: Command, surface: Surface, request: ChatRequest, scope: Scope
    ) -> LocalAnswer:
        headers = named_headers(scope)
        text = await self._answer(
            command,
            request.messages,
            caller=caller_of(headers),
            session=first(headers, *SESSION_HEADERS),
            identity=identity_of(scope),
            previous=request.previous,
        )
        return surface.answer(text, request, new_completion_id(), request.model or "burnish")

    async def _attempt(self, flight: Flight, scope: Scope, send: Send, client: Client) -> None:
        tried: list[Target] = []
        while True:
            target = await self._upstream.target(flight.model, scope["headers"])
            tried.append(target)
            flight.served_by(target)
            try:
                body, named_at = flight.body, flight.named_at
                if self._instructions.on and not scope.get(UNLOGGED):
                    body, named_at = await self._with_instructions(
                        flight, target, heard_by(identity_of(scope))
                    )
                with await self._send(flight, scope, target, body, named_at) as response:
                    # 404: the engine was restarted without the version; reconciling loads it again.
                    forgotten = response.status == HTTPStatus.NOT_FOUND and target.version
                    if forgotten and len(tried) == 1 and self._upstream.lost(target):
                        continue
                    if flight.instructions and response.status in REFUSED:
                        flight.as_sent = True
                        continue
                    await stream(response, scope, send, client, flight)
                return
            except ConnectFailed:
                # Nothing was sent, so another try is safe: on another replica, or when the engine is back.
                if not self._upstream.lost(target) or len(tried) == MAX_TRIES:
                    raise
            finally:
                target.release()

    async def _send(
        self, flight: Flight, scope: Scope, target: Target, body: bytes, named_at: Spans | None
    ) -> UpstreamResponse:
        """Send the request as the client did, or translated into chat if the target lacks the format."""
        translator = self._translator
        response = None
        capture = await self._capturing.sender(flight, target, scope) if flight.captures_tokens else None
        sender = capture or self._outbound
        in_chat = capture and flight.asked.surface != CHAT
        if not in_chat and not translator.needed(
            target, flight.asked.surface, scope["path"], threaded=flight.threaded
        ):
            if target.embedded and not flight.asks:
                raise nothing_asked(SURFACES[flight.asked.surface])
            surface = SURFACES[flight.asked.surface]
            path, named = naming(surface, target, scope["raw_path"], body, named_at)
            # As it came if nothing in it had to change; burnish compresses nothing again.
            as_came = flight.packed if named is flight.body and not capture else None
            given, content = as_came or (scope, named)
            response = await sender.send(given, target, content, path)
            if target.embedded:
                response = await translator.own_error(response, flight.asked.surface)
            if response.status not in UNKNOWN_PATH:
                return response
        return await translator.answer(response, flight, scope, target, body, sender=sender)

    async def _with_instructions(
        self, flight: Flight, target: Target, heard: Heard
    ) -> tuple[bytes, Spans | None]:
        """Return the body with the caller's instructions in the system prompt; unchanged if its format takes none.

        The body is serialised again: the same JSON, other bytes. Beside it: where it names the model, if that is known.
        """
        unchanged = flight.body, flight.named_at
        flight.instructions = None
        addition = await self._instructions.addition(flight.asked.caller, target.version, heard)
        flight.instruction_count = 0 if addition else None
        if addition is None or flight.as_sent:
            return unchanged
        extend = partial(with_system, SURFACES[flight.asked.surface], flight.body, addition.text)
        extended = await reading(self._apart, extend) if flight.named_at is not None else extend()
        if extended is None:
            return unchanged
        flight.instructions, flight.instruction_count = addition.text, addition.count
        return extended


def _asked(surface: Surface, headers: Named, model: str | None, at: float, carried: Carried | None) -> Asked:
    return Asked(
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


def _check_size(gist: Gist | None) -> None:
    if gist:
        raise InvalidRequest(
            f"the best of several answers is for requests up to {LARGE_BYTES} bytes: ask for one answer, or send less"
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
