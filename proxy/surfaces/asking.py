"""Build a chat request that any engine accepts, also with a simple chat template.

The log's messages hold everything that the client sent. The engine gets the subset that chat completions have: one
system message, at the beginning; texts; images in user messages only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from burnish.proxy.messages import SYSTEM_ROLES
from burnish.proxy.surfaces.base import ChatRequest
from burnish.proxy.surfaces.lenient import Json, dumps

PARTS = ("image_url", "input_audio", "file")
"""Kinds of parts that chat has besides texts."""
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "chat_template_kwargs",
)  # fmt: skip
"""Parameters with the same meaning in chat."""
OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
CALL_ID = "call%05d"
"""Nine letters and digits: Mistral's templates refuse other ids."""


def ask(request: ChatRequest, messages: Sequence[Json] | None = None, **members: Any) -> Json:
    """Return the body of the chat request. ``members``: members with other names in the formats."""
    settings = {name: setting for name, setting in (request.params | members).items() if setting is not None}
    left_out = () if settings.get("tools") else OF_TOOLS
    chat_settings = {
        name: settings[name]
        for name in (*SAMPLING, *OF_TOOLS, *members)
        if name in settings and name not in left_out
    }
    # Engines only count tokens in a stream on request; the other formats always report them.
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if request.stream else {}
    with_ids = list(_with_call_ids(request.messages if messages is None else messages))
    return {"messages": list(_chat_messages(with_ids)), **chat_settings, **streamed}


def json_schema(schema: Any, **options: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **options}}


def _with_call_ids(messages: Sequence[Json]) -> Iterator[Json]:
    """Add missing ids to calls and results: not all formats have them.

    A result belongs to the first call of its function without a result. Ids stay the same as the history grows, so
    prompt caches stay valid.
    """
    called = 0
    open_calls = _OpenCalls(())
    for message in messages:
        if calls := message.get("tool_calls"):
            calls_with_ids = [
                {**call, "id": call.get("id") or CALL_ID % (called + at)} for at, call in enumerate(calls)
            ]
            called, open_calls = called + len(calls_with_ids), _OpenCalls(calls_with_ids)
            yield {**message, "tool_calls": calls_with_ids}
        elif message["role"] == "tool" and not message.get("tool_call_id"):
            call = open_calls.pop(message.get("name"))
            yield {**message, "tool_call_id": call["id"]} if call else message
        else:
            yield message


class _OpenCalls:
    """The calls of a message that have no result yet."""

    def __init__(self, calls: Iterable[Json]) -> None:
        self._calls = dict(enumerate(calls))
        self._in_order = deque(self._calls)
        self._named: dict[str, deque[int]] = {}
        for at, call in self._calls.items():
            self._named.setdefault(str(call["function"].get("name")), deque()).append(at)

    def pop(self, name: Any) -> Json | None:
        """Return the first call of a function, else the first of all, else None."""
        for places in (self._named.get(str(name), ()), self._in_order):
            while places:
                if call := self._calls.pop(places.popleft(), None):
                    return call
        return None


def _chat_messages(messages: Sequence[Json]) -> Iterator[Json]:
    # Templates accept one system message, at the beginning. Only messages before the first answer go there: later ones
    # would change the beginning of the prompt, and so break the engine's prompt cache.
    first_answer = next(
        (at for at, message in enumerate(messages) if message["role"] == "assistant"), len(messages)
    )
    system = [_text(message.get("content")) for message in messages[:first_answer] if _is_system(message)]
    if system:
        yield {"role": "system", "content": "\n\n".join(system)}
    tool_images: list[Json] = []
    """Images from tools, which chat only accepts in user messages."""
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            texts, images = _split(_parts(message.get("content")))
            tool_images += images
            yield {**message, "content": "\n".join(texts)}
            continue
        if tool_images:
            yield {"role": "user", "content": tool_images}
            tool_images = []
        if message["role"] == "assistant":
            yield from _assistant(message)
        elif at > first_answer or not _is_system(message):
            yield {"role": "user", "content": _content(message.get("content"))}
    if tool_images:
        yield {"role": "user", "content": tool_images}


def _is_system(message: Json) -> bool:
    return message["role"] in SYSTEM_ROLES


def _assistant(message: Json) -> Iterator[Json]:
    """Return the assistant's message; nothing if chat can't express any of it."""
    extras = {name: message[name] for name in ("reasoning_content", "tool_calls") if message.get(name)}
    text = _text(message.get("content")) or message.get("refusal") or ""
    if text or extras:
        yield {"role": "assistant", "content": text or (None if "tool_calls" in extras else ""), **extras}


def _content(content: Any) -> Any:
    """Return a user's content: a string if it is only text, else parts."""
    parts = _parts(content)
    texts, other_parts = _split(parts)
    return parts if other_parts else "\n".join(texts)


def _text(content: Any) -> str:
    return "\n".join(_split(_parts(content))[0])


def _split(parts: Iterable[Json]) -> tuple[list[str], list[Json]]:
    texts, other_parts = [], []
    for part in parts:
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            other_parts.append(part)
    return texts, other_parts


def _parts(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        converted for part in (content if isinstance(content, list) else ()) for converted in _as_chat(part)
    ]


def _as_chat(part: Any) -> list[Json]:
    """Convert a part to chat's. A kind that chat lacks becomes its JSON as text."""
    if not isinstance(part, dict):
        return [{"type": "text", "text": str(part)}]
    if isinstance(part.get("text"), str):
        return [{"type": "text", "text": part["text"]}]
    if part.get("type") in PARTS:
        return [part]
    if part.get("type") == "document" and isinstance(source := part.get("source"), dict):
        return _document(source, part.get("title"))
    return [{"type": "text", "text": dumps(part)}]


def _document(source: Json, title: Any) -> list[Json]:
    kind, content = source.get("type"), source.get("data")
    if kind == "content":
        return _parts(source.get("content"))
    if kind == "base64":
        url = f"data:{source.get('media_type')};base64,{content}"
        return [{"type": "file", "file": {"filename": str(title or "document.pdf"), "file_data": url}}]
    return [{"type": "text", "text": str(content if kind == "text" else source.get("url"))}]
