"""A model by script that speaks what its clients speak, streamed or whole."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.support.patience import within
from tests.support.upstream import Received, Script, Upstream, by_request, reply, upstream
from tests.support.wires import Says, answering, format_at

AGENTS_FORMATS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
RETRY_AFTER = "7"
ERRORS = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.NOT_FOUND: "model_not_found",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
}


@dataclass(frozen=True)
class Fails:
    status: HTTPStatus


@dataclass(frozen=True)
class Asked:
    """One request, whatever its format."""

    path: str
    body: dict[str, Any]
    system: str
    """The system prompt, as far as it is a text or texts at the beginning."""
    said: tuple[str, ...]
    """The texts that came from the user's side since the last answer, system prompts left out."""
    results: tuple[str, ...]
    """What tools gave since the last answer."""
    tools: dict[str, dict[str, Any]]
    """The tools on offer: their parameters' JSON schemas by name."""


Decide = Callable[[Asked], Says | Fails]


@dataclass
class ScriptedModel:
    """The running server, and what it was asked."""

    url: str
    decide: Decide
    asked: list[Asked] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)


@contextmanager
def scripted_model(
    decide: Decide, *, formats: Sequence[str] = AGENTS_FORMATS, key: str | None = None
) -> Iterator[ScriptedModel]:
    """Run it on a thread of its own, so that a test may wait for programs that ask it.

    ``formats``: those that it knows. ``key``: without this one it refuses whatever it is asked.
    """
    model = ScriptedModel("", decide)
    with on_a_thread(_script(model, formats, key)) as server:
        model.url, model.requests = server.url, server.requests
        yield model


@contextmanager
def on_a_thread(script: Script) -> Iterator[Upstream]:
    found: list[Upstream] = []
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with upstream(script) as server:
            found.append(server)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(within(10))
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(within(10))
        loop.close()


def _script(model: ScriptedModel, formats: Sequence[str], key: str | None) -> Script:
    numbers = itertools.count(1)

    def answer(request: Received) -> Script:
        path = urlsplit(request.target).path  # of a proxy's client the target is a whole URL
        if key is not None and keys_of(request) != {key}:
            return reply(b'{"error": {"message": "a wrong key"}}', status="401 Unauthorized")
        form = format_at(path)
        if form not in formats:
            return _other(request.method, path)
        body = request.json()
        if not body:
            return reply(b'{"error": {"message": "messages: missing"}}', status="400 Bad Request")
        asked = _read(path, body)
        model.asked.append(asked)
        said, number = model.decide(asked), next(numbers)
        if isinstance(said, Fails):
            return _refusal(said.status, path)
        return answering(form, body, said.message(number), number=number, model=body.get("model", "mock"))

    return by_request(answer)


def keys_of(request: Received) -> set[str]:
    """Return the keys that came with a request, wherever a client may put one."""
    return {
        value.removeprefix("Bearer ")
        for name, value in request.headers
        if name.lower() in ("authorization", "x-api-key", "x-goog-api-key") and value
    }


def _other(method: str, path: str) -> Script:
    if method == "HEAD":
        return reply(b"")
    if path == "/v1/models":
        return reply(orjson.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))
    if path == "/v1/messages/count_tokens":
        return reply(b'{"input_tokens": 7}')
    return reply(b'{"error": {"message": "no such path"}}', status="404 Not Found")


def _refusal(status: HTTPStatus, path: str) -> Script:
    message, kind = f"refused with {status}", ERRORS[status]
    error: dict[str, Any] = {"error": {"message": message, "type": kind, "code": kind, "param": None}}
    if path == "/api/chat":
        error = {"error": message}
    elif path == "/v1/messages":
        error = {"type": "error", "error": {"type": kind, "message": message}}
    elif path.startswith("/v1beta"):
        error = {"error": {"code": status, "message": message, "status": kind.upper()}}
    headers = f"content-type: application/json\r\nretry-after: {RETRY_AFTER}\r\n"
    return reply(orjson.dumps(error), status=f"{status} {status.phrase}", headers=headers)


def _read(path: str, body: dict[str, Any]) -> Asked:
    system = _text(body.get("system") or body.get("instructions") or "")
    said: list[str] = []
    results: list[str] = []
    items = body.get("input") if path == "/v1/responses" else body.get("messages")
    for item in items if isinstance(items, list) else [{"role": "user", "content": items or []}]:
        kind, role = item.get("type", "message"), item.get("role")
        if role == "assistant" or kind in ("function_call", "custom_tool_call"):
            said, results = [], []
        elif kind in ("function_call_output", "custom_tool_call_output"):
            results.append(_text(item["output"]))
        elif role == "tool":
            results.append(_text(item["content"]))
        elif role in ("system", "developer"):
            system += _text(item["content"])
        elif role == "user":
            parts = item["content"] if isinstance(item["content"], list) else [{"text": item["content"]}]
            results += [_text(part.get("content")) for part in parts if part.get("type") == "tool_result"]
            said += [part["text"] for part in parts if "text" in part]
    tools = {}
    for each in body.get("tools") or ():
        tool = each.get("function", each)
        tools[tool.get("name", tool.get("type"))] = tool.get("parameters") or tool.get("input_schema") or {}
    return Asked(path, body, system, tuple(said), tuple(results), tools)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content)
