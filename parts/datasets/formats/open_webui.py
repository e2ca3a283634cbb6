"""Open WebUI: the export of feedback, and the export of chats with the ratings in their messages. Pure.

A feedback record holds a snapshot of its chat. In both, a chat is a tree of messages that name their parents. Thoughts
and calls of tools are blocks in the text of an answer, as HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from burnish.parts.datasets.messages import Message, message_of, moment_of, object_or_empty, text_or_none
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable

NO_MESSAGE = "the rated message isn't in the chat"
NOT_RATED = "answers without a rating"
MOST_MESSAGES = 10_000
"""On one path; more would be a circle."""
Tree = dict[str, dict[str, Any]]
BLOCK = re.compile(
    r'^[ \t]*<details\b(?=[^>]*\btype="(?P<type>\w+)")(?P<attributes>[^>]*)>(?P<inside>.*?)'
    r"(?:(?:^[ \t]*|(?<=</summary>))</details>|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A block of Open WebUI's own; the models' ``<details>`` have no type. One that was cut off goes to the end."""
ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
SUMMARY = re.compile(r"\s*<summary>.*?</summary>", re.DOTALL)
QUOTED = re.compile(r"^> ?", re.MULTILINE)


def read(rows: Iterable[FileRow], export: ParsedExport) -> None:
    for row in rows:
        with export.line(row):
            if "snapshot" in row.content or "data" in row.content:
                _read_feedback(row, export)
            else:
                _read_chat(row, export)


def _read_feedback(row: FileRow, export: ParsedExport) -> None:
    record = row.content
    annotation, meta = object_or_empty(record.get("data")), object_or_empty(record.get("meta"))
    chat, tree = _chat(object_or_empty(record.get("snapshot")))
    name, user = str(meta.get("message_id")), text_or_none(record.get("user_id"))
    if name not in tree:
        raise Unusable(NO_MESSAGE if tree else "there is no snapshot of the chat: export the chats instead")
    conversation = text_or_none(meta.get("chat_id"))
    moment = moment_of(record.get("updated_at") or record.get("created_at"))
    answer = _answer(chat, tree, name, conversation, user)
    rating = _rating(annotation)
    export.add(row.place, answer, _statement(name, annotation, rating, user, moment))
    if annotation.get("sibling_model_ids") and rating:
        for sibling_name in _siblings(tree, name):
            sibling = _answer(chat, tree, sibling_name, conversation, user)
            good, bad = (name, sibling_name) if rating > 0 else (sibling_name, name)
            preference = Statement(
                f"{good}>{bad}:{user}", good, better_than=bad, user=user, created_at=moment
            )
            export.add(row.place, sibling, preference)


def _read_chat(row: FileRow, export: ParsedExport) -> None:
    chat, tree = _chat(row.content)
    if not tree:
        raise Unusable("it is neither a chat nor feedback of Open WebUI")
    conversation, user = (text_or_none(row.content.get(name)) for name in ("id", "user_id"))
    for name, message in tree.items():
        if message.get("role") != "assistant":
            continue
        annotation = message.get("annotation")
        if not isinstance(annotation, dict) or not (annotation.get("rating") or annotation.get("comment")):
            export.left_out[NOT_RATED] += 1
            continue
        answer = _answer(chat, tree, name, conversation, user)
        statement = _statement(name, annotation, _rating(annotation), user, answer.created_at)
        export.add(row.place, answer, statement)


def _statement(
    name: str, annotation: dict[str, Any], rating: float | None, user: str | None, moment: float | None
) -> Statement:
    reason, comment = (text_or_none(annotation.get(key)) for key in ("reason", "comment"))
    reason = None if reason == "other" else (reason or "").replace("_", " ")
    words = ". ".join(filter(None, (reason, comment)))
    if rating is None and not words:
        raise Unusable("rating must be 1 or -1")
    return Statement(
        f"{name}:{user}", name, value=rating, comment=words or None, user=user, created_at=moment
    )


def _rating(annotation: dict[str, Any]) -> float | None:
    """Return 1 or -1; some versions write a text."""
    return {"1": 1.0, "-1": -1.0}.get(str(annotation.get("rating")))


def _chat(holder: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
    """Return the chat in an object around it, and its messages by ID."""
    for _ in range(3):
        history = object_or_empty(holder.get("history"))
        messages = history.get("messages") or holder.get("messages")
        if isinstance(messages, dict) and messages:
            return holder, {
                str(name): message for name, message in messages.items() if isinstance(message, dict)
            }
        if isinstance(messages, list) and messages:
            return holder, {
                str(message.get("id")): message for message in messages if isinstance(message, dict)
            }
        holder = object_or_empty(holder.get("chat"))
    return {}, {}


def _answer(
    chat: dict[str, Any], tree: Tree, name: str, conversation: str | None, user: str | None
) -> ForeignAnswer:
    reply = tree[name]
    if reply.get("role") != "assistant":
        raise Unusable("the rated message is not an answer of the assistant")
    *before, last = _messages(reply)
    above = [chat for message in [*_above(tree, name)][::-1] for chat in _messages(message)]
    system = text_or_none(object_or_empty(chat.get("params")).get("system")) or text_or_none(
        chat.get("system")
    )
    if system and not any(message["role"] == "system" for message in above):
        above = [{"role": "system", "content": system}, *above]
    if not above:
        raise Unusable("the chat has nothing before the rated message")
    above += before
    moment, model = moment_of(reply.get("timestamp")), text_or_none(reply.get("model"))
    return ForeignAnswer(name, tuple(above), last, (), moment, model, user, conversation)


def _above(tree: Tree, name: str) -> Iterator[dict[str, Any]]:
    """Yield the messages before one, the nearest first."""
    for _ in range(MOST_MESSAGES):
        parent = tree.get(str(tree[name].get("parentId")))
        if parent is None:
            return
        yield parent
        name = str(tree[name].get("parentId"))
    raise Unusable("the messages of the chat form a circle")


def _siblings(tree: Tree, name: str) -> list[str]:
    """Return the other answers to the same message."""
    parent = tree[name].get("parentId")
    return [
        sibling
        for sibling, message in tree.items()
        if sibling != name
        and parent
        and message.get("parentId") == parent
        and message.get("role") == "assistant"
    ]


def _messages(stored_message: dict[str, Any]) -> list[Message]:
    """Return the chat messages of a stored one: an answer that used tools is several."""
    message = message_of(stored_message)
    if message["role"] == "assistant" and isinstance(message["content"], str):
        return _unfolded(message)
    files = stored_message.get("files") if isinstance(stored_message.get("files"), list) else []
    images = [
        {"type": "image_url", "image_url": {"url": str(file.get("url") or "")}}
        for file in files or []
        if isinstance(file, dict) and file.get("type") == "image"
    ]
    if images and isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}, *images]
    return [message]


def _unfolded(answer: Message) -> list[Message]:
    """Take the blocks out of an answer: thoughts stand beside its text, calls and results before it."""
    text = answer["content"]
    if not BLOCK.search(text):
        return [answer]
    messages: list[Message] = []
    said, thoughts, at = "", [], 0
    for number, block in enumerate(BLOCK.finditer(text)):
        said, at = said + text[at : block.start()], block.end()
        inside = html.unescape(SUMMARY.sub("", block["inside"], count=1)).strip()
        attributes = {
            name: html.unescape(content) for name, content in ATTRIBUTE.findall(block["attributes"])
        }
        if block["type"] == "reasoning":
            thoughts.append(QUOTED.sub("", inside))
        elif block["type"] in ("tool_calls", "code_interpreter"):
            call, result = _called(block["type"], attributes, inside, number)
            messages += [_answered(answer, said, thoughts) | {"tool_calls": [call]}, result]
            said, thoughts = "", []
    return [*messages, _answered(answer, said + text[at:], thoughts)]


def _answered(answer: Message, said: str, thoughts: list[str]) -> Message:
    beside = {"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}
    return answer | {"content": said.strip()} | beside


def _called(
    kind: str, attributes: dict[str, str], inside: str, number: int
) -> tuple[dict[str, Any], Message]:
    """Return the call in a block, and its result. Open WebUI writes both as JSON, often of JSON."""
    name, identity = attributes.get("name") or kind, attributes.get("id") or f"call_{number}"
    arguments, result = (_text(attributes.get(key) or "") for key in ("arguments", "result"))
    if kind == "code_interpreter":
        arguments, result = orjson.dumps({"code": inside}).decode(), _text(attributes.get("output") or "")
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}
    return call, {"role": "tool", "tool_call_id": identity, "content": result}


def _text(written: str) -> str:
    """Return the text in JSON; other JSON, and what isn't any, as it is."""
    try:
        content = orjson.loads(written)
    except orjson.JSONDecodeError:
        return written
    return content if isinstance(content, str) else written
