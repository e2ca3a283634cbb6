"""Passes on all requests other than completions: embeddings, audio, files, batches, websockets.

They are streamed both ways. GET, HEAD and OPTIONS are not logged. The log gets a ``Passthrough`` of each other request:
its time, caller, path and sizes, never a body. Only a response that was made in the background is read, when a client
fetches it: it is the answer to a completion.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import orjson
from starlette.types import Receive, Scope, Send

from burnish.config.config import Config
from burnish.proxy.client_headers import caller_of
from burnish.proxy.http.connection import Body
from burnish.proxy.http.errors import BurnishError, InvalidRequest, Unavailable, UpstreamUnreachable
from burnish.proxy.http.headers import named_headers
from burnish.proxy.http.origin import UpstreamResponse
from burnish.proxy.http.tunnel import TUNNEL, ClientEnd, carry
from burnish.proxy.relay.answers import WholeAnswer, read_apart
from burnish.proxy.relay.client import Client, answered, read_body, request_body, stream, unpacked
from burnish.proxy.relay.commands import Log, cleaned
from burnish.proxy.relay.flight import PassthroughUnderWay
from burnish.proxy.relay.large import model_in, reading
from burnish.proxy.relay.models import PATH as MODELS
from burnish.proxy.relay.models import ModelList
from burnish.proxy.relay.outbound import Outbound, naming, uncompressed
from burnish.proxy.relay.routing import Target
from burnish.proxy.relay.translated import UNKNOWN_PATH, Translator
from burnish.proxy.relay.upstreams import Upstreams
from burnish.proxy.surfaces import Surface
from burnish.proxy.surfaces.catalogue import ANTHROPIC, asked_for
from burnish.proxy.surfaces.lenient import Undecodable, decode, object_in
from burnish.proxy.surfaces.paths import SHOW
from burnish.proxy.surfaces.sse import JsonEvents, is_streamed
from burnish.system.apart import LARGE_BYTES, WorkerProcess

UNLOGGED = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110 §9.2.1): polls and health checks would fill the log."""

FINAL = ("completed", "incomplete", "failed", "cancelled")
"""States of a response that no longer changes."""
RESPONSE = re.compile(r".*/responses/(?P<id>[^/]+)(?P<cancelled>/cancel)?/?")

Naming = Callable[[Target, bytes], tuple[bytes, bytes]]
"""Returns path and body as a target needs them, of a path."""


class _Call(NamedTuple):
    """A request on its way, and what is recorded of it."""

    scope: Scope
    send: Send
    client: Client
    record: PassthroughUnderWay


@dataclass(frozen=True, slots=True)
class PassthroughRelay:
    """The part of the relay that does not read what it passes on."""

    _outbound: Outbound
    _translator: Translator
    _upstream: Upstreams
    _log: Log
    _config: Config
    _apart: WorkerProcess

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request of any kind. Errors before the first byte are raised as BurnishError."""
        tunnel: ClientEnd | None = scope["extensions"].get(TUNNEL, {}).get("end")
        record = PassthroughUnderWay(scope, self._upstream.name)
        async with Client(scope, watch=False) as client:
            call = _Call(scope, send, client, record)
            response = RESPONSE.fullmatch(scope["path"])
            if response and scope["method"] == ("POST" if response["cancelled"] else "GET"):
                record.chunks = []
            body = request_body(receive, named_headers(scope), client, record.request.add)
            if body is None:
                client.watch()
            if tunnel:
                exchange, total_s = self._tunnel(call, tunnel), None
            elif scope["method"] == "GET" and scope["path"] == MODELS:
                list_models = ModelList(self._outbound, self._upstream)
                exchange, total_s = list_models(*call), self._config.total_timeout_s
            else:
                exchange, total_s = self._exchange(call, body), self._config.total_timeout_s
            await self._logged(call, exchange, total_s)
            if response and record.chunks and record.status == HTTPStatus.OK:
                await self._complete(response["id"], b"".join(record.chunks), call)

    async def _complete(self, response_id: str, content: bytes, call: _Call) -> None:
        """Complete the answer of an earlier request, if it was made in the background and is there whole."""
        record, scope = call.record, call.scope
        encoding, resumed = record.encoding, b"starting_after" in scope["query_string"]
        with suppress(Undecodable):  # a short one is read at once, before the client asks again
            content, encoding = decode(content, encoding, LARGE_BYTES), ""
        reader = partial(final_response, content, record.content_type, encoding, resumed=resumed)
        # The client has the answer in any case, and ``/healthz`` tells of the log.
        with suppress(UpstreamUnreachable, Unavailable):
            if body := await read_apart(self._apart, content, encoding, reader):
                await self._log.complete_response(response_id, caller_of(named_headers(scope)), body)

    async def naming(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that names a model and isn't a completion, with the upstream's name of the model."""
        headers, limit = named_headers(scope), self._config.max_body_bytes
        sent = await read_body(receive, headers, limit)
        try:
            body = await unpacked(sent, headers, limit)
            if scope["path"] != SHOW:
                body = await cleaned(surface, scope["path"], body, log=self._log, headers=headers)
            find = partial(model_in, surface, body)
            model, named_at = await reading(self._apart, find) if len(body) > LARGE_BYTES else find()
        except InvalidRequest as fault:
            note = f"burnish can't read it: {fault.message}"
            await self.unread(surface, scope, send, sent, fault=fault, note=note)
            return
        scope = scope if body is sent else uncompressed(scope)
        record = PassthroughUnderWay(scope, self._upstream.name)
        record.model = model
        record.request.add(body)
        async with Client(scope) as client:
            call = _Call(scope, send, client, record)
            name = partial(naming, surface, body=body, named_at=named_at)
            exchange = self._exchange(call, body, name=name, model=model)
            await self._logged(call, exchange, self._config.total_timeout_s)

    async def unread(
        self, surface: Surface, scope: Scope, send: Send, body: bytes, *, fault: InvalidRequest, note: str
    ) -> None:
        """Pass on a request that burnish can't read, and leave the judgement to the upstream.

        Raises ``fault`` where no upstream can judge: at the embedded engine, if it would have to be translated, and if
        it has a code of its own, because it is about an answer of burnish.
        """
        if fault.reason != InvalidRequest.code:
            raise fault
        record = PassthroughUnderWay(scope, self._upstream.name)
        record.error = note
        record.request.add(body)
        async with Client(scope) as client:
            call = _Call(scope, send, client, record)
            exchange = self._unjudged(call, surface, body, fault)
            await self._logged(call, exchange, self._config.total_timeout_s)

    async def _logged(self, call: _Call, exchange: Awaitable[None], total_s: float | None) -> None:
        try:
            await answered(exchange, call.client, call.record, total_s)
        finally:
            if call.scope["method"] not in UNLOGGED or TUNNEL in call.scope["extensions"]:
                self._log.capture(call.record.finish())

    async def _exchange(
        self, call: _Call, body: Body, *, name: Naming | None = None, model: str | None = None
    ) -> None:
        """``name``: puts the target's ``model`` into a body that was read."""
        scope = call.scope
        target = await self._upstream.target(model, scope["headers"])
        call.record.upstream = target.upstream
        try:
            path = scope["raw_path"]
            if name:
                path, body = name(target, path)
            with await self._outbound.send(scope, target, body, path) as response:
                listed = await self._models(response, scope, model)
                answer = WholeAnswer(response, HTTPStatus.OK, listed) if listed else response
                await stream(answer, *call)
        finally:
            target.release()

    async def _unjudged(self, call: _Call, surface: Surface, body: bytes, fault: InvalidRequest) -> None:
        scope, path = call.scope, call.scope["raw_path"]
        target = await self._upstream.target(None, scope["headers"])
        try:
            if target.embedded or self._translator.needed(target, surface.name, scope["path"]):
                raise fault
            with await self._outbound.send(scope, target, body, path) as response:
                if await self._translator.is_needed(response, surface, scope, target, path):
                    raise fault
                await stream(response, *call)
        finally:
            target.release()

    async def _models(self, response: UpstreamResponse, scope: Scope, model: str | None) -> bytes | None:
        """Return a list of models in the format of a request that the upstream does not know; None otherwise."""
        if response.status not in UNKNOWN_PATH:
            return None
        anthropic = ANTHROPIC.encode() in named_headers(scope)
        describe = asked_for(scope["method"], scope["path"], model, anthropic=anthropic)
        if describe is None:
            return None
        try:
            listed = describe(await self._upstream.models(scope["headers"]))
        except BurnishError:  # it does not list them, or not to this caller
            return None
        return orjson.dumps(listed) if listed else None

    async def _tunnel(self, call: _Call, tunnel: ClientEnd) -> None:
        """Open a websocket at the upstream and carry its frames; pass on any other answer."""
        target = await self._upstream.target(None, call.scope["headers"])
        target.release()  # no version is asked for, and a swap that waits for a websocket would wait for ever
        with await self._outbound.switch(call.scope, target) as response:
            if response.switched is None:
                await stream(response, *call)
                return
            call.record.head(response)
            call.client.begun = call.client.finished = True  # what ends from now on is the tunnel
            tunnel.agree(response.headers)
            ended = await carry(tunnel, response.switched, self._config.idle_timeout_s)
            call.record.carried(tunnel, response.switched, ended=ended)


def final_response(body: bytes, content_type: str, encoding: str, *, resumed: bool) -> bytes | None:
    """Return the response in the body of an answer, as JSON; None if it is still being made, or isn't there whole.

    ``resumed``: the stream began in its middle, so only its last event can hold the whole. Raises Undecodable.
    """
    body = decode(body, encoding)
    if not is_streamed(body, content_type):
        response = object_in(body)
        return body if response and response.get("status") in FINAL else None
    for _, event in reversed([*JsonEvents(body)]):
        response = event.get("response") if isinstance(event, dict) else None
        if isinstance(response, dict) and response.get("status") in FINAL:
            if response.get("output") or response["status"] != "completed":
                return orjson.dumps(response)
            return None if resumed else body
    return None
