"""Google's format: ``POST /v1beta/models/{model}:generateContent``, and ``:streamGenerateContent`` for a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import orjson

from burnish.proxy.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces import bodies
from burnish.proxy.surfaces.base import ChatRequest, Reply, without_items
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.gemini_contents import (
    Part,
    assistant,
    content_of,
    member,
    parts_of,
    snake,
    tools_of,
    turns,
)
from burnish.proxy.surfaces.lenient import as_text, loads, storable
from burnish.proxy.surfaces.sse import SseParser

PATH = re.compile(
    r"/(?P<version>v1|v1beta|v1alpha)/models/(?P<model>.+)"
    r":(?P<method>generateContent|streamGenerateContent|countTokens)"
)
SSE = b"alt=sse"
"""What the query says where a stream is to come as events; without, it is one array that grows."""

SETTINGS = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "candidateCount": "n",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
"""Google's name for a sampling setting → that of chat."""
FILTERED = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
)  # fmt: skip
FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "FINISH_REASON_UNSPECIFIED": None,
    **dict.fromkeys(FILTERED, "content_filter"),
}
"""Google's word for why it ended → that of chat; those that chat does not have stay, in small letters."""
TOLD_BESIDES = ("logprobsResult", "citationMetadata", "groundingMetadata")
"""What is kept of a candidate besides its message."""
TOKENS = {
    "prompt_tokens": ("promptTokenCount", "toolUsePromptTokenCount"),
    "completion_tokens": ("candidatesTokenCount", "thoughtsTokenCount"),
    "total_tokens": ("totalTokenCount",),
}
"""Chat's name for a number of tokens → those of Google that it is the sum of."""
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Google's word for a status; INTERNAL for any other."""


@dataclass(frozen=True, slots=True)
class Gemini:
    """The format, and what the address of a request says of it: the log reads bodies without one."""

    name: ClassVar[str] = "gemini"
    key_header: ClassVar[bytes | None] = b"x-goog-api-key"
    model: str | None = None
    stream: bool = False
    sse: bool = True
    """Streamed as events."""

    @classmethod
    def at(cls, path: str, query: bytes = b"") -> Gemini | None:
        """Return the surface of an address; None where it is not one of Google's that take contents."""
        found = PATH.fullmatch(path)
        if found is None:
            return None
        sse = any(each.endswith(SSE) for each in query.split(b"&"))
        return cls(found["model"], found["method"] == "streamGenerateContent", sse)

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        said = list(turns(_contents(body)))
        messages = [message for turn in said for message in turn.messages]
        origins: list[int | tuple[int, ...]] = [turn.items for turn in said for _ in turn.messages]
        if system := parts_of(member(body, "systemInstruction")):
            messages.insert(0, {"role": "system", "content": content_of(system)})
            origins.insert(0, -1)
        return ChatRequest(messages, self.model, self.stream, _params(body), tuple(origins))

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body without some of the request's messages (by index) and everything else as it was."""
        return {**body, "contents": without_items(_contents(body), request, cut)}

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return the body with a text at the end of its system prompt; None when it has no place for one."""
        if not _contents(body) or member(body, "cachedContent"):
            return None  # nobody asks anything, or the system prompt is in what was cached
        system = member(body, "systemInstruction")
        spelt = "system_instruction" if "system_instruction" in body else "systemInstruction"
        if not isinstance(system, dict | None):
            return None
        return {**body, spelt: {**(system or {}), "parts": [*parts_of(system), {"text": text}]}}

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        try:
            body = decode(b"".join(chunks), content_encoding).strip()
        except Undecodable as undecodable:
            return Reply(error=str(undecodable), readable=False)
        parts, whole = _parts(body)
        return _reply(parts, whole=whole) if parts else Reply(error=as_text(body), readable=not body)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
        content = {"parts": [{"text": text}], "role": "model"}
        said = orjson.dumps(
            {
                "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
                "modelVersion": model,
                "responseId": completion_id,
            }
        )
        if request.stream and self.sse:
            return "text/event-stream", [b"data: " + said + b"\r\n\r\n"]
        return "application/json; charset=UTF-8", [b"[" + said + b"]" if request.stream else said]

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return the body that reports an error to clients of this format."""
        status = STATUSES.get(error.status, "INTERNAL")
        return {"error": {"code": error.status, "message": error.message, "status": status}}

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path that asks for another model; None where the member ``model`` of the body names it."""
        found = PATH.fullmatch(unquote(path))
        if found is None:
            return None
        return f"/{found['version']}/models/{quote(model, safe='/:@')}:{found['method']}"


def _contents(body: dict[str, Any]) -> list[dict[str, Any]]:
    contents = body.get("contents") or []
    if not isinstance(contents, list):
        raise InvalidRequest(
            f"contents must be a list of contents, not {type(contents).__name__}", param="contents"
        )
    for index, content in enumerate(contents):
        if not isinstance(content, dict):
            wrong = f"contents[{index}]"
            raise InvalidRequest(
                f"{wrong} must be an object with parts, not {type(content).__name__}", param=wrong
            )
    return contents


def _params(body: dict[str, Any]) -> dict[str, Any]:
    """Return the rest of a body, with functions and settings as chat has them."""
    read = {"contents", "tools", "systemInstruction", snake("systemInstruction")}
    rest = {key: value for key, value in body.items() if key not in read}
    config = member(body, "generationConfig")
    settings = {name: member(config, google) for google, name in SETTINGS.items()}
    return rest | {key: value for key, value in settings.items() if value is not None} | tools_of(body)


def _parts(body: bytes) -> tuple[list[dict[str, Any]], bool]:
    """Return the objects of an answer as far as they can be read, and whether it is one that was not streamed."""
    try:
        found = loads(body)
    except ValueError:
        found = list(_cut_array(body) if body.startswith(b"[") else _events(body))
    if isinstance(found, dict):
        return [found], True
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else [], False


def _events(body: bytes) -> Iterator[Any]:
    parser = SseParser()
    for event in [*parser.feed(body), *parser.close()]:
        try:
            yield loads(event.data)
        except ValueError:
            continue  # the last event of a cut stream


def _cut_array(body: bytes) -> Iterator[Any]:
    """Read the objects of an array as far as it goes."""
    text, decoder = body.decode("utf-8", "replace"), json.JSONDecoder()
    between = re.compile(r"[\s,]*")
    end = 1
    try:
        while found := between.match(text, end):
            value, end = decoder.raw_decode(text, found.end())
            yield value
    except (ValueError, RecursionError):
        return


def _reply(parts: Sequence[dict[str, Any]], *, whole: bool) -> Reply:
    choices = [storable(choice) for choice in _choices(parts)]
    spoken = [choice for choice in choices if choice["message"]]
    first = spoken[0] if spoken else choices[0] if choices else {}
    rich = len(spoken) > 1 or bool(spoken and set(first) - {"index", "message", "finish_reason"})
    error = _first(bodies.error_in(part) for part in parts)
    blocked = _first(member(member(part, "promptFeedback"), "blockReason") for part in parts)
    finished = blocked or (choices and all(choice["finish_reason"] for choice in choices))
    response_id = _first(member(part, "responseId") for part in parts)
    return Reply(
        message=first.get("message"),
        finish_reason=first.get("finish_reason") or ("content_filter" if blocked else None),
        response_id=response_id if isinstance(response_id, str) else None,
        usage=_usage(parts),
        choices=tuple(spoken) if rich else (),
        ended=whole or bool(finished and not error),
        error=error or (f"the prompt was blocked: {blocked}" if blocked else None),
    )


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value), None)


def _choices(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the candidates as choices of chat, in order of their index."""
    found: dict[int, dict[str, Any]] = {}
    said: dict[int, list[Part]] = {}
    for candidate in _candidates(parts):
        index = candidate["index"] if isinstance(candidate.get("index"), int) else 0
        choice = found.setdefault(index, {"index": index, "message": None, "finish_reason": None})
        said.setdefault(index, []).extend(parts_of(candidate.get("content")))
        reason = member(candidate, "finishReason")
        if isinstance(reason, str):
            choice["finish_reason"] = FINISH_REASONS.get(reason, reason.lower())
        told = {name: member(candidate, name) for name in TOLD_BESIDES}
        choice |= {name: value for name, value in told.items() if value}
    for index, choice in found.items():
        choice["message"] = message = assistant(said[index]) if said[index] else None
        if choice["finish_reason"] == "stop" and message and "tool_calls" in message:
            choice["finish_reason"] = "tool_calls"
    return [found[index] for index in sorted(found)]


def _candidates(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in parts:
        candidates = part.get("candidates")
        if isinstance(candidates, list):
            yield from (candidate for candidate in candidates if isinstance(candidate, dict))


def _usage(parts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what the last part counted, thoughts among the answer's tokens as in chat."""
    counted = [usage for part in parts if isinstance(usage := member(part, "usageMetadata"), dict)]
    if not counted:
        return None
    sums = {}
    for name, google in TOKENS.items():
        counts = [count for each in google if isinstance(count := member(counted[-1], each), int)]
        if counts:
            sums[name] = sum(counts)
    return sums | counted[-1]
