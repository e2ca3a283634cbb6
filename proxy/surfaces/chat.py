"""OpenAI chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import takewhile
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import fields
from burnish.proxy.surfaces.base import ChatRequest, OpenAI, Reply, without_items
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.lenient import as_text, loads, storable
from burnish.proxy.surfaces.merging import ChoiceMerger
from burnish.proxy.surfaces.sse import SseParser, plain_data

DONE = "[DONE]"
BYTES_DONE = DONE.encode()
SYSTEM_ROLES = ("system", "developer")


class Chat(OpenAI):
    """The chat completions format."""

    name: ClassVar[str] = "chat"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field.

        Only what burnish itself must understand is checked; the rest is between client and model.
        """
        params = {key: value for key, value in body.items() if key not in ("messages", "model")}
        return ChatRequest(_messages(body), fields.model(body), fields.stream(body), params)

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body without some of the request's messages (by index) and everything else as it was."""
        return {**body, "messages": without_items(body["messages"], request, cut)}

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return the body with a text at the end of its system prompt; None when it has no place for one.

        The last of the system messages that it begins with is extended; where there is none, one is put first.
        """
        messages = body["messages"]
        system = list(takewhile(lambda message: message["role"] in SYSTEM_ROLES, messages))
        if len(system) == len(messages):
            return None  # nobody asks anything
        if not system:
            return {**body, "messages": [{"role": "system", "content": text}, *messages]}
        content = _extended(system[-1].get("content"), text)
        if content is None:
            return None
        system[-1] = {**system[-1], "content": content}
        return {**body, "messages": [*system, *messages[len(system) :]]}

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        try:
            body = decode(b"".join(chunks), content_encoding)
        except Undecodable as error:
            return Reply(error=str(error), readable=False)
        streamed = "event-stream" in content_type.lower() or body[:16].lstrip().startswith(
            (b"data:", b"event:")
        )
        return _streamed(body) if streamed else _whole(body)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
        head = {"id": completion_id, "created": int(time.time()), "model": model}
        if request.stream:
            return "text/event-stream; charset=utf-8", _answer_events(text, head, _include_usage(request))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": NO_USAGE}
        return "application/json", [orjson.dumps(body)]


def _extended(content: Any, text: str) -> Any:
    """Return the content of a message with a text behind it; None when it is neither text nor parts."""
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


def _include_usage(request: ChatRequest) -> bool:
    options = request.params.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _whole(body: bytes) -> Reply:
    try:
        parsed = loads(body)
    except ValueError:
        return Reply(error=as_text(body), readable=not body)
    if not isinstance(parsed, dict):
        return Reply(error=as_text(body), readable=False)
    merger = ChoiceMerger()
    for choice in _choices(parsed):
        merger.whole(choice)
    error = as_text(body) if _error(parsed) else None
    return _reply(merger, parsed.get("id"), parsed.get("usage"), error, ended=True)


def _streamed(body: bytes) -> Reply:
    chunks, ended = _plain_chunks(body) or _chunks(body)
    merger = ChoiceMerger()
    response_id = usage = error = None
    for chunk, event_error in chunks:
        response_id = response_id or chunk.get("id")
        usage = chunk.get("usage") or usage
        error = error or _error(chunk) or event_error
        for choice in _choices(chunk):
            merger.delta(choice)
    return _reply(merger, response_id, usage, error, ended=(ended or merger.finished) and error is None)


Chunks = list[tuple[dict[str, Any], str | None]]
"""The objects of a stream; with an event that is named an error, its text."""


def _plain_chunks(body: bytes) -> tuple[Chunks, bool] | None:
    """Return the chunks of a stream in its usual form, and whether it ended well; None for any other.

    All of them are parsed as one array: a parser for each costs more than the parsing.
    """
    data = plain_data(body)
    if data is None or BYTES_DONE not in data:
        return None
    data = data[: data.index(BYTES_DONE)]
    try:
        chunks = orjson.loads(b"[" + b",".join(data) + b"]")
    except orjson.JSONDecodeError:
        return None
    whole = len(chunks) == len(data) and all(isinstance(chunk, dict) for chunk in chunks)
    return ([(chunk, None) for chunk in chunks], True) if whole else None


def _chunks(body: bytes) -> tuple[Chunks, bool]:
    """Return the chunks of a stream, as far as they can be read, and whether it ended well."""
    parser = SseParser()
    chunks: Chunks = []
    for event in [*parser.feed(body), *parser.close()]:
        if event.data.strip() == DONE:
            return chunks, True
        try:
            chunk = loads(event.data)
        except ValueError:
            continue  # the last event of a cut stream, or a server's small talk
        if isinstance(chunk, dict):
            chunks.append((chunk, event.data if event.name == "error" else None))
    return chunks, False


def _reply(merger: ChoiceMerger, response_id: Any, usage: Any, error: str | None, *, ended: bool) -> Reply:
    choices = [storable(choice) for choice in merger.choices()]
    first = choices[0] if choices else {}
    finish_reason = first.get("finish_reason")
    rich = len(choices) > 1 or bool(set(first) - {"index", "message", "finish_reason"})
    return Reply(
        message=first.get("message"),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=usage if isinstance(usage, dict) else None,
        choices=tuple(choices) if rich else (),
        ended=ended,
        error=error,
    )


def _choices(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choices = body.get("choices")
    return (
        (choice for choice in choices if isinstance(choice, dict)) if isinstance(choices, list) else iter(())
    )


def _error(body: dict[str, Any]) -> str | None:
    error = body.get("error")
    if not error:
        if "choices" in body:
            return None
        error = body.get("detail")  # FastAPI's form, as some engines send it
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    if not error:
        return None
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    return as_text(text.encode("utf-8", "replace"))


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
