"""Sends a request of burnish's own to the relay, in this process."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message

from burnish.proxy.access.access import IDENTITY, Identity
from burnish.proxy.http.headers import RawHeaders
from burnish.proxy.http.listener import ON_LEAVE

PATH = "/v1/chat/completions"
UNLOGGED = "burnish.unlogged"
"""Key of the ASGI scope: the request is nobody's. It isn't logged, and gets no instructions."""


async def call(
    relay: ASGIApp, headers: RawHeaders, body: bytes, identity: Identity, *, unlogged: bool = False
) -> tuple[int, RawHeaders, bytes]:
    """Ask for a chat completion; return status, headers and body of the answer. Raises what the relay raises."""
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
