"""Gemini: ``POST /v1beta/models/{model}:generateContent`` and ``:streamGenerateContent``, under any prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from burnish.proxy.http.errors import InvalidRequest
from burnish.proxy.surfaces.asking import ask, json_schema
from burnish.proxy.surfaces.base import ChatRequest, Reply, Translatable, objects_at, unread, without_items
from burnish.proxy.surfaces.ends import failure, reason_of
from burnish.proxy.surfaces.gemini_contents import (
    JSON,
    GeminiWriter,
    Part,
    assistant,
    content_of,
    error_of,
    member,
    parts_of,
    schema_of,
    snake,
    tools_of,
    turns,
)
from burnish.proxy.surfaces.lenient import Json, error_in, integer, loads, objects, storable
from burnish.proxy.surfaces.sse import BYTE_ORDER_MARK, JsonEvents, is_lines

PATH = re.compile(
    r"(?P<prefix>.*?)/models/(?P<model>.+)"
    r":(?P<method>generateContent|streamGenerateContent|countTokens)/?"
)
SSE = b"alt=sse"
"""Query of a stream of events; without it, a stream is one growing array."""

SAME_SETTINGS = ("temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty")
RENAMED_SETTINGS = {"maxOutputTokens": "max_tokens", "stopSequences": "stop", "candidateCount": "n"}
SETTINGS = {name: snake(name) for name in SAME_SETTINGS} | RENAMED_SETTINGS
"""Gemini's sampling setting → chat's."""
MODES = {"ANY": "required", "NONE": "none"}
"""Gemini's function calling mode → chat's ``tool_choice``; others are up to the model."""
SOUNDS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}
"""Audio subtype → chat's format, if they differ."""
KEPT_MEMBERS = ("logprobsResult", "citationMetadata", "groundingMetadata")
"""Members of a candidate that are kept beside its message."""
TOKENS = {
    "prompt_tokens": ("promptTokenCount", "toolUsePromptTokenCount"),
    "completion_tokens": ("candidatesTokenCount", "thoughtsTokenCount"),
    "total_tokens": ("totalTokenCount",),
}
"""Chat's token count → the Gemini counts that add up to it."""


@dataclass(frozen=True, slots=True)
class Gemini(Translatable):
    """The format, with what a request's path says: model and streaming. The log reads bodies without a path."""

    name = "gemini"
    history = "contents"
    fields = ("contents",)
    key_header = b"x-goog-api-key"
    whole_type = JSON
    model: str | None = None
    stream: bool = False
    sse: bool = True
    """Streamed as events."""

    @classmethod
    def at(cls, path: str, query: bytes = b"") -> Gemini | None:
        """Return the surface of a path; None if it isn't a Gemini path."""
        match = PATH.fullmatch(path)
        if match is None:
            return None
        sse = any(pair.endswith(SSE) for pair in query.split(b"&"))
        return cls(match["model"], match["method"] == "streamGenerateContent", sse)

    def read(self, body: Json) -> ChatRequest:
        history = list(turns(_contents(body)))
        messages = [message for turn in history for message in turn.messages]
        origins: list[int | tuple[int, ...]] = [turn.items for turn in history for _ in turn.messages]
        if system := parts_of(member(body, "systemInstruction")):
            messages.insert(0, {"role": "system", "content": content_of(system)})
            origins.insert(0, -1)
        cached = member(body, "cachedContent")
        cache = cached if isinstance(cached, str) else None
        return ChatRequest(
            messages, self.model, self.stream, _params(body), tuple(origins), remote_context=cache
        )

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        return {**body, "contents": without_items(_contents(body), request, cut)}

    def with_system(self, body: Json, text: str) -> Json | None:
        if not _contents(body) or member(body, "cachedContent"):
            return None  # no question, or the system prompt is in the cached content
        system = member(body, "systemInstruction")
        spelt = "system_instruction" if "system_instruction" in body else "systemInstruction"
        if not isinstance(system, dict | None):
            return None
        return {**body, spelt: {**(system or {}), "parts": [*parts_of(system), {"text": text}]}}

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return _Collector().read(body.removeprefix(BYTE_ORDER_MARK).strip())

    def as_chat(self, body: Json, request: ChatRequest) -> Json:
        """Leaves out tools that Google's servers run, thinking budgets, safety settings, labels."""
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
            request,
            [_chat_message(message) for message in request.messages],
            max_tokens=params.get("max_tokens"),
            # Google's clients send 40.0, which some engines refuse.
            top_k=int(top_k) if isinstance(top_k, float) and top_k.is_integer() else top_k,
            response_format=_chat_format(member(body, "generationConfig")),
            **_chat_tools(
                member(member(body, "toolConfig"), "functionCallingConfig"), params.get("tools", [])
            ),
        )

    def writer(self, body: Json, completion_id: str, model: str) -> GeminiWriter:
        return GeminiWriter(completion_id, model, events=self.sse)

    def error_of(self, status: int, words: str) -> Json:
        return error_of(status, words)

    def path_naming(self, path: str, model: str) -> str | None:
        match = PATH.fullmatch(unquote(path))
        if match is None:
            return None
        prefix = quote(match["prefix"], safe="/:@")
        return f"{prefix}/models/{quote(model, safe='/:@')}:{match['method']}"


def _contents(body: Json) -> list[Json]:
    if not body.get("contents"):
        return []
    return objects_at(body, "contents", "a list of contents", "an object with parts")


def _params(body: Json) -> Json:
    """Return the other members of a body, with functions and settings in chat's form."""
    names = {"contents", "tools", "systemInstruction", snake("systemInstruction")}
    params = {key: param for key, param in body.items() if key not in names}
    config = member(body, "generationConfig")
    settings = {name: member(config, google) for google, name in SETTINGS.items()}
    return (
        params | {key: setting for key, setting in settings.items() if setting is not None} | tools_of(body)
    )


def _chat_tools(config: Any, tools: list[Json]) -> Json:
    allowed, mode = member(config, "allowedFunctionNames"), member(config, "mode")
    if isinstance(allowed, list) and allowed:
        tools = [tool for tool in tools if tool["function"].get("name") in allowed]
    return {"tools": tools, "tool_choice": MODES.get(mode) if isinstance(mode, str) else None}


def _chat_format(config: Any) -> Json | None:
    if member(config, "responseMimeType") != "application/json":
        return None
    schema = member(config, "responseJsonSchema") or schema_of(member(config, "responseSchema"))
    return json_schema(schema) if isinstance(schema, dict) and schema else {"type": "json_object"}


def _chat_message(message: Json) -> Json:
    content = message.get("content")
    return {**message, "content": list(map(_chat_part, content))} if isinstance(content, list) else message


def _chat_part(part: Json) -> Json:
    blob = part.get("inlineData")
    if part["type"] != "inlineData" or not isinstance(blob, dict):
        return part
    kind, content = str(member(blob, "mimeType")), blob.get("data")
    family, _, name = kind.partition("/")
    if family == "audio":
        return {"type": "input_audio", "input_audio": {"data": content, "format": SOUNDS.get(name, name)}}
    filename = str(member(blob, "displayName") or f"document.{name}")
    return {"type": "file", "file": {"filename": filename, "file_data": f"data:{kind};base64,{content}"}}


def _text(body: bytes) -> tuple[str, str | None]:
    """Return the text of a body and what is damaged; a truncated one may end within a character."""
    try:
        return body.decode(), None
    except UnicodeDecodeError as error:
        return body.decode("utf-8", "replace"), "the answer is not UTF-8" if error.end < len(body) else None


def _cut_array(text: str) -> Iterator[Any]:
    """Read the objects of a truncated array as far as it goes."""
    decoder = json.JSONDecoder(parse_int=integer)
    between = re.compile(r"[\s,]*")
    end = 1
    try:
        while match := between.match(text, end):
            part, end = decoder.raw_decode(text, match.end())
            yield part
    except (ValueError, RecursionError):
        return


class _Collector:
    """Collects an answer; each part of a stream is an object like a whole answer."""

    def __init__(self) -> None:
        self._found = False
        self._whole = False
        self._choices: dict[int, Json] = {}
        self._content: dict[int, list[Part]] = {}
        self._error: str | None = None
        self._blocked: Any = None
        self._response_id: Any = None
        self._usage: Json = {}

    def read(self, body: bytes) -> Reply:
        damage = self._read(body)
        return self._reply(damage) if self._found else unread(body)

    def _read(self, body: bytes) -> str | None:
        """Read a body, streamed or not; return what is damaged."""
        if not body.startswith((b"{", b"[")) or is_lines(body):
            events = JsonEvents(body)
            self._take_all(part for _, part in events)
            return events.damage
        try:
            answer = loads(body)
        except ValueError:
            text, damage = _text(body)
            self._take_all(_cut_array(text))
            return damage
        self._whole = isinstance(answer, dict)
        self._take_all([answer] if self._whole else answer)
        return None

    def _take_all(self, parts: Iterable[Any]) -> None:
        for part in parts:
            if isinstance(part, dict):
                self._take(part)

    def _take(self, part: Json) -> None:
        self._found = True
        self._error = self._error or error_in(part)
        self._blocked = self._blocked or member(member(part, "promptFeedback"), "blockReason")
        self._response_id = self._response_id or member(part, "responseId")
        if isinstance(usage := member(part, "usageMetadata"), dict):
            self._usage = usage
        for candidate in objects(part.get("candidates")):
            self._take_candidate(candidate)

    def _take_candidate(self, candidate: Json) -> None:
        index = candidate["index"] if isinstance(candidate.get("index"), int) else 0
        choice = self._choices.setdefault(index, {"index": index, "message": None, "finish_reason": None})
        self._content.setdefault(index, []).extend(parts_of(candidate.get("content")))
        reason = member(candidate, "finishReason")
        choice["finish_reason"] = reason_of(reason) or choice["finish_reason"]
        self._error = self._error or failure(reason)
        extras = {name: member(candidate, name) for name in KEPT_MEMBERS}
        choice |= {name: extra for name, extra in extras.items() if extra}

    def _reply(self, damage: str | None) -> Reply:
        choices = self._as_choices()
        replies = [choice for choice in choices if choice["message"]]
        first = replies[0] if replies else choices[0] if choices else {}
        rich = len(replies) > 1 or bool(replies and set(first) - {"index", "message", "finish_reason"})
        blocked = self._blocked
        finished = blocked or (choices and all(choice["finish_reason"] for choice in choices))
        return Reply(
            message=first.get("message"),
            finish_reason=first.get("finish_reason") or ("content_filter" if blocked else None),
            response_id=self._response_id if isinstance(self._response_id, str) else None,
            usage=_usage(self._usage),
            choices=tuple(replies) if rich else (),
            complete=bool(self._whole or finished) and not self._error and not damage,
            error=self._error or damage or (f"the prompt was blocked: {blocked}" if blocked else None),
            readable=damage is None,
        )

    def _as_choices(self) -> list[Json]:
        """Return the candidates as chat choices, by index."""
        for index, choice in self._choices.items():
            choice["message"] = message = assistant(self._content[index]) if self._content[index] else None
            if choice["finish_reason"] == "stop" and message and "tool_calls" in message:
                choice["finish_reason"] = "tool_calls"
        return [storable(self._choices[index]) for index in sorted(self._choices)]


def _usage(counted: Json) -> Json | None:
    """Return the last counts; as in chat, thoughts count as completion tokens."""
    sums = {}
    for name, google in TOKENS.items():
        counts = [count for google_name in google if isinstance(count := member(counted, google_name), int)]
        if counts:
            sums[name] = sum(counts)
    return sums | counted or None
