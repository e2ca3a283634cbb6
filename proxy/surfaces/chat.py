"""OpenAI's completions: ``POST /v1/chat/completions`` and ``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import takewhile
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces.base import (
    ChatRequest,
    OpenAI,
    Reply,
    model_of,
    wants_stream,
    with_suffix,
    without_items,
)
from burnish.proxy.surfaces.choices import reassemble

SYSTEM_ROLES = ("system", "developer")


class Chat(OpenAI):
    """The chat completions format."""

    name: ClassVar[str] = "chat"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        params = {key: value for key, value in body.items() if key not in ("messages", "model")}
        return ChatRequest(_messages(body), model_of(body), wants_stream(body), params)

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        return {**body, "messages": without_items(body["messages"], request, cut)}

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Extend the last of the leading system messages, or insert one."""
        messages = body["messages"]
        system = list(takewhile(lambda message: message["role"] in SYSTEM_ROLES, messages))
        if len(system) == len(messages):
            return None  # no question
        if not system:
            return {**body, "messages": [{"role": "system", "content": text}, *messages]}
        content = _extended(system[-1].get("content"), text)
        if content is None:
            return None
        system[-1] = {**system[-1], "content": content}
        return {**body, "messages": [*system, *messages[len(system) :]]}

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        return reassemble(chunks, content_type, content_encoding)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        head = {"id": completion_id, "created": int(time.time()), "model": model}
        if request.stream:
            return "text/event-stream; charset=utf-8", _answer_events(text, head, include_usage(request))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": NO_USAGE}
        return "application/json", [orjson.dumps(body)]


def _extended(content: Any, text: str) -> Any:
    """Append a text to the content of a message; None if it is neither text nor parts."""
    if isinstance(content, str):
        return f"{content}\n\n{text}" if content else text
    return [*content, {"type": "text", "text": text}] if isinstance(content, list) else None


NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        given = "nothing" if messages is None else type(messages).__name__
        raise InvalidRequest(f"messages must be a list of chat messages, not {given}", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            wrong = f"messages[{index}]"
            raise InvalidRequest(
                f"{wrong} must be an object with a role, not {type(message).__name__}", param=wrong
            )
        if not isinstance(message.get("role"), str):
            wrong = f"messages[{index}].role"
            raise InvalidRequest(f'{wrong} must be a string such as "user" or "assistant"', param=wrong)
    return messages


def include_usage(request: ChatRequest) -> bool:
    """Return whether a stream must report its usage."""
    options = request.params.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _answer_events(text: str, head: dict[str, Any], include_usage: bool) -> Iterator[bytes]:
    head = {**head, "object": "chat.completion.chunk"}
    usage = {"usage": None} if include_usage else {}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, "stop"),
    ]
    for delta, finish_reason in deltas:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        yield _event({**head, "choices": [choice], **usage})
    if include_usage:
        yield _event({**head, "choices": [], "usage": NO_USAGE})
    yield b"data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


class Completions(OpenAI):
    """The text completions format."""

    name: ClassVar[str] = "completions"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        params = {key: value for key, value in body.items() if key not in ("prompt", "model")}
        contents = (with_suffix(content, body) for content in _contents(body.get("prompt")))
        messages = [{"role": "user", "content": content} for content in contents]
        return ChatRequest(
            messages, model_of(body), wants_stream(body), params, origins=(-1,) * len(messages)
        )

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body unchanged: it has no history."""
        return body

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return None: the format has no system prompt."""
        return None

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        return reassemble(chunks, content_type, content_encoding, _as_chat)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        head = {
            "id": completion_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        if request.stream:
            return "text/event-stream; charset=utf-8", _events(text, head, include_usage(request))
        return "application/json", [
            orjson.dumps({**head, "choices": [_choice(text, "stop")], "usage": NO_USAGE})
        ]


def _contents(prompt: Any) -> list[Any]:
    """Return the content of each prompt: a text, or token ids."""
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list):
        raise InvalidRequest(
            f"prompt must be a string, or a list of strings or tokens, not {type(prompt).__name__}",
            param="prompt",
        )
    prompts = [prompt] if prompt and all(isinstance(token, int) for token in prompt) else prompt
    return [each if isinstance(each, str) else [{"type": "tokens", "tokens": each}] for each in prompts]


def _as_chat(choice: dict[str, Any]) -> dict[str, Any]:
    """Convert a choice, or a delta, to a chat completion's."""
    message = {"content": choice["text"]} if isinstance(choice.get("text"), str) else {}
    return {**choice, "message": message, "delta": message}


def _events(text: str, head: dict[str, Any], with_usage: bool) -> Iterator[bytes]:
    usage = {"usage": None} if with_usage else {}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [_choice(text, None)], **usage},
        {**head, "choices": [_choice("", "stop")], **usage},
    ]
    if with_usage:
        chunks.append({**head, "choices": [], "usage": NO_USAGE})
    for chunk in chunks:
        yield b"data: " + orjson.dumps(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
