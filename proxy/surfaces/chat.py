"""OpenAI's completions: ``POST /v1/chat/completions`` and ``POST /v1/completions``."""

from __future__ import annotations

import re
import time
from collections.abc import Set
from itertools import takewhile
from typing import Any
from urllib.parse import quote

import orjson

from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.surfaces.base import (
    ChatRequest,
    Reply,
    Surface,
    check_role,
    model_of,
    objects_at,
    wants_stream,
    with_suffix,
    with_text,
    without_items,
    wrong_type,
)
from burnish.proxy.surfaces.choices import read_reply
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import EVENTS, NO_USAGE, LocalAnswer

DEPLOYED = re.compile(r"(?P<before>.*/deployments/)(?P<model>[^/]+)(?P<after>/.*)")
"""Azure's paths, which name the model."""


class _OpenAi(Surface):
    def __init__(self, model: str | None = None) -> None:
        """``model``: the one that the path names."""
        self._model = model

    def path_naming(self, path: str, model: str) -> str | None:
        match = DEPLOYED.fullmatch(path)
        return f"{match['before']}{quote(model, safe='')}{match['after']}" if match else None


class Chat(_OpenAi):
    name = "chat"
    history = "messages"
    fields = ("messages",)

    def read(self, body: Json) -> ChatRequest:
        params = {key: param for key, param in body.items() if key not in ("messages", "model")}
        messages = objects_at(body, "messages", "a list of chat messages", "an object with a role")
        for index, message in enumerate(messages):
            if not isinstance(message.get("role"), str):  # histories are long, and this is for every request
                check_role(message, f"messages[{index}]")
        return ChatRequest(messages, self._model or model_of(body), wants_stream(body), params)

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        return {**body, "messages": without_items(body["messages"], request, cut)}

    def with_system(self, body: Json, text: str) -> Json | None:
        """Extend the last of the leading system messages, or insert one."""
        messages = body["messages"]
        system = list(takewhile(lambda message: message["role"] in SYSTEM_ROLES, messages))
        if len(system) == len(messages):
            return None  # no question
        if not system:
            return {**body, "messages": [{"role": "system", "content": text}, *messages]}
        content = with_text(system[-1].get("content"), text)
        if content is None:
            return None
        system[-1] = {**system[-1], "content": content}
        return {**body, "messages": [*system, *messages[len(system) :]]}

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return read_reply(body, content_type)

    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        head = {"id": completion_id, "created": int(time.time()), "model": model}
        if not request.stream:
            message = {"role": "assistant", "content": text, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            return _answer({**head, "object": "chat.completion"}, [choice], request)
        deltas: list[tuple[Json, str | None]] = [
            ({"role": "assistant", "content": ""}, None),
            ({"content": text}, None),
            ({}, "stop"),
        ]
        choices = [
            {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            for delta, reason in deltas
        ]
        return _answer({**head, "object": "chat.completion.chunk"}, choices, request)


def _answer(head: Json, choices: list[Json], request: ChatRequest) -> LocalAnswer:
    """Return an answer with one choice; in a stream with one choice per event."""
    if not request.stream:
        return "application/json", [orjson.dumps({**head, "choices": choices, "usage": NO_USAGE})]
    options = request.params.get("stream_options")
    counted = isinstance(options, dict) and options.get("include_usage") is True
    usage = {"usage": None} if counted else {}
    chunks: list[Json] = [{**head, "choices": [choice], **usage} for choice in choices]
    chunks += [{**head, "choices": [], "usage": NO_USAGE}] if counted else []
    return EVENTS, [*(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks), b"data: [DONE]\n\n"]


class Completions(_OpenAi):
    """Text completions. Each prompt becomes a user message; there is no history and no system prompt."""

    name = "completions"
    fields = ("prompt", "prompt_embeds")

    def read(self, body: Json) -> ChatRequest:
        params = {key: param for key, param in body.items() if key not in ("prompt", "model")}
        contents = (with_suffix(content, body) for content in _contents(body.get("prompt")))
        messages = [{"role": "user", "content": content} for content in contents]
        model = self._model or model_of(body)
        return ChatRequest(messages, model, wants_stream(body), params, origins=(-1,) * len(messages))

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return read_reply(body, content_type, as_chat)

    def answer(self, text: str, request: ChatRequest, completion_id: str, model: str) -> LocalAnswer:
        created = int(time.time())
        head = {"id": completion_id, "object": "text_completion", "created": created, "model": model}
        pieces = [(text, None), ("", "stop")] if request.stream else [(text, "stop")]
        choices: list[Json] = [
            {"index": 0, "text": piece, "logprobs": None, "finish_reason": reason} for piece, reason in pieces
        ]
        return _answer(head, choices, request)


def _contents(prompt: Any) -> list[Any]:
    """Return the content of each prompt: a text, or token ids."""
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list):
        raise wrong_type("prompt", "a string, or a list of strings or tokens", prompt)
    prompts = [prompt] if prompt and all(isinstance(token, int) for token in prompt) else prompt
    return [
        prompt if isinstance(prompt, str) else [{"type": "tokens", "tokens": prompt}] for prompt in prompts
    ]


def as_chat(choice: Json) -> Json:
    """Convert a choice, or a delta, to a chat completion's."""
    if not isinstance(choice.get("text"), str):
        return choice  # the end of a stream; or a server that sends chat's
    message = {"content": choice["text"]}
    return {**choice, "message": message, "delta": message}
