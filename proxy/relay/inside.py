"""Asks a model for burnish itself, through the relay in this process, and logs answers that no client asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson
from starlette.types import ASGIApp, Message, Scope

from burnish.proxy.access.access import IDENTITY, Identity, identity_of
from burnish.proxy.client_headers import CALLER, COMPLETION_ID, SESSION_HEADERS, caller_of
from burnish.proxy.http.headers import RawHeaders, named_headers
from burnish.proxy.http.listener import ON_LEAVE
from burnish.proxy.ids import completion_id
from burnish.proxy.records import Answerer, Completion, CompletionEnd, RequestFacts, Wire
from burnish.proxy.relay.commands import Log

PATH = "/v1/chat/completions"
UNLOGGED = "burnish.unlogged"
"""Key of the ASGI scope: the request is nobody's. It isn't logged, and gets no instructions."""
QUOTED_CHARACTERS = 300


class Asker(NamedTuple):
    """Who has burnish ask."""

    caller: str
    identity: Identity
    authorization: bytes | None
    """For an upstream that needs the caller's own key."""


def asker_of(scope: Scope) -> Asker:
    headers = named_headers(scope)
    return Asker(caller_of(headers), identity_of(scope), headers.get(b"authorization"))


class Answer(NamedTuple):
    completion_id: str
    """"" if it isn't logged."""
    text: str
    refusal: str
    """What the model refused, in the words of its provider; "" if nothing."""
    cut: bool
    """Whether a token limit ended it."""


class NoAnswer(Exception):
    """The model answered with an error, or with something else than a chat completion."""

    def __init__(self, status: int, content: bytes) -> None:
        fault = "its answer isn't a chat completion"
        if status != HTTPStatus.OK:
            fault = f"it answered with status {status}"
        super().__init__(f"{fault}: {content[:QUOTED_CHARACTERS].decode(errors='replace')}")
        self.status = status
        self.content = content


async def ask(
    relay: ASGIApp, request: Mapping[str, Any], asker: Asker, *, session: str = "", unlogged: bool = False
) -> Answer:
    """Ask for a chat completion. Raises NoAnswer, and what the relay raises."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    headers.append((CALLER, asker.caller.encode("latin-1", "replace")))
    if session:
        headers.append((SESSION_HEADERS[0], session.encode()))
    if asker.authorization:
        headers.append((b"authorization", asker.authorization))
    status, answer_headers, content = await _call(
        relay, headers, orjson.dumps(request), asker.identity, unlogged=unlogged
    )
    if status != HTTPStatus.OK:
        raise NoAnswer(status, content)
    try:
        choice = orjson.loads(content)["choices"][0]
        text, refusal = (str(choice["message"].get(name) or "") for name in ("content", "refusal"))
        cut = choice.get("finish_reason") == "length"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NoAnswer(status, content) from error
    return Answer(dict(answer_headers).get(COMPLETION_ID, b"").decode(), text, refusal, cut)


async def _call(
    relay: ASGIApp, headers: RawHeaders, body: bytes, identity: Identity, *, unlogged: bool
) -> tuple[int, RawHeaders, bytes]:
    """Return status, headers and body of the answer."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, answer_headers, parts = 0, [], []

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never  # this client doesn't leave

    async def send(message: Message) -> None:
        nonlocal status, answer_headers
        if message["type"] == "http.response.start":
            status, answer_headers = message["status"], list(message.get("headers", ()))
        else:
            parts.append(message.get("body", b""))

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [*headers, (b"content-length", b"%d" % len(body))],
        "client": None,
        "server": None,
        "extensions": {ON_LEAVE: lambda leave: None},
        IDENTITY: identity,
        UNLOGGED: unlogged,
    }
    await relay(scope, receive, send)
    return status, answer_headers, b"".join(parts)


def log_answer(
    log: Log,
    answerer: Answerer,
    messages: Sequence[Mapping[str, Any]],
    text: str,
    *,
    caller: str,
    asked_at: float,
    session: str | None = None,
    params: Mapping[str, Any] | None = None,
    cut: bool = False,
) -> str:
    """Log a text as an answer to messages that no client sent; return its ID.

    ``caller``: erasing them erases it. ``asked_at``: seconds since the epoch, UTC. ``cut``: a token limit ended it.
    """
    model = answerer.model_served
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
    request = {**(params or {}), "model": model, "messages": messages}
    answer = {"object": "chat.completion", "model": model, "choices": [choice]}
    record = Completion(
        completion_id(),
        RequestFacts(asked_at, "chat", model, caller, session, sub_agent=True),
        answerer,
        CompletionEnd("complete", 0.0, HTTPStatus.OK),
        wire=Wire(orjson.dumps(request), (orjson.dumps(answer),), "application/json"),
    )
    log.capture(record)
    return record.id
