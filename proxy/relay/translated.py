"""Detects upstreams that lack a format, and translates requests for them into chat.

An upstream that answers 404 may lack the path or the model, and each words that differently. So it gets two more
requests without content, on the client's path and on the path of chat: a path that exists refuses such a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

import orjson
from starlette.types import Scope

from burnish.proxy.access.guard import Guard
from burnish.proxy.http.connection import Sink
from burnish.proxy.http.errors import InvalidRequest, UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.http.headers import CREDENTIALS, by_name, encoding_of, value_of
from burnish.proxy.http.origin import ConnectFailed, UpstreamCut, UpstreamResponse
from burnish.proxy.ids import unguessable_id
from burnish.proxy.relay.answers import JSON_TYPE, ChangedAnswer, WholeAnswer, read_apart
from burnish.proxy.relay.commands import Held, Log
from burnish.proxy.relay.flight import Flight
from burnish.proxy.relay.large import reading
from burnish.proxy.relay.outbound import QUERY_KEY, Outbound, append_members, naming, with_headers
from burnish.proxy.relay.routing import THREADS, Target
from burnish.proxy.relay.steps import Outgoing
from burnish.proxy.surfaces import ChatRequest, Surface, Translatable, surface_at
from burnish.proxy.surfaces.base import inherited, nothing_asked
from burnish.proxy.surfaces.chat_reader import ChatReader
from burnish.proxy.surfaces.items import references
from burnish.proxy.surfaces.lenient import Json, Undecodable, as_text, decode, error_in, loads, objects
from burnish.proxy.surfaces.messages import THREAD_NOT_FOUND
from burnish.proxy.surfaces.writing import AnswerWriter
from burnish.system.apart import LARGE_BYTES, WorkerProcess

CHAT_PATH = "/v1/chat/completions"
UNKNOWN_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
# An engine may be updated, so its formats are looked up again after this time.
REMEMBERED_S = 600.0
MOST_REMEMBERED = 1000
"""Clients choose the prefixes of paths, so there may be any number."""
NOT_IN_CHAT = (b"accept-encoding", b"content-type", *CREDENTIALS)
NO_ANSWER = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT, *range(300, 400)))
LIMIT = "max_tokens"
NEW_LIMIT = "max_completion_tokens"
"""OpenAI's reasoning models refuse the old name; old engines know no other."""
NOT_FOUND = {
    "input": ("Item", "item_not_found"),
    "previous_response_id": ("Previous response", "previous_response_not_found"),
    "thread": ("Message", THREAD_NOT_FOUND),
}
"""Name and error code for something that a member of a request refers to and that isn't found."""
AT_ONCE_BYTES = 16 * 1024
"""Of a stream that are translated without a pause: some 100 events, a few milliseconds."""
ERROR_BYTES = 1024 * 1024
"""Of an upstream's error that is read."""
OPENAI = (".openai.com", ".openai.azure.com")


@dataclass(frozen=True, slots=True)
class Translator:
    _outbound: Outbound
    _guard: Guard
    _log: Log
    _apart: WorkerProcess
    _lacking: dict[tuple[str, str], float] = field(default_factory=dict)
    """Upstream (URL) and path (before a model in it) → until when the upstream is believed to lack it."""
    _has: dict[tuple[str, str], float] = field(default_factory=dict)

    def needed(self, target: Target, surface: str, path: str, *, threaded: bool = False) -> bool:
        """``threaded``: the request continues a thread."""
        if surface in target.lacks or (threaded and THREADS in target.lacks):
            return True
        return bool(self._lacking) and self._lacking.get(_which(target, path), 0.0) > time.monotonic()

    async def answer(self, response: UpstreamResponse | None, outgoing: Outgoing) -> UpstreamResponse:
        """Return a translated answer if the upstream lacks the format, else ``response``.

        ``response`` is its answer to the original request, such as 404, or None if that was not sent.
        """
        scope, target = outgoing.scope, outgoing.target
        surface = surface_at(scope["path"], scope["query_string"])
        assert surface is not None
        if response is not None:
            with ExitStack() as answered:
                answered.enter_context(response)
                # If the path names the model, it must name the one at the target.
                path, _ = naming(surface, target, scope["raw_path"], b"{}")
                if not await self.is_needed(response, surface, scope, target, path):
                    answered.pop_all()
                    return response
        assert isinstance(surface, Translatable)
        return await self._in_chat(surface, outgoing)

    async def own_error(self, response: UpstreamResponse, surface: Surface) -> UpstreamResponse:
        """Return an answer of the embedded engine; an error in the client's form, because llama.cpp's is OpenAI's."""
        if response.status < HTTPStatus.BAD_REQUEST or not isinstance(surface, Translatable):
            return response
        error = _translated_error(response, surface, response.status, await response.whole())
        return WholeAnswer(response, response.status, error)

    async def is_needed(
        self, response: UpstreamResponse, surface: Surface, scope: Scope, target: Target, path: bytes
    ) -> bool:
        """Find out from an upstream's answer whether it lacks a format that could be translated for it.

        ``path`` names the model there.
        """
        if not isinstance(surface, Translatable) or response.status not in UNKNOWN_PATH:
            return False
        which, until = _which(target, scope["path"]), time.monotonic() + REMEMBERED_S
        if len(self._has) + len(self._lacking) > MOST_REMEMBERED:
            self._has.clear()
            self._lacking.clear()
        if self._has.get(which, 0.0) > time.monotonic():
            return False
        if await self._knows(scope, target, path):
            self._has[which] = until
            return False
        if not await self._knows(self._as_chat(scope, target), target, CHAT_PATH.encode()):
            return False  # not an engine, or a gateway whose engine isn't up yet
        self._lacking[which] = until
        return True

    async def _knows(self, scope: Scope, target: Target, path: bytes) -> bool:
        """Check whether an upstream has a path: it refuses an empty list there, without a look at the model."""
        try:
            with await self._outbound.send(scope, target, b"[]", path) as response:
                return response.status not in UNKNOWN_PATH
        except ConnectFailed:
            raise
        except (UpstreamUnreachable, UpstreamTimeout):
            return True  # some crash on an empty request, but none on a path that it doesn't have

    async def _in_chat(self, surface: Translatable, outgoing: Outgoing) -> UpstreamResponse:
        target, body = outgoing.target, outgoing.body
        large = None
        if len(body) > LARGE_BYTES:
            large = await reading(self._apart, _read_apart, surface, body, target.url, target.model)
        asked, request, chat = large or await self._read(surface, body, target, outgoing.flight)
        if not request.messages and (idle := surface.idle(asked, request)):
            return WholeAnswer(None, HTTPStatus.OK, orjson.dumps(idle))
        if target.embedded and not request.messages:
            raise nothing_asked(surface)
        sent = append_members(chat, target.fields)
        outgoing.flight.served = outgoing.flight.served._replace(in_chat=True)
        # A response opens what came before it to whoever names it, and others may know the completion's own ID.
        writer = surface.writer(asked, unguessable_id(), target.model or request.model or "")
        sender, scope = outgoing.sender or self._outbound, self._as_chat(outgoing.scope, target)
        response = await sender.send(scope, target, sent, CHAT_PATH.encode())
        with ExitStack() as answered:
            answered.enter_context(response)
            translated = await self._translated(response, surface, writer, stream=request.stream)
            answered.pop_all()
        return translated

    async def _read(self, surface: Translatable, body: bytes, target: Target, flight: Flight) -> InChat:
        asked = orjson.loads(body)
        request = await self._complete(surface.read(asked), flight)
        return InChat(asked, request, _chat(surface, asked, request, target.url, target.model))

    def _as_chat(self, scope: Scope, target: Target) -> Scope:
        """Return the scope of a request to the path of chat: key in Authorization, no compression."""
        given = self._guard.without_key(scope["headers"])
        headers = [header for header in given if header[0] not in NOT_IN_CHAT]
        headers += [(b"accept-encoding", b"identity"), (b"content-type", b"application/json")]
        named = by_name(given)
        bearer, *keys = (named.get(name) for name in CREDENTIALS)
        if target.authorization is None:  # else burnish's own key is used
            query = scope["query_string"].split(b"&")
            keys += [unquote_to_bytes(each[len(QUERY_KEY) :]) for each in query if each.startswith(QUERY_KEY)]
        if credential := bearer or next((b"Bearer " + key for key in keys if key), None):
            headers.append((b"authorization", credential))
        return with_headers({**scope, "path": CHAT_PATH, "query_string": b""}, headers)

    async def _translated(
        self, response: UpstreamResponse, surface: Translatable, writer: AnswerWriter, *, stream: bool
    ) -> UpstreamResponse:
        """Translate an answer of chat into the client's format. Raises UpstreamCut."""
        status, encoding = response.status, encoding_of(response.headers)
        reader = ChatReader(value_of(response.headers, b"content-type").decode("latin-1"), encoding)
        if status in NO_ANSWER:
            raise UpstreamUnreachable(f"the upstream answered {status}, which holds no answer")
        if stream and reader.early and status < HTTPStatus.BAD_REQUEST:
            return StreamedAnswer(response, reader, writer)
        content = await response.whole()
        kind = writer.content_type if stream else JSON_TYPE
        if status < HTTPStatus.BAD_REQUEST:
            write = partial(_written, content, reader, writer, stream=stream)
            status, content = await read_apart(self._apart, content, encoding, write)
        if status >= HTTPStatus.BAD_REQUEST:
            content = _translated_error(response, surface, status, content)
            kind = JSON_TYPE
        return WholeAnswer(response, status, content, kind)

    async def _complete(self, request: ChatRequest, flight: Flight) -> ChatRequest:
        """Return a request with the messages that it refers to. Raises InvalidRequest."""
        if any(True for message in request.messages for _ in references(message)):
            messages = await self._log.with_answers(request.messages, flight.asked.caller)
            if missing := next((name for message in messages for name in references(message)), None):
                raise _not_found(missing, "input")
            request = replace(request, messages=messages)
        if request.previous is None:
            return request
        param = "thread" if "thread" in request.params else "previous_response_id"
        return _with_history(request, *await self._before(request.previous, flight, param))

    async def _before(self, name: str, flight: Flight, param: str) -> Held:
        """Return what came before, up to a response that a member of a request names. Raises InvalidRequest."""
        history = await self._log.held_up_to(name, flight.asked.caller, flight.asked.session)
        if history is None:
            raise _not_found(name, param)
        return history


def _not_found(name: str, param: str) -> InvalidRequest:
    what, code = NOT_FOUND[param]
    why = "the upstream stores none, and burnish has no such completion of this caller"
    return InvalidRequest(f"{what} with id {name!r} not found: {why}.", param=param, code=code)


def _which(target: Target, path: str) -> tuple[str, str]:
    return target.url, path.partition("/models/")[0]


class StreamedAnswer(ChangedAnswer):
    """An answer that is translated while the upstream's arrives."""

    def __init__(self, response: UpstreamResponse, reader: ChatReader, writer: AnswerWriter) -> None:
        super().__init__(response, writer.content_type)
        self._reader = reader
        self._writer = writer
        self._begun = self._over = self._cut = False

    async def read(self, sink: Sink | None = None) -> bytes:
        events = b""
        while not events and not self._over:
            if self._cut:
                raise UpstreamCut("the upstream's answer ended without a finish_reason")
            data = await self._response.read()
            # While others go first, more may come, and the answer may finish.
            events = await self._translate(data, last=self._response.finished)
        if not events:
            # Nothing is missing, but the connection can only be used again after its end was read.
            with suppress(UpstreamCut):
                await self._response.whole()
        return events

    @property
    def finished(self) -> bool:
        return self._over and self._response.finished

    async def _translate(self, data: bytes, *, last: bool) -> bytes:
        """Translate what has come, and let others go first now and then if it is much."""
        events: list[bytes] = []
        for start in range(0, max(len(data), 1), AT_ONCE_BYTES):
            end = start + AT_ONCE_BYTES
            events += self._next(data[start:end], last=last and end >= len(data))
            if self._over or end >= len(data):
                break
            await asyncio.sleep(0)
        return b"".join(events)

    def _next(self, data: bytes, *, last: bool) -> Iterator[bytes]:
        reader, writer = self._reader, self._writer
        if not self._begun:
            self._begun = True
            yield from writer.begin()
        for piece in [*reader.feed(data), *(reader.close() if last else ())]:
            yield from writer.take(piece)
        if reader.error:
            self._over = True
            yield from writer.fail(reader.error)
        elif reader.done or (last and reader.ended):
            self._over = True
            yield from writer.end(reader.finish_reason, reader.usage)
        else:
            self._cut = last


def _with_history(request: ChatRequest, history: list[Json], params: Json) -> ChatRequest:
    """Return a request with the messages before it; ``params``: the parameters that came with those."""
    first = 1 if request.params.get("instructions") is True else 0
    messages = [*request.messages[:first], *history, *request.messages[first:]]
    return replace(request, messages=messages, params=inherited(request.params, params), previous=None)


def _translated_error(
    response: UpstreamResponse, surface: Translatable, status: int, content: bytes
) -> bytes:
    """Return an error of chat in another format. Responses has OpenAI's form, too, so there it may stay."""
    with suppress(Undecodable):
        content = decode(content, encoding_of(response.headers), ERROR_BYTES)
    content = content[:ERROR_BYTES]
    error: Any = None
    with suppress(ValueError):
        error = loads(content)
    body = next(iter(objects(error)), error)  # Google puts it into a list
    details = body.get("error") if isinstance(body, dict) else None
    openais = body is error and isinstance(details, dict) and isinstance(details.get("message"), str)
    if openais and surface.name == "responses":
        return content
    words = (error_in(body) if isinstance(body, dict) else None) or as_text(content)
    return orjson.dumps(surface.error_of(status, words or f"the upstream answered with {status}"))


def _written(content: bytes, reader: ChatReader, writer: AnswerWriter, *, stream: bool) -> tuple[int, bytes]:
    """Return status and body of an answer that has all arrived; 502 and an error if it can't be translated."""
    events = list(writer.begin())
    for piece in [*reader.feed(content), *reader.close()]:
        events += writer.take(piece)
    if reader.error:
        return HTTPStatus.BAD_GATEWAY, orjson.dumps({"error": {"message": reader.error}})
    if not reader.ended:
        return HTTPStatus.BAD_GATEWAY, content
    events += writer.end(reader.finish_reason, reader.usage)
    return HTTPStatus.OK, b"".join(events) if stream else orjson.dumps(writer.whole)


class InChat(NamedTuple):
    asked: dict[str, Any]
    """The body of a request."""
    request: ChatRequest
    chat: bytes
    """The body of the same request to chat."""


def _read_apart(surface: Translatable, body: bytes, url: str, own_model: str | None) -> InChat | None:
    """Return a request without its conversation, and all of it in chat; None if it refers to earlier answers."""
    asked = orjson.loads(body)
    request = surface.read(asked)
    if request.previous is not None or any(name for each in request.messages for name in references(each)):
        return None
    chat = _chat(surface, asked, request, url, own_model)
    short = {name: value for name, value in asked.items() if name not in surface.fields}
    return InChat(short, replace(request, messages=request.messages[:1], origins=None), chat)


def _chat(
    surface: Translatable, asked: dict[str, Any], request: ChatRequest, url: str, own_model: str | None
) -> bytes:
    """``url`` and ``own_model`` are the target's."""
    model = own_model or request.model
    chat = ({"model": model} if model else {}) | surface.as_chat(asked, request)
    if LIMIT in chat and f".{urlsplit(url).hostname}".endswith(OPENAI):
        chat[NEW_LIMIT] = chat.pop(LIMIT)
    return orjson.dumps(chat)
