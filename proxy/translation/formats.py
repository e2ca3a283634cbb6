"""Messages, Ollama's formats and Gemini → chat completions; and the translations of all formats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from burnish.proxy.http.errors import InvalidRequest
from burnish.proxy.surfaces.base import ChatRequest, Surface, inherited
from burnish.proxy.surfaces.gemini import Gemini
from burnish.proxy.surfaces.gemini_contents import GeminiWriter, member, schema_of
from burnish.proxy.surfaces.lenient import Json, as_text, error_in, loads, objects
from burnish.proxy.surfaces.messages_stream import MessageWriter
from burnish.proxy.surfaces.ollama import OllamaChat, OllamaGenerate, OllamaWriter, now
from burnish.proxy.surfaces.writing import AnswerWriter
from burnish.proxy.translation import responses
from burnish.proxy.translation.asking import ask, json_schema

CHAT_PATH = "/v1/chat/completions"
NOT_CHAT = ("raw", "suffix", "template", "context")
"""Members of ``/api/generate`` that bypass the model's chat template."""
NO_TIME = (0, "0", "0s", "0m")
"""``keep_alive`` values that unload a model."""
MODES = {"ANY": "required", "NONE": "none"}
"""Gemini's function calling mode → chat's ``tool_choice``; others are up to the model."""
SOUNDS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}
"""Audio subtype → chat's format, if they differ."""


class Translation(NamedTuple):
    as_chat: Callable[[Json, ChatRequest], Json]
    """Takes a body and the request read from it. Raises InvalidRequest if chat can't express it."""
    writer: Callable[[Surface, Json, str, str], AnswerWriter]
    """Takes the surface of the path, the body, the completion id and the model."""
    idle: Callable[[Json, ChatRequest], Json] | None = None
    """Answers requests without a question, if the format has any."""


def with_history(request: ChatRequest, history: list[Json], params: Json) -> ChatRequest:
    """Return a request with the messages before it; ``params``: the parameters that came with those."""
    first = 1 if request.params.get("instructions") is True else 0
    messages = [*request.messages[:first], *history, *request.messages[first:]]
    return replace(request, messages=messages, params=inherited(request.params, params), previous=None)


def error_as(surface: Surface, status: int, body: bytes) -> bytes:
    """Translate an error of chat into another format. Responses has OpenAI's form, too, so there it may stay."""
    error = _object(body)
    details = error.get("error")
    is_openais = isinstance(details, dict) and isinstance(details.get("message"), str)
    if surface.name == "responses" and is_openais and not body.lstrip().startswith(b"["):
        return body
    words = error_in(error) or as_text(body) or f"the upstream answered with {status}"
    return orjson.dumps(surface.error_of(status, words))


def _object(body: bytes) -> Json:
    """Return an error body; Google puts it into a list, also at its copy of OpenAI's API."""
    with suppress(ValueError):
        error = loads(body)
        error = error[0] if isinstance(error, list) and error else error
        return error if isinstance(error, dict) else {}
    return {}


def _of_ollama(members: Callable[[Json], Json]) -> Translation:
    return Translation(
        _ollama_as_chat,
        lambda surface, body, name, model: OllamaWriter(model, members),
        lambda body, request: _ollama_loaded(body, request, members),
    )


def _messages_as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request of Messages.

    Left out: tools that Anthropic's servers run, thinking budgets, cache settings, metadata.
    """
    return ask(
        request.messages,
        request.params,
        stream=request.stream,
        tools=[tool for tool in objects(request.params.get("tools")) if tool.get("type") == "function"],
        max_tokens=body.get("max_tokens"),
        response_format=_messages_format(body),
    )


def _messages_format(body: Json) -> Json | None:
    output_format: Any = body.get("output_config")
    output_format = (
        output_format.get("format") if isinstance(output_format, dict) else body.get("output_format")
    )
    if not isinstance(output_format, dict) or output_format.get("type") != "json_schema":
        return None
    return json_schema(output_format.get("schema"), strict=True)


# -- Ollama's formats --------------------------------------------------------------------------------------------------


def _ollama_as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request. Raises InvalidRequest if chat can't express it.

    Left out: ``keep_alive``, options of the runner (``num_ctx``), whether to think.
    """
    for name in NOT_CHAT:
        if body.get(name):
            raise InvalidRequest(
                f"{name} needs an upstream that speaks Ollama's format: this one only speaks chat completions; "
                "send only prompt and system",
                param=name,
            )
    runner_options, params = body.get("options"), request.params
    options = runner_options if isinstance(runner_options, dict) else {}
    limit, effort = params.get("max_tokens"), body.get("think")
    return ask(
        request.messages,
        params,
        stream=request.stream,
        tools=[
            {"type": "function", "function": tool["function"]}
            for tool in objects(params.get("tools"))
            if isinstance(tool.get("function"), dict)
        ],
        # Below one means no limit.
        max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        repetition_penalty=options.get("repeat_penalty"),
        reasoning_effort=effort if isinstance(effort, str) else None,
        response_format=_ollama_format(body),
    )


def _ollama_loaded(body: Json, request: ChatRequest, members_of: Callable[[Json], Json]) -> Json:
    """Answer a request that only loads or unloads a model, which the upstream does by itself."""
    reason = "unload" if body.get("keep_alive") in NO_TIME else "load"
    ending = {"done": True, "done_reason": reason}
    return {"model": request.model, "created_at": now(), **members_of({"content": ""}), **ending}


def _ollama_format(body: Json) -> Json | None:
    output_format = body.get("format")
    if output_format == "json":
        return {"type": "json_object"}
    return json_schema(output_format) if isinstance(output_format, dict) and output_format else None


# -- Gemini ------------------------------------------------------------------------------------------------------------


def _gemini_as_chat(body: Json, request: ChatRequest) -> Json:
    """Return the chat request. Raises InvalidRequest if chat can't express it.

    Left out: tools that Google's servers run, thinking budgets, safety settings, labels.
    """
    params = request.params
    top_k = params.get("top_k")
    if member(body, "cachedContent"):
        raise InvalidRequest(
            "cachedContent needs an upstream that speaks Gemini: this one only speaks chat completions",
            param="cachedContent",
        )
    if params.get("n") not in (None, 1):
        raise InvalidRequest(
            "candidateCount must be 1 if the upstream only speaks chat completions",
            param="generationConfig.candidateCount",
        )
    return ask(
        [_gemini_message(message) for message in request.messages],
        params,
        stream=request.stream,
        max_tokens=params.get("max_tokens"),
        # Google's clients send 40.0, which some engines refuse.
        top_k=int(top_k) if isinstance(top_k, float) and top_k.is_integer() else top_k,
        response_format=_gemini_format(member(body, "generationConfig")),
        **_tools(member(member(body, "toolConfig"), "functionCallingConfig"), params.get("tools", [])),
    )


def _tools(config: Any, tools: list[Json]) -> Json:
    allowed, mode = member(config, "allowedFunctionNames"), member(config, "mode")
    if isinstance(allowed, list) and allowed:
        tools = [tool for tool in tools if tool["function"].get("name") in allowed]
    return {"tools": tools, "tool_choice": MODES.get(mode) if isinstance(mode, str) else None}


def _gemini_format(config: Any) -> Json | None:
    if member(config, "responseMimeType") != "application/json":
        return None
    schema = member(config, "responseJsonSchema") or schema_of(member(config, "responseSchema"))
    return json_schema(schema) if isinstance(schema, dict) and schema else {"type": "json_object"}


def _gemini_message(message: Json) -> Json:
    content = message.get("content")
    return {**message, "content": list(map(_gemini_part, content))} if isinstance(content, list) else message


def _gemini_part(part: Json) -> Json:
    blob = part.get("inlineData")
    if part["type"] != "inlineData" or not isinstance(blob, dict):
        return part
    kind, content = str(member(blob, "mimeType")), blob.get("data")
    family, _, name = kind.partition("/")
    if family == "audio":
        return {"type": "input_audio", "input_audio": {"data": content, "format": SOUNDS.get(name, name)}}
    filename = str(member(blob, "displayName") or f"document.{name}")
    return {"type": "file", "file": {"filename": filename, "file_data": f"data:{kind};base64,{content}"}}


TRANSLATIONS = {
    "messages": Translation(_messages_as_chat, lambda surface, body, name, model: MessageWriter(name, model)),
    "responses": Translation(
        responses.as_chat, lambda surface, body, name, model: responses.writer(body, name, model)
    ),
    "ollama_chat": _of_ollama(OllamaChat().members_of),
    "ollama_generate": _of_ollama(OllamaGenerate().members_of),
    "gemini": Translation(
        _gemini_as_chat,
        lambda surface, body, name, model: GeminiWriter(
            name, model, events=not isinstance(surface, Gemini) or surface.sse
        ),
    ),
}
"""By the name of the client's surface."""
