"""A model that says what a test told it to, in the format in which it is asked: the five that burnish knows."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.support.scripted_model import on_a_thread
from tests.support.upstream import Received, Script, reply
from tests.support.wires import Says, answering, format_at

RETRY_AFTER = "7"
ERRORS = {404: "model_not_found", 429: "rate_limit_exceeded", 500: "server_error"}
REASONS = {404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(frozen=True)
class Fails:
    """One refusal."""

    status: int


@dataclass
class SdkModel:
    """The running server."""

    url: str = ""
    says: deque[Says | Fails] = field(default_factory=deque)
    """What it is about to say."""
    requests: list[Received] = field(default_factory=list)


@contextmanager
def sdk_model(*, only: str = "") -> Iterator[SdkModel]:
    """Run it until the block is left; ``only``: the one format that it knows, by its path."""
    model = SdkModel()
    with on_a_thread(_script(model, only)) as server:
        model.url, model.requests = server.url, server.requests
        yield model


def _script(model: SdkModel, only: str) -> Script:
    numbers = itertools.count(1)

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        path = request.target.partition("?")[0]
        form = format_at(path)
        if not form or only not in ("", form):
            found = path == "/v1/models"
            listed = reply(orjson.dumps({"object": "list", "data": [{"id": "mock"}]}))
            await (listed if found else reply(b"{}", status="404 Not Found"))(request, writer)
            return
        if not (asked := request.json()):
            await reply(b"{}", status="400 Bad Request")(request, writer)
            return
        said = model.says.popleft()
        if isinstance(said, Fails):
            await _refusal(said.status, path)(request, writer)
            return
        number = next(numbers)
        answer = answering(form, asked, said.message(number), number=number, model=asked.get("model", "mock"))
        await answer(request, writer)

    return script


def _refusal(status: int, path: str) -> Script:
    message, kind = f"refused with {status}", ERRORS[status]
    error: dict[str, Any] = {"error": {"message": message, "type": kind, "code": kind, "param": None}}
    if path == "/api/chat":
        error = {"error": message}
    elif path == "/v1/messages":
        error = {"type": "error", "error": {"type": kind, "message": message}}
    elif path.startswith("/v1beta"):
        error = {"error": {"code": status, "message": message, "status": kind.upper()}}
    headers = f"content-type: application/json\r\nretry-after: {RETRY_AFTER}\r\n"
    return reply(orjson.dumps(error), status=f"{status} {REASONS[status]}", headers=headers)
