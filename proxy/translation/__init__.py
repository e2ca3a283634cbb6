"""Translate between client formats and upstreams that only know chat completions. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from burnish.proxy.surfaces import ChatRequest, Surface, gemini_writer, ollama_writer
from burnish.proxy.surfaces.lenient import as_text, error_in, loads
from burnish.proxy.surfaces.messages import error_of
from burnish.proxy.surfaces.messages_writer import MessageWriter
from burnish.proxy.surfaces.ollama_writer import OllamaWriter
from burnish.proxy.surfaces.writing import Writer
from burnish.proxy.translation import gemini, ollama, responses
from burnish.proxy.translation.asking import Json, ask, json_schema
from burnish.proxy.translation.reading import ChatReader

CHAT_PATH = "/v1/chat/completions"


class Translation(NamedTuple):
    """Translation of one format to chat and back."""

    as_chat: Callable[[Json, ChatRequest], Json]
    """Takes a body and the request read from it. Raises InvalidRequest if chat can't express it."""
    writer: Callable[[Surface, Json, str, str], Writer]
    """Takes the surface of the path, the body, the completion id and the model."""
    error: Callable[[int, bytes], bytes]
    """Translates an error: takes status and body."""
    idle: Callable[[Json, ChatRequest], Json] | None = None
    """Answers requests without a question, if the format has any."""


def with_history(request: ChatRequest, history: list[Json]) -> ChatRequest:
    """Return a request with the history that it only referred to."""
    first = 1 if request.params.get("instructions") is True else 0
    messages = request.messages
    return replace(request, messages=[*messages[:first], *history, *messages[first:]], previous=None)


def _translated_error(written: Callable[[int, str], Json]) -> Callable[[int, bytes], bytes]:
    """Return a function that translates a chat error into another format."""

    def translated(status: int, body: bytes) -> bytes:
        try:
            parsed = loads(body)
        except ValueError:
            parsed = None
        words = error_in(parsed) if isinstance(parsed, dict) else None
        words = words or as_text(body) or f"the upstream answered with {status}"
        return orjson.dumps(written(status, words))

    return translated


def _of_ollama(members: Callable[[Json], Json]) -> Translation:
    return Translation(
        ollama.as_chat,
        lambda surface, body, name, model: OllamaWriter(model, members),
        _translated_error(lambda status, words: ollama_writer.error_of(words)),
        lambda body, request: ollama.loaded(body, request, members),
    )


def _messages_as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request of Messages.

    Left out: tools that Anthropic's servers run, thinking budgets, cache settings, metadata.
    """
    tools = request.params.get("tools")
    given = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return ask(
        request.messages,
        request.params,
        stream=request.stream,
        tools=[tool for tool in given if tool.get("type") == "function"],
        max_tokens=body.get("max_tokens"),
        response_format=_messages_format(body),
    )


def _messages_format(body: Json) -> Json | None:
    """Return the ``response_format``, if any."""
    wanted: Any = body.get("output_config")
    wanted = wanted.get("format") if isinstance(wanted, dict) else body.get("output_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    return json_schema(wanted.get("schema"), strict=True)


TRANSLATIONS = {
    "messages": Translation(
        _messages_as_chat,
        lambda surface, body, name, model: MessageWriter(name, model),
        _translated_error(error_of),
    ),
    # Its errors are chat's.
    "responses": Translation(
        responses.as_chat,
        lambda surface, body, name, model: responses.writer(body, name, model),
        lambda status, body: body,
    ),
    "ollama_chat": _of_ollama(ollama_writer.as_message),
    "ollama_generate": _of_ollama(ollama_writer.as_response),
    "gemini": Translation(
        gemini.as_chat,
        lambda surface, body, name, model: gemini.writer(surface, name, model),
        _translated_error(gemini_writer.error_of),
    ),
}
"""By the name of the client's surface."""

__all__ = [
    "CHAT_PATH",
    "TRANSLATIONS",
    "ChatReader",
    "Translation",
    "Writer",
    "with_history",
]
