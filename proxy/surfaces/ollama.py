"""Ollama's own formats, ``POST /api/chat`` and ``POST /api/generate``: lines of JSON, unless asked not to stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces import bodies
from burnish.proxy.surfaces.base import ChatRequest, Reply
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.lenient import as_text, dumps, loads, storable

CHAT = Chat()

LOADING = ("load", "unload")
"""Why an answer is done that answers nobody: a request without a question loads the model, or frees its memory."""
METRICS = (
    "total_duration", "load_duration",
    "prompt_eval_count", "prompt_eval_duration",
    "eval_count", "eval_duration",
)  # fmt: skip
TOKENS = {"prompt_eval_count": "prompt_tokens", "eval_count": "completion_tokens"}
"""Ollama's name for a number of tokens → that of chat."""
SAME_SETTINGS = (
    "temperature", "top_p", "top_k", "min_p", "stop", "seed",
    "repeat_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
SETTINGS = {**{name: name for name in SAME_SETTINGS}, "num_predict": "max_tokens"}
"""Ollama's name for a sampling setting → that of chat."""
OWN_MEMBERS = frozenset({"images", "thinking", "tool_calls", "tool_name"})
"""What a message of Ollama says otherwise than one of chat."""
IMAGE_TYPES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGO": "gif", "UklGR": "webp"}
"""How an image begins in base64 → what it is: Ollama's clients do not say."""


class _Ollama(ABC):
    """What both have in common: how an answer comes."""

    key_header: ClassVar[bytes | None] = None

    @abstractmethod
    def _said(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return the message in a part of an answer, as /api/chat has it; {} when there is none."""

    @abstractmethod
    def _saying(self, text: str) -> dict[str, Any]:
        """Return the members of an answer that say a text."""

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        try:
            body = decode(b"".join(chunks), content_encoding)
        except Undecodable as undecodable:
            return Reply(error=str(undecodable), readable=False)
        parts = _parts(body)
        if not parts:
            return Reply(error=as_text(body), readable=not body)
        error = next((words for part in parts if (words := bodies.error_in(part))), None)
        reason = next((part["done_reason"] for part in reversed(parts) if part.get("done_reason")), None)
        said = [found for part in parts if (found := self._said(part))]
        message = storable(_reply(said)) if said and reason not in LOADING else None
        if message and message.get("tool_calls") and reason == "stop":
            reason = "tool_calls"
        finish_reason = reason if isinstance(reason, str) else None
        return Reply(
            message=message,
            finish_reason=finish_reason,
            usage=_usage(parts),
            choices=_choices(parts, message, finish_reason),
            ended=error is None and any(part.get("done") is True for part in parts),
            error=error,
        )

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
        head = {"model": model, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
        end = {"done": True, "done_reason": "stop", **dict.fromkeys(METRICS, 0)}
        if not request.stream:
            return "application/json; charset=utf-8", [orjson.dumps(head | self._saying(text) | end)]
        lines = (head | self._saying(text) | {"done": False}, head | self._saying("") | end)
        return "application/x-ndjson", [orjson.dumps(line) + b"\n" for line in lines]

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return the body that reports an error to clients of this format."""
        return {"error": error.message}

    def path_naming(self, path: str, model: str) -> str | None:
        """Return the path that asks for another model; None where the member ``model`` of the body names it."""
        return None


class OllamaChat(_Ollama):
    """``/api/chat``."""

    name: ClassVar[str] = "ollama_chat"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        request = CHAT.read({**body, "messages": body.get("messages") or []})
        return _request(request, [_message(message) for message in request.messages])

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body without some of the request's messages (by index) and everything else as it was."""
        return CHAT.without(body, request, cut)

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return the body with a text at the end of its system prompt; None when it has no place for one."""
        return CHAT.with_system(body, text) if body.get("messages") else None

    def _said(self, part: dict[str, Any]) -> dict[str, Any]:
        message = part.get("message")
        return message if isinstance(message, dict) else {}

    def _saying(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}


class OllamaGenerate(_Ollama):
    """``/api/generate``: one prompt, which may have a system prompt."""

    name: ClassVar[str] = "ollama_generate"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        messages = []
        if system := _text(body, "system"):
            messages.append({"role": "system", "content": system})
        if (prompt := _text(body, "prompt")) or body.get("images"):
            messages.append(_message({"role": "user", "content": prompt, "images": body.get("images")}))
        rest = {key: value for key, value in body.items() if key not in ("system", "prompt", "images")}
        return _request(CHAT.read({**rest, "messages": messages}), messages)

    def without(self, body: dict[str, Any], request: ChatRequest, cut: Set[int]) -> dict[str, Any]:
        """Return the body as it is: it holds no history that anything could be cut from."""
        return body

    def with_system(self, body: dict[str, Any], text: str) -> dict[str, Any] | None:
        """Return the body with a text at the end of its system prompt; None when it has no place for one."""
        if body.get("raw") or not body.get("prompt"):
            return None
        system = body.get("system")
        return {**body, "system": f"{system}\n\n{text}" if system else text}

    def _said(self, part: dict[str, Any]) -> dict[str, Any]:
        if "response" not in part:
            return {}
        more: dict[str, Any] = {key: part[key] for key in ("thinking", "tool_calls", "image") if key in part}
        return {"content": part["response"], **more}

    def _saying(self, text: str) -> dict[str, Any]:
        return {"response": text}


def _text(body: dict[str, Any], name: str) -> str:
    text = body.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidRequest(f"{name} must be a string, not {type(text).__name__}", param=name)
    return text or ""


def _request(request: ChatRequest, messages: list[dict[str, Any]]) -> ChatRequest:
    """Return a request that was read as one of chat with what Ollama means by it."""
    options = request.params.get("options")
    given = options if isinstance(options, dict) else {}
    settings = {SETTINGS[name]: value for name, value in given.items() if name in SETTINGS}
    streamed = request.params.get("stream") is not False
    return replace(request, messages=messages, stream=streamed, params={**settings, **request.params})


def _message(said: dict[str, Any]) -> dict[str, Any]:
    """Return a message as chat has it; the same object where that makes no difference."""
    if OWN_MEMBERS.isdisjoint(said):
        return said
    message = {key: value for key, value in said.items() if key not in OWN_MEMBERS}
    if images := [image for image in _list(said.get("images")) if isinstance(image, str)]:
        text = said.get("content")
        words = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
        message["content"] = [*words, *(_image(image) for image in images)]
    if said.get("thinking"):
        message["reasoning_content"] = said["thinking"]
    if calls := [call for each in _list(said.get("tool_calls")) if (call := _call(each))]:
        message["tool_calls"] = calls
    if said.get("tool_name"):
        message["name"] = said["tool_name"]
    return message


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _image(data: str) -> dict[str, Any]:
    kind = next((kind for begin, kind in IMAGE_TYPES.items() if data.startswith(begin)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def _call(call: Any) -> dict[str, Any] | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return None
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else dumps(arguments)
    identity = {"id": call["id"]} if call.get("id") else {}
    return {**identity, "type": "function", "function": {"name": function.get("name"), "arguments": text}}


def _parts(body: bytes) -> list[dict[str, Any]]:
    """Return the objects of an answer, one or a line each, as far as they can be read."""
    try:
        return [whole] if isinstance(whole := loads(body), dict) else []
    except ValueError:
        return [part for line in body.splitlines() if (part := _part(line))]


def _part(line: bytes) -> dict[str, Any] | None:
    try:
        part = loads(line)
    except ValueError:
        return None  # the last line of a cut stream
    return part if isinstance(part, dict) else None


def _reply(said: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Put a message together from its parts: texts and lists are joined, of anything else the last one counts."""
    pieces: dict[str, list[Any]] = {}
    for message in said:
        for key, value in message.items():
            if value is not None:
                pieces.setdefault(key, []).append(value)
    joined = {key: _joined(values) for key, values in pieces.items()}
    return _message({**joined, "role": "assistant"})


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return list(chain.from_iterable(values))
    return values[-1]


def _usage(parts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    counted = {name: part[name] for part in parts for name in METRICS if isinstance(part.get(name), int)}
    tokens = {name: counted[native] for native, name in TOKENS.items() if native in counted}
    return tokens | counted or None


def _choices(
    parts: Iterable[dict[str, Any]], message: dict[str, Any] | None, finish_reason: str | None
) -> tuple[dict[str, Any], ...]:
    """Return the one choice where there is more to it than its message: how likely its tokens were."""
    tokens = [token for part in parts for token in _list(part.get("logprobs"))]
    if not tokens or message is None:
        return ()
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return (storable({**choice, "logprobs": {"content": tokens}}),)
