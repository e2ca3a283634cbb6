"""A model by script that speaks what agents speak: chat completions, Messages and Responses, streamed or whole."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.support.upstream import Received, Script, Upstream, reply, stream, upstream

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@dataclass(frozen=True)
class Call:
    """A tool that the model wants run."""

    name: str
    arguments: dict[str, Any]
    namespace: str = ""
    """Of the tool, where it has one; only Responses know such."""


Said = str | Call


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


Decide = Callable[[Asked], Said]


@dataclass
class ScriptedModel:
    """The running server, and what it was asked."""

    url: str
    decide: Decide
    asked: list[Asked] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)


@contextmanager
def scripted_model(decide: Decide, *, only: str = "", key: str | None = None) -> Iterator[ScriptedModel]:
    """Run it on a thread of its own, so that a test may wait for programs that ask it.

    ``only``: the one format that it knows, by its path. ``key``: without this one it refuses whatever it is asked.
    """
    model = ScriptedModel("", decide)
    with on_a_thread(_script(model, only, key)) as server:
        model.url, model.requests = server.url, server.requests
        yield model


@contextmanager
def on_a_thread(script: Script) -> Iterator[Upstream]:
    """Run a scripted upstream on a thread of its own."""
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
    ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


def _script(model: ScriptedModel, only: str, key: str | None) -> Script:
    numbers = itertools.count(1)
    known = {"/v1/chat/completions": _chat, "/v1/messages": _messages, "/v1/responses": _responses}
    formats = {only: known[only]} if only else known

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        path = urlsplit(request.target).path  # of a proxy's client the target is a whole URL
        if key is not None and keys_of(request) != {key}:
            await reply(b'{"error": {"message": "a wrong key"}}', status="401 Unauthorized")(request, writer)
            return
        if path not in formats:
            await _other(request.method, path)(request, writer)
            return
        body = request.json()
        if not body:
            await reply(b'{"error": {"message": "messages: missing"}}', status="400 Bad Request")(
                request, writer
            )
            return
        asked = _read(path, body)
        model.asked.append(asked)
        whole, events = formats[path](model.decide(asked), next(numbers), str(body.get("model")))
        answer = stream(events) if body.get("stream") else reply(orjson.dumps(whole))
        await answer(request, writer)

    return script


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


def _read(path: str, body: dict[str, Any]) -> Asked:
    system = _text(body.get("system") or body.get("instructions") or "")
    said: list[str] = []
    results: list[str] = []
    items = body.get("input") if path == "/v1/responses" else body["messages"]
    for item in items if isinstance(items, list) else [{"role": "user", "content": items}]:
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


Wire = tuple[dict[str, Any], list[bytes]]
"""A whole answer, and the events of the same answer streamed."""


def _chat(said: Said, number: int, model: str) -> Wire:
    head = {"id": f"chatcmpl-{number}", "created": 1, "model": model}
    if isinstance(said, str):
        message: dict[str, Any] = {"role": "assistant", "content": said}
        deltas = [{"content": piece} for piece in _pieces(said)]
        finish = "stop"
    else:
        function = {"name": said.name, "arguments": orjson.dumps(said.arguments).decode()}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        deltas = [{"tool_calls": [{"index": 0, **call}]}]
        finish = "tool_calls"

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def delta(said: dict[str, Any], finish: str | None = None) -> bytes:
        return event([{"index": 0, "delta": said, "finish_reason": finish}])

    events = [delta({"role": "assistant", "content": ""}), *map(delta, deltas), delta({}, finish)]
    whole = {"index": 0, "message": message, "finish_reason": finish}
    return (
        {**head, "object": "chat.completion", "choices": [whole], "usage": USAGE},
        [*events, event([], usage=USAGE), b"data: [DONE]\n\n"],
    )


def _messages(said: Said, number: int, model: str) -> Wire:
    usage = {"input_tokens": 5, "output_tokens": 2}
    if isinstance(said, str):
        block: dict[str, Any] = {"type": "text", "text": said}
        empty: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said)]
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": said.name, "input": said.arguments}
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": orjson.dumps(said.arguments).decode()}]
    reason = {"stop_reason": "end_turn" if isinstance(said, str) else "tool_use", "stop_sequence": None}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "usage": usage}
    begun = {**head, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": each} for each in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": usage},
        {"type": "message_stop"},
    ]
    return {**head, "content": [block], **reason}, _named(events)


def _responses(said: Said, number: int, model: str) -> Wire:
    head = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model}
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }
    place = {"item_id": f"item_{number}", "output_index": 0}
    if isinstance(said, str):
        part = {"type": "output_text", "text": said, "annotations": []}
        item: dict[str, Any] = {"id": f"item_{number}", "type": "message", "role": "assistant"}
        begun, done = {**item, "content": []}, {**item, "content": [part]}
        inside = {**place, "content_index": 0}
        events: list[dict[str, Any]] = [
            {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **inside, "delta": piece} for piece in _pieces(said)),
            {"type": "response.output_text.done", **inside, "text": said},
            {"type": "response.content_part.done", **inside, "part": part},
        ]
    else:
        arguments = orjson.dumps(said.arguments).decode()
        item = {
            "id": f"item_{number}",
            "type": "function_call",
            "call_id": f"call_{number}",
            "name": said.name,
        }
        if said.namespace:
            item["namespace"] = said.namespace
        begun, done = {**item, "arguments": ""}, {**item, "arguments": arguments}
        events = [
            {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
            {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
        ]
    done = {**done, "status": "completed"}
    whole = {**head, "status": "completed", "output": [done], "usage": usage}
    events = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**begun, "status": "in_progress"},
        },
        *events,
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": whole},
    ]
    return whole, _named([{**event, "sequence_number": n} for n, event in enumerate(events)])


def _named(events: list[dict[str, Any]]) -> list[bytes]:
    return [f"event: {each['type']}\ndata: ".encode() + orjson.dumps(each) + b"\n\n" for each in events]


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if index == 0 else f" {word}" for index, word in enumerate(words)]
