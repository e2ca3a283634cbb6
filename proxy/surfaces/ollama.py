"""Ollama's own formats, ``POST /api/chat`` and ``POST /api/generate``: lines of JSON, unless asked not to stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from io import BytesIO
from itertools import chain
from typing import Any, ClassVar

import orjson

from burnish.proxy.errors import BurnishError, InvalidRequest
from burnish.proxy.surfaces import bodies, fields
from burnish.proxy.surfaces.base import ChatRequest, Reply
from burnish.proxy.surfaces.catalogue import plain
from burnish.proxy.surfaces.chat import NO_USAGE, Chat
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.lenient import Damage, as_text, dumps, loads, storable
from burnish.proxy.surfaces.ollama_writer import OllamaWriter, as_message, as_response, error_of
from burnish.proxy.surfaces.writing import Piece

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
    def _saying(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return the members of an answer that say what a message of /api/chat would."""

    def reassemble(self, chunks: Sequence[bytes], content_type: str, content_encoding: str) -> Reply:
        """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
        try:
            body = decode(b"".join(chunks), content_encoding)
        except Undecodable as undecodable:
            return Reply(error=str(undecodable), readable=False)
        gathered = _Gathered(self._said)
        damage = gathered.read(body)
        return gathered.reply(damage) if gathered.found else Reply(error=as_text(body), readable=not body)

    def answer(
        self, text: str, request: ChatRequest, completion_id: str, model: str
    ) -> tuple[str, Iterable[bytes]]:
        """Say a text in this format, streamed if the request asks so: content type and parts of the body."""
        writer = OllamaWriter(model, self._saying)
        lines = [*writer.take(Piece("text", text)), *writer.end("stop", NO_USAGE)]
        if request.stream:
            return writer.content_type, lines
        return "application/json; charset=utf-8", [orjson.dumps(writer.whole())]

    def error(self, error: BurnishError) -> dict[str, Any]:
        """Return the body that reports an error to clients of this format."""
        return error_of(error.message)

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

    def _saying(self, said: dict[str, Any]) -> dict[str, Any]:
        return as_message(said)


class OllamaGenerate(_Ollama):
    """``/api/generate``: one prompt, which may have a system prompt."""

    name: ClassVar[str] = "ollama_generate"

    def read(self, body: dict[str, Any]) -> ChatRequest:
        """Understand a request's body. Raises InvalidRequest that names the field."""
        messages = []
        if system := _text(body, "system"):
            messages.append({"role": "system", "content": system})
        if (prompt := _text(body, "prompt")) or body.get("images"):
            said = _message({"role": "user", "content": prompt, "images": body.get("images")})
            messages.append({**said, "content": fields.around(said["content"], body)})
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

    def _saying(self, said: dict[str, Any]) -> dict[str, Any]:
        return as_response(said)


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
    return replace(
        request,
        messages=messages,
        model=plain(request.model) if request.model else None,
        stream=streamed,
        params={**settings, **request.params},
    )


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


class _Gathered:
    """An answer under way: what its lines told so far."""

    def __init__(self, said: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.found = False
        """Whether there was any line."""
        self._said = said
        self._pieces: dict[str, list[Any]] = {}
        self._spoken = False
        self._error: str | None = None
        self._reason: Any = None
        self._done = False
        self._counted: dict[str, int] = {}
        self._tokens: list[Any] = []

    def read(self, body: bytes) -> str | None:
        """Take a body, one object or one a line; return what of it cannot be read."""
        damage = Damage()
        for line in BytesIO(body) if _is_object(body[: body.find(b"\n") + 1]) else (body,):
            try:
                self._take(loads(line))
            except ValueError:
                if line.endswith(b"\n") and line.strip():  # the last line of a cut stream is no damage
                    damage.unread(line.decode("utf-8", "replace"))
        return str(damage) or None

    def _take(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        self.found = True
        self._error = self._error or bodies.error_in(part)
        self._reason = part.get("done_reason") or self._reason
        self._done = self._done or part.get("done") is True
        self._counted |= {name: part[name] for name in METRICS if isinstance(part.get(name), int)}
        self._tokens += _list(part.get("logprobs"))
        if message := self._said(part):
            self._spoken = True
            for key, value in message.items():
                if value is not None:
                    self._pieces.setdefault(key, []).append(value)

    def reply(self, damage: str | None) -> Reply:
        """Return all that was told: texts and lists are joined, of anything else the last one counts."""
        reason = self._reason
        said = {key: _joined(values) for key, values in self._pieces.items()} | {"role": "assistant"}
        message = storable(_message(said)) if self._spoken and reason not in LOADING else None
        if message and message.get("tool_calls") and reason == "stop":
            reason = "tool_calls"
        finish_reason = reason if isinstance(reason, str) else None
        error = self._error or damage
        return Reply(
            message=message,
            finish_reason=finish_reason,
            usage=_usage(self._counted),
            choices=_choices(self._tokens, message, finish_reason),
            ended=error is None and self._done,
            error=error,
            readable=damage is None,
        )


def _is_object(line: bytes) -> bool:
    """Whether a line is an object by itself, and the body it begins a stream therefore."""
    try:
        return isinstance(loads(line), dict)
    except ValueError:
        return False


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return list(chain.from_iterable(values))
    return values[-1]


def _usage(counted: dict[str, int]) -> dict[str, Any] | None:
    tokens = {name: counted[native] for native, name in TOKENS.items() if native in counted}
    return tokens | counted or None


def _choices(
    tokens: list[Any], message: dict[str, Any] | None, finish_reason: str | None
) -> tuple[dict[str, Any], ...]:
    """Return the one choice where there is more to it than its message: how likely its tokens were."""
    if not tokens or message is None:
        return ()
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return (storable({**choice, "logprobs": {"content": tokens}}),)
