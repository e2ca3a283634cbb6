"""Open WebUI: the export of feedback, and the export of chats with the ratings in their messages. Pure.

A feedback record holds a snapshot of its chat. In both, a chat is a tree of messages that name their parents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from burnish.parts.datasets.messages import message_of, moment_of, object_or_empty, text_or_none
from burnish.parts.datasets.parsed import FileRow, ForeignAnswer, ParsedExport, Statement, Unusable

NO_MESSAGE = "the rated message isn't in the chat"
NOT_RATED = "answers without a rating"
MOST_MESSAGES = 10_000
"""On one path; more would be a circle."""
Tree = dict[str, dict[str, Any]]


def read(rows: list[FileRow], export: ParsedExport) -> None:
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
    above = [_message(message) for message in _above(tree, name)][::-1]
    system = text_or_none(object_or_empty(chat.get("params")).get("system")) or text_or_none(
        chat.get("system")
    )
    if system and not any(message["role"] == "system" for message in above):
        above = [{"role": "system", "content": system}, *above]
    if not above:
        raise Unusable("the chat has nothing before the rated message")
    moment, model = moment_of(reply.get("timestamp")), text_or_none(reply.get("model"))
    return ForeignAnswer(name, tuple(above), _message(reply), (), moment, model, user, conversation)


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


def _message(stored_message: dict[str, Any]) -> dict[str, Any]:
    message = message_of(stored_message)
    files = stored_message.get("files") if isinstance(stored_message.get("files"), list) else []
    images = [
        {"type": "image_url", "image_url": {"url": str(file.get("url") or "")}}
        for file in files or []
        if isinstance(file, dict) and file.get("type") == "image"
    ]
    if images and isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}, *images]
    return message
