"""Asks upstreams that know chat completions only what clients of other formats ask, and answers these. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import orjson

from burnish.proxy.surfaces import ChatRequest, Surface, bodies, gemini_writer, ollama_writer
from burnish.proxy.surfaces.lenient import as_text, loads
from burnish.proxy.surfaces.messages import error_of
from burnish.proxy.surfaces.messages_writer import MessageWriter
from burnish.proxy.surfaces.ollama_writer import OllamaWriter
from burnish.proxy.surfaces.writing import Writer
from burnish.proxy.translation import gemini, messages, ollama, responses
from burnish.proxy.translation.asking import Json
from burnish.proxy.translation.reading import ChatReader

CHAT_PATH = "/v1/chat/completions"


class Translation(NamedTuple):
    """How one format becomes chat, and chat becomes that format."""

    as_chat: Callable[[Json, ChatRequest], Json]
    """Takes a body and what was read of it. Raises InvalidRequest where chat has no way to ask that."""
    writer: Callable[[Surface, Json, str, str], Writer]
    """Takes the format as the address has it, the body, our id of the completion, and the name of the model that
    answers."""
    error: Callable[[int, bytes], bytes]
    """Takes status and body of an error."""
    idle: Callable[[Json, ChatRequest], Json] | None = None
    """Answers what asks nothing, where a format has such requests."""


def standing_on(request: ChatRequest, held: list[Json]) -> ChatRequest:
    """Return a request with the messages before it that it only names: ``held``."""
    first = 1 if request.params.get("instructions") is True else 0
    said = request.messages
    return replace(request, messages=[*said[:first], *held, *said[first:]], previous=None)


def _saying(written: Callable[[int, str], Json]) -> Callable[[int, bytes], bytes]:
    """Return what says in a format what an error of chat's says."""

    def told(status: int, body: bytes) -> bytes:
        try:
            parsed = loads(body)
        except ValueError:
            parsed = None
        words = bodies.error_in(parsed) if isinstance(parsed, dict) else None
        words = words or as_text(body) or f"the upstream answered with {status}"
        return orjson.dumps(written(status, words))

    return told


def _of_ollama(saying: Callable[[Json], Json]) -> Translation:
    return Translation(
        ollama.as_chat,
        lambda surface, body, name, model: OllamaWriter(model, saying),
        _saying(lambda status, words: ollama_writer.error_of(words)),
        lambda body, request: ollama.loaded(body, request, saying),
    )


TRANSLATIONS = {
    "messages": Translation(
        messages.as_chat,
        lambda surface, body, name, model: MessageWriter(name, model),
        _saying(error_of),
    ),
    # Its errors are those of chat.
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
        _saying(gemini_writer.error_of),
    ),
}
"""By the name of the client's format."""

__all__ = [
    "CHAT_PATH",
    "TRANSLATIONS",
    "ChatReader",
    "Translation",
    "Writer",
    "standing_on",
]
