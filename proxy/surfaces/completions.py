"""OpenAI's text completions: ``POST /v1/completions``. Each prompt becomes a user message."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import choices
from burnish.proxy.surfaces.base import ChatRequest, OpenAI, Reply, model_of, wants_stream, with_suffix
from burnish.proxy.surfaces.chat import NO_USAGE, include_usage


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
        return choices.reassemble(chunks, content_type, content_encoding, _as_chat)

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
