"""Gemini → chat completions."""

from __future__ import annotations

from typing import Any

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import ChatRequest, Gemini, Surface
from burnish.proxy.surfaces.gemini_contents import member, schema_of
from burnish.proxy.surfaces.gemini_writer import GeminiWriter
from burnish.proxy.translation.asking import Json, ask, json_schema

MODES = {"ANY": "required", "NONE": "none"}
"""Gemini's function calling mode → chat's ``tool_choice``; others are up to the model."""
SOUNDS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}
"""Audio subtype → chat's format, if they differ."""
JSON = "application/json"


def as_chat(body: Json, request: ChatRequest) -> Json:
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
        [_message(message) for message in request.messages],
        params,
        stream=request.stream,
        max_tokens=params.get("max_tokens"),
        # Google's clients send 40.0, which some engines refuse.
        top_k=int(top_k) if isinstance(top_k, float) and top_k.is_integer() else top_k,
        response_format=_format(member(body, "generationConfig")),
        **_tools(member(member(body, "toolConfig"), "functionCallingConfig"), params.get("tools", [])),
    )


def writer(surface: Surface, completion_id: str, model: str) -> GeminiWriter:
    events = not isinstance(surface, Gemini) or surface.sse
    return GeminiWriter(completion_id, model, events=events)


def _tools(config: Any, tools: list[Json]) -> Json:
    """Return the allowed functions and the tool choice."""
    allowed, mode = member(config, "allowedFunctionNames"), member(config, "mode")
    if isinstance(allowed, list) and allowed:
        tools = [tool for tool in tools if tool["function"].get("name") in allowed]
    return {"tools": tools, "tool_choice": MODES.get(mode) if isinstance(mode, str) else None}


def _format(config: Any) -> Json | None:
    """Return the ``response_format``, if any."""
    if member(config, "responseMimeType") != JSON:
        return None
    schema = member(config, "responseJsonSchema") or schema_of(member(config, "responseSchema"))
    return json_schema(schema) if isinstance(schema, dict) and schema else {"type": "json_object"}


def _message(message: Json) -> Json:
    """Convert the files and audio in a message to chat's."""
    content = message.get("content")
    return {**message, "content": [_part(part) for part in content]} if isinstance(content, list) else message


def _part(part: Json) -> Json:
    blob = part.get("inlineData")
    if part["type"] != "inlineData" or not isinstance(blob, dict):
        return part
    kind, data = str(member(blob, "mimeType")), blob.get("data")
    family, _, name = kind.partition("/")
    if family == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": SOUNDS.get(name, name)}}
    named = str(member(blob, "displayName") or f"document.{name}")
    return {"type": "file", "file": {"filename": named, "file_data": f"data:{kind};base64,{data}"}}
