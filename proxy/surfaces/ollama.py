"""Ollama's ``POST /api/chat`` and ``POST /api/generate``: lines of JSON by default, one object without streaming."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from itertools import chain
from typing import Any

import orjson

from burnish.config.model_names import plain
from burnish.proxy.http.errors import InvalidRequest
from burnish.proxy.surfaces.asking import ask, json_schema
from burnish.proxy.surfaces.base import (
    ChatRequest,
    Reply,
    Translatable,
    unread,
    with_suffix,
    with_text,
    wrong_type,
)
from burnish.proxy.surfaces.chat import Chat
from burnish.proxy.surfaces.ends import end_of, failure, reason_of
from burnish.proxy.surfaces.lenient import Damage, Json, dumps, error_in, loads, object_in, objects, storable
from burnish.proxy.surfaces.writing import (
    AnswerPiece,
    AnswerWriter,
    WholeCalls,
    arguments_of,
)

CHAT = Chat()

LOADING = ("load", "unload")
"""``done_reason`` of answers without a message: the request only loaded or unloaded the model."""
METRICS = (
    "total_duration", "load_duration",
    "prompt_eval_count", "prompt_eval_duration",
    "eval_count", "eval_duration",
)  # fmt: skip
TOKENS = {"prompt_eval_count": "prompt_tokens", "eval_count": "completion_tokens"}
"""Ollama's token count → chat's."""
SAME_SETTINGS = (
    "temperature", "top_p", "top_k", "min_p", "stop", "seed",
    "repeat_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
SETTINGS = {**{name: name for name in SAME_SETTINGS}, "num_predict": "max_tokens"}
"""Ollama's sampling setting → chat's."""
OLLAMA_MEMBERS = frozenset({"images", "thinking", "tool_calls", "tool_name"})
"""Members in which Ollama's messages differ from chat's."""
NOT_CHAT = ("raw", "suffix", "template", "context")
"""Members of ``/api/generate`` that bypass the model's chat template."""
NO_TIME = (0, "0", "0s", "0m")
"""``keep_alive`` values that unload a model."""
IMAGE_TYPES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGO": "gif", "UklGR": "webp"}
"""First characters of an image in base64 → its type, which Ollama's clients don't send."""


class _Ollama(Translatable):
    """What both formats share."""

    whole_type = "application/json; charset=utf-8"

    @abstractmethod
    def _message_in(self, part: Json) -> Json:
        """Return the message in a part of an answer, in the form of /api/chat; {} if there is none."""

    @abstractmethod
    def _members_of(self, message: Json) -> Json:
        """Return the members of an answer for a message in the form of /api/chat."""

    def _reply(self, body: bytes, content_type: str) -> Reply:
        return _Collector(self._message_in).read(body)

    def as_chat(self, body: Json, request: ChatRequest) -> Json:
        """Leaves out ``keep_alive``, options of the runner (``num_ctx``), whether to think."""
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
            request,
            tools=[
                {"type": "function", "function": tool["function"]}
                for tool in objects(params.get("tools"))
                if isinstance(tool.get("function"), dict)
            ],
            # Below one means no limit.
            max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
            repetition_penalty=options.get("repeat_penalty"),
            reasoning_effort=effort if isinstance(effort, str) else None,
            response_format=_format(body),
        )

    def idle(self, body: Json, request: ChatRequest) -> Json:
        """Answer a request that only loads or unloads a model, which the upstream does by itself."""
        ending = {"done": True, "done_reason": "unload" if body.get("keep_alive") in NO_TIME else "load"}
        return {"model": request.model, "created_at": _now(), **self._members_of({"content": ""}), **ending}

    def writer(self, body: Json, completion_id: str, model: str) -> AnswerWriter:
        return OllamaWriter(model, self._members_of)

    def error_of(self, status: int, words: str) -> Json:
        return {"error": words}


class OllamaChat(_Ollama):
    name = "ollama_chat"
    history = "messages"
    fields = ("messages", "model")

    def read(self, body: Json) -> ChatRequest:
        request = CHAT.read({**body, "messages": body.get("messages") or []})
        return _request(request, [_message(message) for message in request.messages])

    def without(self, body: Json, request: ChatRequest, cut: Set[int]) -> Json:
        return CHAT.without(body, request, cut)

    def with_system(self, body: Json, text: str) -> Json | None:
        return CHAT.with_system(body, text) if body.get("messages") else None

    def _message_in(self, part: Json) -> Json:
        message = part.get("message")
        return message if isinstance(message, dict) else {}

    def _members_of(self, message: Json) -> Json:
        return {"message": {"role": "assistant", **message}}


class OllamaGenerate(_Ollama):
    """``/api/generate``: one prompt, with or without a system prompt."""

    name = "ollama_generate"
    fields = ("prompt", "model")

    def read(self, body: Json) -> ChatRequest:
        messages = []
        if system := _text(body, "system"):
            messages.append({"role": "system", "content": system})
        if (prompt := _text(body, "prompt")) or body.get("images"):
            message = _message({"role": "user", "content": prompt, "images": body.get("images")})
            messages.append({**message, "content": with_suffix(message["content"], body)})
        params = {key: param for key, param in body.items() if key not in ("system", "prompt", "images")}
        return _request(CHAT.read({**params, "messages": messages}), messages)

    def with_system(self, body: Json, text: str) -> Json | None:
        if body.get("raw") or not body.get("prompt"):
            return None
        return {**body, "system": with_text(body.get("system") or "", text)}

    def _message_in(self, part: Json) -> Json:
        if "response" not in part:
            return {}
        extras: Json = {key: part[key] for key in ("thinking", "tool_calls", "image") if key in part}
        return {"content": part["response"], **extras}

    def _members_of(self, message: Json) -> Json:
        extras = {key: member for key, member in message.items() if key != "content"}
        return {"response": message["content"], **extras}


def _format(body: Json) -> Json | None:
    output_format = body.get("format")
    if output_format == "json":
        return {"type": "json_object"}
    return json_schema(output_format) if isinstance(output_format, dict) and output_format else None


def _text(body: Json, name: str) -> str:
    text = body.get(name)
    if text is not None and not isinstance(text, str):
        raise wrong_type(name, "a string", text)
    return text or ""


def _request(request: ChatRequest, messages: list[Json]) -> ChatRequest:
    """Adapt a chat request: Ollama streams by default and has its own names of settings."""
    options = request.params.get("options")
    ollama_settings = options if isinstance(options, dict) else {}
    settings = {SETTINGS[name]: setting for name, setting in ollama_settings.items() if name in SETTINGS}
    streamed = request.params.get("stream") is not False
    return replace(
        request,
        messages=messages,
        model=plain(request.model) if request.model else None,
        stream=streamed,
        params={**settings, **request.params},
    )


def _message(ollama_message: Json) -> Json:
    """Convert a message to chat's; return the same object if nothing differs."""
    if OLLAMA_MEMBERS.isdisjoint(ollama_message):
        return ollama_message
    message = {key: member for key, member in ollama_message.items() if key not in OLLAMA_MEMBERS}
    if images := [image for image in _list(ollama_message.get("images")) if isinstance(image, str)]:
        text = ollama_message.get("content")
        words = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
        message["content"] = [*words, *(_image(image) for image in images)]
    if ollama_message.get("thinking"):
        message["reasoning_content"] = ollama_message["thinking"]
    if calls := [call for tool_call in _list(ollama_message.get("tool_calls")) if (call := _call(tool_call))]:
        message["tool_calls"] = calls
    if ollama_message.get("tool_name"):
        message["name"] = ollama_message["tool_name"]
    return message


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _image(image: str) -> Json:
    kind = next((kind for begin, kind in IMAGE_TYPES.items() if image.startswith(begin)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{image}"}}


def _call(call: Any) -> Json | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return None
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else dumps(arguments)
    identity = {"id": call["id"]} if call.get("id") else {}
    return {**identity, "type": "function", "function": {"name": function.get("name"), "arguments": text}}


class _Collector:
    def __init__(self, message_in: Callable[[Json], Json]) -> None:
        self._found = False
        self._message_in = message_in
        self._pieces: dict[str, list[Any]] = {}
        self._has_message = False
        self._error: str | None = None
        self._reason: Any = None
        self._done = False
        self._counted: dict[str, int] = {}
        self._tokens: list[Any] = []

    def read(self, body: bytes) -> Reply:
        damage = self._read(body.lstrip())
        return self._reply(damage) if self._found else unread(body)

    def _read(self, body: bytes) -> str | None:
        """Read a body, one object or one per line; return what is damaged."""
        damage = Damage()
        streamed = object_in(body[: body.find(b"\n") + 1]) is not None
        for line in BytesIO(body) if streamed else (body,):
            try:
                self._take(loads(line))
            except ValueError:
                if line.endswith(b"\n") and line.strip():  # a truncated last line doesn't count
                    damage.unread(line.decode("utf-8", "replace"))
        return str(damage) or None

    def _take(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        self._found = True
        self._error = self._error or error_in(part)
        self._reason = part.get("done_reason") or self._reason
        self._done = self._done or part.get("done") is True
        self._counted |= {name: part[name] for name in METRICS if isinstance(part.get(name), int)}
        self._tokens += _list(part.get("logprobs"))
        if message := self._message_in(part):
            self._has_message = True
            for key, member in message.items():
                if member is not None:
                    self._pieces.setdefault(key, []).append(member)

    def _reply(self, damage: str | None) -> Reply:
        """Return the answer: texts and lists are joined, other values are the last ones."""
        reason = self._reason
        ollama_message = {key: _joined(values) for key, values in self._pieces.items()} | {
            "role": "assistant"
        }
        message = storable(_message(ollama_message)) if self._has_message and reason not in LOADING else None
        finish_reason = reason_of(reason)
        if message and message.get("tool_calls") and finish_reason == "stop":
            finish_reason = "tool_calls"
        error = self._error or damage or failure(reason)
        tokens = {name: self._counted[native] for native, name in TOKENS.items() if native in self._counted}
        return Reply(
            message=message,
            finish_reason=finish_reason,
            usage=tokens | self._counted or None,
            choices=_choices(self._tokens, message, finish_reason),
            complete=error is None and self._done,
            error=error,
            readable=damage is None,
        )


def _joined(pieces: list[Any]) -> Any:
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    if all(isinstance(piece, list) for piece in pieces):
        return list(chain.from_iterable(pieces))
    return pieces[-1]


def _choices(tokens: list[Any], message: Json | None, finish_reason: str | None) -> tuple[Json, ...]:
    if not tokens or message is None:
        return ()
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return (storable({**choice, "logprobs": {"content": tokens}}),)


STOPPED = ("whole", "stopped")
"""Ends that are ``stop`` for Ollama."""
DURATIONS = ("total_duration", "eval_duration")


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class OllamaWriter(AnswerWriter):
    content_type = "application/x-ndjson"

    def __init__(self, model: str, members_of: Callable[[Json], Json]) -> None:
        self._model = model
        self._members_of = members_of
        self._calls = WholeCalls()
        self._texts: dict[str, list[str]] = {"content": []}
        self._called: list[Json] = []
        self._began_ns = time.perf_counter_ns()

    def take(self, piece: AnswerPiece) -> Iterator[bytes]:
        for complete_piece in self._calls.take(piece):
            yield self._written(complete_piece)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        for piece in self._calls.close():
            yield self._written(piece)
        reason = "stop" if finish_reason is None or end_of(finish_reason) in STOPPED else finish_reason
        # Chat reports no durations, so all of it counts as generation.
        took_ns = time.perf_counter_ns() - self._began_ns
        ending = {
            "done": True,
            "done_reason": reason,
            **dict.fromkeys(DURATIONS, took_ns),
            **_counts(usage or {}),
        }
        message: Json = {name: "".join(texts) for name, texts in self._texts.items()}
        message |= {"tool_calls": self._called} if self._called else {}
        self.whole = self._head() | self._members_of(message) | ending
        yield self._line({"content": ""}, **ending)

    def fail(self, words: str) -> Iterator[bytes]:
        yield orjson.dumps({"error": words}) + b"\n"

    def _written(self, piece: AnswerPiece) -> bytes:
        if piece.call:
            called = {"function": {"name": piece.call.name, "arguments": arguments_of(piece.text)}}
            self._called.append(called)
            return self._line({"content": "", "tool_calls": [called]}, done=False)
        name = "thinking" if piece.kind == "thought" else "content"
        self._texts.setdefault(name, []).append(piece.text)
        return self._line({"content": "", name: piece.text}, done=False)

    def _head(self) -> Json:
        return {"model": self._model, "created_at": _now()}

    def _line(self, message: Json, **members: Any) -> bytes:
        return orjson.dumps(self._head() | self._members_of(message) | members) + b"\n"


def _counts(usage: Json) -> Json:
    counts = {"prompt_eval_count": usage.get("prompt_tokens"), "eval_count": usage.get("completion_tokens")}
    return {name: count for name, count in counts.items() if isinstance(count, int)}
