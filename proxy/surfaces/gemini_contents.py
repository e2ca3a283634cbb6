"""Gemini's contents and parts: read as chat messages, and written as an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Json, dumps, objects
from burnish.proxy.surfaces.writing import (
    EVENTS,
    AnswerPiece,
    AnswerWriter,
    WholeCalls,
    arguments_of,
    count_in,
)

Part = Json

DESCRIPTIVE = ("Metadata", "mediaResolution", "mediaProcessing", "audioTranscription")
"""Suffixes of members that describe a part, beside its content."""
TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
SCHEMA_DEPTH = 32
"""Depth at which a schema is no longer converted."""


def member(holder: Any, name: str) -> Any:
    """Return a member in ``camelCase`` or ``snake_case``, as Google accepts both; None if missing."""
    if not isinstance(holder, dict):
        return None
    camel = holder.get(name)
    return holder.get(snake(name)) if camel is None else camel


@lru_cache(maxsize=256)
def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


@lru_cache(maxsize=256)
def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


@dataclass(frozen=True, slots=True)
class Turn:
    """One content, or several consecutive ones of the model, as clients return the chunks of a stream."""

    items: tuple[int, ...]
    """Indexes of the contents."""
    messages: list[Json]


def turns(contents: Iterable[Json]) -> Iterator[Turn]:
    for role, several in groupby(enumerate(contents), lambda pair: pair[1].get("role")):
        if role == "model":
            consecutive = list(several)
            parts = [part for _, content in consecutive for part in parts_of(content)]
            yield Turn(tuple(index for index, _ in consecutive), [assistant(parts)])
        else:
            # "function" was Google's first name for the role of results.
            speaker = role if isinstance(role, str) and role else "user"
            yield from (Turn((index,), _human(parts_of(content), speaker)) for index, content in several)


def parts_of(content: Any) -> list[Part]:
    return objects(content.get("parts")) if isinstance(content, dict) else []


def assistant(parts: Sequence[Part]) -> Json:
    """Return the model's message: texts joined, with thoughts and calls beside them."""
    calls = [call for part in parts if isinstance(call := member(part, "functionCall"), dict)]
    thoughts = [part["text"] for part in parts if part.get("thought") and isinstance(part.get("text"), str)]
    words = [part for part in parts if not part.get("thought") and member(part, "functionCall") is None]
    message: Json = {"role": "assistant", "content": _plain(_joined(_translated(words)))}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    return message


def content_of(parts: Iterable[Part]) -> Any:
    return _plain(_translated(parts))


def tools_of(body: Json) -> Json:
    """Return the tools as parameters: functions in chat's form, Google's own tools unchanged."""
    tools = objects(body.get("tools"))
    declared = [member(tool, "functionDeclarations") for tool in tools]
    params = {
        "tools": [_function(function) for functions in declared for function in objects(functions)],
        "google_tools": [tool for tool, functions in zip(tools, declared, strict=True) if functions is None],
    }
    return {name: param for name, param in params.items() if param}


def _human(parts: Sequence[Part], role: str) -> list[Json]:
    """Return the messages of a content from a user, or with function results.

    Parts next to a result belong to it (a file that was read), so they can't be a command.
    """
    results = [response for part in parts if isinstance(response := member(part, "functionResponse"), dict)]
    neighbours = _translated(part for part in parts if member(part, "functionResponse") is None)
    if not results:
        return [{"role": role, "content": _plain(neighbours)}]
    messages = [_result(response) for response in results]
    if neighbours:
        messages[-1]["content"] = [{"type": "text", "text": messages[-1]["content"]}, *neighbours]
    return messages


def _call(call: Json) -> Json:
    identity = {"id": call["id"]} if call.get("id") else {}
    function = {"name": call.get("name"), "arguments": dumps(call.get("args") or {})}
    return {**identity, "type": "function", "function": function}


def _result(response: Json) -> Json:
    identity = {"tool_call_id": response["id"]} if response.get("id") else {}
    content = dumps(response.get("response") or {})
    return {"role": "tool", **identity, "name": response.get("name"), "content": content}


def _translated(parts: Iterable[Part]) -> list[Json]:
    return [translated for part in parts if (translated := _translation(part))]


def _translation(part: Part) -> Json | None:
    """Convert a part to chat's; a kind that chat lacks keeps its content, with its name as type."""
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    objects = {_camel(name): content for name, content in part.items() if isinstance(content, dict)}
    kind = next((name for name in objects if name != "text" and not name.endswith(DESCRIPTIVE)), None)
    if kind is None:
        return None  # only a thought's signature
    content = objects[kind]
    if str(mime_type := member(content, "mimeType")).startswith("image/"):
        if kind == "inlineData":
            return _image(f"data:{mime_type};base64,{content.get('data')}")
        if kind == "fileData":
            return _image(member(content, "fileUri"))
    return {kind: content, "type": kind}


def _image(url: Any) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def _joined(parts: Iterable[Json]) -> list[Json]:
    joined: list[Json] = []
    for kind, several in groupby(parts, lambda part: part["type"]):
        if kind == "text":
            joined.append({"type": "text", "text": "".join(part["text"] for part in several)})
        else:
            joined += several
    return joined


def _plain(parts: list[Json]) -> Any:
    """Return a content: a string if it is one text or nothing, else parts."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _function(declared: Json) -> Json:
    schema = member(declared, "parametersJsonSchema") or schema_of(declared.get("parameters"))
    function = {
        "name": declared.get("name"),
        "description": declared.get("description"),
        "parameters": schema,
    }
    return {"type": "function", "function": {key: field for key, field in function.items() if field}}


def schema_of(schema: Any, depth: int = SCHEMA_DEPTH) -> Any:
    """Convert a schema to JSON Schema: Google writes types in capitals."""
    if depth and isinstance(schema, list):
        return [schema_of(subschema, depth - 1) for subschema in schema]
    if depth and isinstance(schema, dict):
        kind = schema.get("type")
        lower = {"type": kind.lower()} if isinstance(kind, str) and kind in TYPES else {}
        return {key: schema_of(subschema, depth - 1) for key, subschema in schema.items()} | lower
    return schema


JSON = "application/json; charset=UTF-8"
FINISH_REASONS = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
"""Chat's finish reason → Gemini's; any other is OTHER."""
STATUSES = {
    **dict.fromkeys((400, 413, 422), "INVALID_ARGUMENT"),
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    **dict.fromkeys((408, 504), "DEADLINE_EXCEEDED"),
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    **dict.fromkeys((502, 503), "UNAVAILABLE"),
}
"""HTTP status → Google's; any other is INTERNAL."""


def error_of(status: int, words: str) -> Json:
    return {"error": {"code": status, "message": words, "status": STATUSES.get(status, "INTERNAL")}}


class GeminiWriter(AnswerWriter):
    def __init__(self, response_id: str, model: str, *, events: bool = True) -> None:
        """``events``: stream events instead of an array."""
        self.content_type = EVENTS if events else JSON
        self._events = events
        self._head = {"modelVersion": model, "responseId": response_id}
        self._calls = WholeCalls()
        self._parts: list[Part] = []
        self._begun = False

    def take(self, piece: AnswerPiece) -> Iterator[bytes]:
        for complete_piece in self._calls.take(piece):
            self._parts.append(_part(complete_piece))
            yield self._next(self._answer(self._parts[-1:]))

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        called = [_part(piece) for piece in self._calls.close()]
        self._parts += called
        # As Google does: its clients keep the content of each part of a stream, and none may be empty.
        last = called or [{"text": ""}]
        ending = {"finishReason": FINISH_REASONS.get(finish_reason or "stop", "OTHER")}
        counts = {"usageMetadata": _counts(usage)} if usage else {}
        self.whole = self._answer(_written(self._parts) or last, **ending) | counts
        yield self._next(self._answer(last, **ending) | counts) + self._close()

    def fail(self, words: str) -> Iterator[bytes]:
        yield self._next(error_of(500, words)) + self._close()

    def _answer(self, parts: Sequence[Part], **members: Any) -> Json:
        candidate = {"content": {"parts": parts, "role": "model"}, **members, "index": 0}
        return {"candidates": [candidate], **self._head}

    def _next(self, answer: Json) -> bytes:
        is_later, self._begun = self._begun, True
        if self._events:
            return b"data: %b\r\n\r\n" % orjson.dumps(answer)
        return (b",\r\n" if is_later else b"[") + orjson.dumps(answer)

    def _close(self) -> bytes:
        return b"" if self._events else b"]"


def _part(piece: AnswerPiece) -> Part:
    if piece.call:
        call = {"id": piece.call.id, "name": piece.call.name, "args": arguments_of(piece.text)}
        return {"functionCall": call}
    return {"text": piece.text} | ({"thought": True} if piece.kind == "thought" else {})


def _written(parts: Sequence[Part]) -> list[Part]:
    """Join consecutive texts of the same kind."""
    joined: list[Part] = []
    for kind, several in groupby(parts, lambda part: part.keys()):
        alike = list(several)
        joined += [{**alike[0], "text": "".join(part["text"] for part in alike)}] if "text" in kind else alike
    return joined


def _counts(usage: Json) -> Json:
    """Return Gemini's counts: thoughts count separately."""
    prompt, completion = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    thoughts = min(count_in(usage.get("completion_tokens_details"), "reasoning_tokens"), completion)
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": completion - thoughts}
    counts["totalTokenCount"] = prompt + completion
    besides = {"cachedContentTokenCount": cached, "thoughtsTokenCount": thoughts}
    return counts | {name: count for name, count in besides.items() if count}
