"""A person at an agent, in any wire format: what the agent sends, and what a server says to it when told what.

A history is a list of entries that every format can say: the person's words (in parts), answers with calls of tools,
and what the tools returned. What the model is to say travels in a header of the request, so that requests may be sent
side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol
from urllib.parse import quote, unquote

import httpx
import orjson

from tests.support import anthropic_wire, responses
from tests.support.upstream import Received, reply

SAYS = "x-test-says"


@dataclass(frozen=True)
class Said:
    """The person's words, and what the client adds to them."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What the model says; ``call`` is the argument of the one tool that there is."""

    text: str
    call: int | None = None

    @property
    def call_id(self) -> str:
        return f"call_{self.call}"


@dataclass(frozen=True)
class Result:
    """What the tool returned."""

    call_id: str
    text: str


Entry = Said | Answer | Result


class Wire(Protocol):
    """One format."""

    path: str

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        """Say a request's body."""
        ...

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        """Say an answer's body."""
        ...

    def text(self, body: dict[str, Any]) -> str:
        """Read what an answer says."""
        ...


class Chat:
    path = "/v1/chat/completions"

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}, *map(self._message, history)]
        return {"model": "mock", "messages": messages}

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        finish = "stop" if answer.call is None else "tool_calls"
        choice = {"index": 0, "message": self._message(answer), "finish_reason": finish}
        return {"id": name, "object": "chat.completion", "model": "mock", "created": 1, "choices": [choice]}

    def text(self, body: dict[str, Any]) -> str:
        return str(body["choices"][0]["message"]["content"])

    def _message(self, entry: Entry) -> dict[str, Any]:
        match entry:
            case Said(parts):
                return {"role": "user", "content": [{"type": "text", "text": part} for part in parts]}
            case Result(call_id, text):
                return {"role": "tool", "tool_call_id": call_id, "content": text}
            case Answer(text, None):
                return {"role": "assistant", "content": text}
            case Answer(text, call):
                function = {"name": "look", "arguments": orjson.dumps({"at": call}).decode()}
                calls = [{"id": entry.call_id, "type": "function", "function": function}]
                return {"role": "assistant", "content": text, "tool_calls": calls}


class Messages:
    path = "/v1/messages"

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        items = [{"role": self._role(entry), "content": self._blocks(entry)} for entry in history]
        return {"model": "mock", "max_tokens": 50, "system": system, "messages": items}

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        why = "end_turn" if answer.call is None else "tool_use"
        body: dict[str, Any] = orjson.loads(
            anthropic_wire.message(*self._blocks(answer), id=name, stop_reason=why)
        )
        return body

    def text(self, body: dict[str, Any]) -> str:
        return "".join(block.get("text", "") for block in body["content"])

    def _role(self, entry: Entry) -> str:
        return "assistant" if isinstance(entry, Answer) else "user"

    def _blocks(self, entry: Entry) -> list[dict[str, Any]]:
        match entry:
            case Said(parts):
                return [anthropic_wire.text(part) for part in parts]
            case Result(call_id, text):
                return [{"type": "tool_result", "tool_use_id": call_id, "content": text}]
            case Answer(text, call):
                used = (
                    [] if call is None else [anthropic_wire.tool_use("look", {"at": call}, id=entry.call_id)]
                )
                return [*([anthropic_wire.text(text)] if text else []), *used]


class Responses:
    path = "/v1/responses"

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        items = [item for entry in history for item in self._items(entry)]
        return {"model": "mock", "store": False, "instructions": system, "input": items}

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        return responses.response(*self._items(answer), response_id=name)

    def text(self, body: dict[str, Any]) -> str:
        return "".join(
            part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]
        )

    def _items(self, entry: Entry) -> list[dict[str, Any]]:
        match entry:
            case Said(parts):
                content = [{"type": "input_text", "text": part} for part in parts]
                return [{"type": "message", "role": "user", "content": content}]
            case Result(call_id, text):
                return [{"type": "function_call_output", "call_id": call_id, "output": text}]
            case Answer(text, call):
                called = orjson.dumps({"at": call}).decode()
                used = [] if call is None else [responses.call("look", called, entry.call_id)]
                return [*([responses.message(text)] if text else []), *used]


class Ollama:
    path = "/api/chat"

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        messages = [message for entry in history for message in self._messages(entry)]
        system_message = {"role": "system", "content": system}
        return {"model": "mock", "stream": False, "messages": [system_message, *messages]}

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        head = {"model": "mock", "created_at": "2026-11-23T00:00:00Z"}
        return {**head, "message": self._messages(answer)[0], "done": True, "done_reason": "stop"}

    def text(self, body: dict[str, Any]) -> str:
        return str(body["message"]["content"])

    def _messages(self, entry: Entry) -> list[dict[str, Any]]:
        match entry:
            case Said(parts):
                return [{"role": "user", "content": part} for part in parts]
            case Result(_, text):
                return [{"role": "tool", "tool_name": "look", "content": text}]
            case Answer(text, call):
                used = [{"function": {"name": "look", "arguments": {"at": call}}}]
                calls = {} if call is None else {"tool_calls": used}
                return [{"role": "assistant", "content": text, **calls}]


class Gemini:
    path = "/v1beta/models/mock:generateContent"

    def request(self, system: str, history: Sequence[Entry]) -> dict[str, Any]:
        contents = [
            {"role": "model" if isinstance(entry, Answer) else "user", "parts": self._parts(entry)}
            for entry in history
        ]
        return {"systemInstruction": {"parts": [{"text": system}]}, "contents": contents}

    def response(self, answer: Answer, name: str) -> dict[str, Any]:
        content = {"role": "model", "parts": self._parts(answer)}
        return {"responseId": name, "candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}

    def text(self, body: dict[str, Any]) -> str:
        return "".join(part.get("text", "") for part in body["candidates"][0]["content"]["parts"])

    def _parts(self, entry: Entry) -> list[dict[str, Any]]:
        match entry:
            case Said(parts):
                return [{"text": part} for part in parts]
            case Result(_, text):
                return [{"functionResponse": {"name": "look", "response": {"output": text}}}]
            case Answer(text, call):
                used = [] if call is None else [{"functionCall": {"name": "look", "args": {"at": call}}}]
                return [*([{"text": text}] if text else []), *used]


WIRES: dict[str, Wire] = {
    "chat": Chat(),
    "messages": Messages(),
    "responses": Responses(),
    "ollama": Ollama(),
    "gemini": Gemini(),
}


class Model:
    """The server: says what each request asks it to say, under an id of its own."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ids = count()

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        said = Answer(**orjson.loads(unquote(request.header(SAYS) or "")))
        await reply(orjson.dumps(self._wire.response(said, f"resp-{next(self._ids)}")))(request, writer)


@dataclass(frozen=True)
class Made:
    """An answer that a client got."""

    completion_id: str
    response_id: str | None
    """Ollama gives none."""
    text: str


async def ask(
    http: httpx.AsyncClient, wire: Wire, system: str, history: Sequence[Entry], says: Answer
) -> Made:
    """Send a request to which the model answers as it is told."""
    headers = {SAYS: quote(orjson.dumps({"text": says.text, "call": says.call}))}
    answer = await http.post(wire.path, json=wire.request(system, history), headers=headers)
    assert answer.status_code == httpx.codes.OK, answer.text
    body = answer.json()
    response_id = body.get("id") or body.get("responseId")
    return Made(answer.headers.get("x-burnish-completion-id", ""), response_id, wire.text(body))
