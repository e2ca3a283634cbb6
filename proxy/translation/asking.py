"""A conversation as every engine takes it that knows chat completions, also those whose templates know little.

The messages that formats are read as are what the log keeps: they hold whatever was said. An engine gets of them what
chat completions have: one system message, at the beginning; texts as texts; images in the user's messages only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from burnish.proxy.surfaces.chat import SYSTEM_ROLES
from burnish.proxy.surfaces.lenient import dumps

Json = dict[str, Any]

PARTS = ("image_url", "input_audio", "file")
"""Kinds of parts that chat completions have besides texts."""
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "chat_template_kwargs",
)  # fmt: skip
"""Parameters that mean the same in chat, where a client sends them."""
OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
CALL_ID = "call%05d"
"""Nine letters and digits: templates of Mistral's refuse any other id."""


def ask(messages: Sequence[Json], params: Json, *, stream: bool, **more: Any) -> Json:
    """Return the body that asks the same in chat; ``more``: members that the formats call by other names."""
    said = {name: value for name, value in {**params, **more}.items() if value is not None}
    unsaid = () if said.get("tools") else OF_TOOLS
    asked = {
        name: said[name] for name in (*SAMPLING, *OF_TOOLS, *more) if name in said and name not in unsaid
    }
    # Without being asked, no engine counts tokens in a stream; the other formats always tell.
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {"messages": list(_told(list(_paired(messages)))), **asked, **streamed}


def json_schema(schema: Any, **more: Any) -> Json:
    """Return what asks for an answer that is JSON of a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def _paired(messages: Sequence[Json]) -> Iterator[Json]:
    """Return messages with an id for each call, and for each result that of its call, which not all formats have.

    A result belongs to the first call of its function that has none yet. An id stays the same as the history grows, so
    what an engine has cached of it stays good.
    """
    called = 0
    waiting: list[Json] = []
    """Calls that have no result yet."""
    for message in messages:
        if calls := message.get("tool_calls"):
            made = [
                {**call, "id": call.get("id") or CALL_ID % (called + at)} for at, call in enumerate(calls)
            ]
            called, waiting = called + len(made), list(made)
            yield {**message, "tool_calls": made}
        elif message["role"] == "tool" and waiting and not message.get("tool_call_id"):
            named = (call for call in waiting if call["function"].get("name") == message.get("name"))
            answered = next(named, waiting[0])
            waiting.remove(answered)
            yield {**message, "tool_call_id": answered["id"]}
        else:
            yield message


def _told(messages: Sequence[Json]) -> Iterator[Json]:
    # Templates take one system message, at the beginning. What comes before the first answer belongs there; if what
    # comes later went there, too, the engine would have to read the whole conversation anew.
    answered = next((at for at, each in enumerate(messages) if each["role"] == "assistant"), len(messages))
    system = [_text(each.get("content")) for each in messages[:answered] if _is_system(each)]
    if system:
        yield {"role": "system", "content": "\n\n".join(system)}
    shown: list[Json] = []
    """Images that tools gave, which only a user can show."""
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            texts, images = _split(_parts(message.get("content")))
            shown += images
            yield {**message, "content": "\n".join(texts)}
            continue
        if shown:
            yield {"role": "user", "content": shown}
            shown = []
        if message["role"] == "assistant":
            yield from _assistant(message)
        elif at > answered or not _is_system(message):
            yield {"role": "user", "content": _content(message.get("content"))}
    if shown:
        yield {"role": "user", "content": shown}


def _is_system(message: Json) -> bool:
    return message["role"] in SYSTEM_ROLES


def _assistant(message: Json) -> Iterator[Json]:
    """Return what the model said; nothing where nothing of it can be said in chat."""
    kept = {name: message[name] for name in ("reasoning_content", "tool_calls") if message.get(name)}
    text = _text(message.get("content")) or message.get("refusal") or ""
    if text or kept:
        yield {"role": "assistant", "content": text or (None if "tool_calls" in kept else ""), **kept}


def _content(content: Any) -> Any:
    """Return what a user said: a text where it is nothing but texts, else parts."""
    parts = _parts(content)
    texts, others = _split(parts)
    return parts if others else "\n".join(texts)


def _text(content: Any) -> str:
    return "\n".join(_split(_parts(content))[0])


def _split(parts: Iterable[Json]) -> tuple[list[str], list[Json]]:
    """Return the texts among some parts, and the others."""
    texts, others = [], []
    for part in parts:
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            others.append(part)
    return texts, others


def _parts(content: Any) -> list[Json]:
    """Return a content as parts that chat has."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [told for part in (content if isinstance(content, list) else ()) for told in _as_chat(part)]


def _as_chat(part: Any) -> list[Json]:
    """Return a part as chat has it. One of a kind that chat does not have is told as it was written."""
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
    kind, data = source.get("type"), source.get("data")
    if kind == "content":
        return _parts(source.get("content"))
    if kind == "base64":
        url = f"data:{source.get('media_type')};base64,{data}"
        return [{"type": "file", "file": {"filename": str(title or "document.pdf"), "file_data": url}}]
    return [{"type": "text", "text": str(data if kind == "text" else source.get("url"))}]
