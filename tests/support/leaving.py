"""Clients that leave at the end of a stream's format, before HTTP's: what OpenAI's SDKs do at ``data: [DONE]``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import orjson

from burnish.proxy.log import Log
from tests.proxy.log.exchanges import all_rated
from tests.support import wires
from tests.support.inprocess import behind
from tests.support.raw_server import dialled
from tests.support.upstream import Received, Upstream, reply, stream

LAGS_S = (0.0, 0.005, 0.05, 0.3)
"""Times between the end of the format and that of HTTP."""
ASKED: dict[str, Any] = {"model": "m", "stream": True}
HI = {**ASKED, "messages": [{"role": "user", "content": "Hi"}]}
PROMPT = {**ASKED, "prompt": "Hi"}
STREAMS: dict[str, tuple[dict[str, Any], bytes]] = {
    "/v1/chat/completions": (HI, b"[DONE]"),
    "/v1/completions": (PROMPT, b"[DONE]"),
    "/v1/responses": ({**ASKED, "input": "Hi"}, b'"type":"response.completed"'),
    "/v1/messages": ({**HI, "max_tokens": 9}, b'"type":"message_stop"'),
    "/api/chat": (HI, b'"done":true'),
    "/api/generate": (PROMPT, b'"done":true'),
    "/v1beta/models/m:streamGenerateContent?alt=sse": (
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        b'"finishReason":"STOP"',
    ),
}
"""Path → a request, and what only its format's last event holds."""
ONLY_CHAT = ("/v1/chat/completions",)


class Lagging:
    """An upstream that ends its streams some time after the last event."""

    def __init__(self, lag_s: float, known: tuple[str, ...] = (), text: str = "Hello there.") -> None:
        """``known``: the paths that it has; all by default."""
        self._lag_s = lag_s
        self._text = text
        self._known = known
        self.over = asyncio.Semaphore(0)
        """Streams that have ended, or were broken off."""

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if self._known and request.target not in self._known:
            await reply(b"{}", status="404 Not Found")(request, writer)
        elif request.body == b"[]":
            await reply(b"{}", status="422 Unprocessable")(request, writer)
        else:
            form = wires.format_at(request.target)
            _, parts = wires.write(form, {"content": self._text}, size=1 + len(self._text) // 3)
            try:
                await stream(parts, content_type=wires.content_type(form), lag_s=self._lag_s)(request, writer)
            finally:
                self.over.release()


async def leave_at_the_end(http: httpx.AsyncClient, path: str, *, rate: bool = False) -> str:
    """Ask, read to the end of the format, close the connection, and rate the answer at once; returns its ID."""
    asked, last = STREAMS[path]
    body = orjson.dumps(asked)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    async with dialled(str(http.base_url), head.encode() + body) as (reader, _):
        said = await reader.readuntil(b"\r\n\r\n")
        completion_id = said.partition(b"x-burnish-completion-id: ")[2].split(b"\r\n")[0].decode()
        await reader.readuntil(last)
        await reader.readuntil(b"\r\n")  # the end of the chunk
    if rate:
        rated = await http.post("/v1/feedback", json={"completion_id": completion_id, "rating": "good"})
        assert rated.status_code == 201, rated.text
    return completion_id


@asynccontextmanager
async def lagging(
    folder: Path, lag_s: float, *more: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Upstream, Lagging]]:
    script = Lagging(lag_s, *more)
    async with behind(folder, script) as (http, server):
        yield http, server, script


async def learnable(folder: Path) -> set[str]:
    """Return the rated completions that can be learnt from, once burnish has stopped."""
    with closing(Log.open(folder / "data" / "burnish.db")) as log:
        return {each.completion.id for each in await all_rated(log) if each.fault is None}
