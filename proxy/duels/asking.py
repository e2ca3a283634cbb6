"""Asks one version through the relay, so that its answer is logged like that of any client."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson
from starlette.types import ASGIApp, Message

from burnish.proxy.access import IDENTITY, Identity
from burnish.proxy.client_headers import CALLER, COMPLETION_ID, SESSION_HEADERS
from burnish.proxy.errors import Conflict, Unavailable
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.listener import ON_LEAVE
from burnish.proxy.records import SAMPLED_FOR_DUELS

PATH = "/v1/chat/completions"
# Enough to judge by. A small model that never ends would otherwise keep the person waiting.
MAX_TOKENS = 1024
QUOTED_CHARACTERS = 300


class Asker(NamedTuple):
    """Who asks."""

    caller: str
    identity: Identity
    authorization: str | None
    """For an engine that needs the caller's own key."""


class Answered(NamedTuple):
    completion_id: str
    text: str


async def ask(relay: ASGIApp, model: str, prompt: str, asker: Asker) -> Answered:
    """Return the answer of a model to a prompt. Raises Conflict, and what the relay raises."""
    body = orjson.dumps(
        {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": MAX_TOKENS}
    )
    status, headers, content = await _call(relay, _headers(asker), body, asker.identity)
    if status != HTTPStatus.OK:
        said = content[:QUOTED_CHARACTERS].decode(errors="replace")
        raise Conflict(
            f"the engine refused the prompt for one of the versions (status {status}: {said}): try another prompt",
            code="prompt_refused",
        )
    try:
        text = str(orjson.loads(content)["choices"][0]["message"]["content"] or "")
    except (ValueError, LookupError, TypeError) as error:
        raise Unavailable("the engine's answer can't be read: try again, or run `burnish doctor`") from error
    if not text.strip():
        raise Conflict("one of the versions gave an empty answer: try another prompt", code="empty_answer")
    return Answered(dict(headers)[COMPLETION_ID].decode(), text)


def _headers(asker: Asker) -> RawHeaders:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (CALLER, asker.caller.encode("latin-1", "replace")),
        # Apart from the sessions of agents, in which the person may rate "the last answer".
        (SESSION_HEADERS[0], SAMPLED_FOR_DUELS.encode()),
    ]
    if asker.authorization:
        headers.append((b"authorization", asker.authorization.encode("latin-1", "replace")))
    return headers


async def _call(
    relay: ASGIApp, headers: RawHeaders, body: bytes, identity: Identity
) -> tuple[int, RawHeaders, bytes]:
    """Send a request to the relay in this process; return status, headers and body of its answer."""
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
    }
    await relay(scope, receive, send)
    return status, answer_headers, b"".join(parts)
