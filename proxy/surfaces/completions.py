"""OpenAI's text completions: ``POST /v1/completions``. A prompt is read as one message of the user's."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import choices, fields
from burnish.proxy.surfaces.base import ChatRequest, OpenAI, Reply
from burnish.proxy.surfaces.chat import NO_USAGE, include_usage


class Completions(OpenAI):
    """The text completions format."""

    name: ClassVar[str] = "completions"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        params = {key: value for key, value in body.items() if key not in ("prompt", "model")}
        contents = (fields.around(content, body) for content in _contents(body.get("prompt")))
        messages = [{"role": "user", "content": content} for content in contents]
        return ChatRequest(
            messages, fields.model(body), fields.stream(body), params, origins=(-1,) * len(messages)
        )

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body as it is: it holds no history that anything could be cut from."""
        return body

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return None: there is no system prompt."""
        return None

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        return choices.reassemble(chunks, content_type, content_encoding, _as_chat)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
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
    """Return what each prompt says: a text, or tokens, of which only the model knows the text."""
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
    """Return a choice, or a piece of one, as a chat completion has it."""
    said = {"content": choice["text"]} if isinstance(choice.get("text"), str) else {}
    return {**choice, "message": said, "delta": said}


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
