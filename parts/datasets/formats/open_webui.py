"""Open WebUI: the export of feedback, and the export of chats with the ratings in their messages. Pure.

A feedback record holds a snapshot of its chat. In both, a chat is a tree of messages that name their parents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from burnish.parts.datasets.found import Answer, Found, Item, Said, Unusable
from burnish.parts.datasets.messages import message_of, moment_of, text_or_none

NO_MESSAGE = "the rated message isn't in the chat"
NOT_RATED = "answers without a rating"
MOST_MESSAGES = 10_000
"""On one path; more would be a circle."""
Tree = dict[str, dict[str, Any]]


def read(items: list[Item], found: Found) -> None:
    for item in items:
        with found.line(item):
            if "snapshot" in item.content or "data" in item.content:
                _read_feedback(item, found)
            else:
                _read_chat(item, found)


def _read_feedback(item: Item, found: Found) -> None:
    record = item.content
    said, meta = _object(record.get("data")), _object(record.get("meta"))
    chat, tree = _chat(_object(record.get("snapshot")))
    name, user = str(meta.get("message_id")), text_or_none(record.get("user_id"))
    if name not in tree:
        raise Unusable(NO_MESSAGE if tree else "there is no snapshot of the chat: export the chats instead")
    conversation = text_or_none(meta.get("chat_id"))
    moment = moment_of(record.get("updated_at") or record.get("created_at"))
    answer = _answer(chat, tree, name, conversation, user)
    rating = _rating(said)
    found.add(item.place, answer, _statement(name, said, rating, user, moment))
    if said.get("sibling_model_ids") and rating:
        for other in _siblings(tree, name):
            sibling = _answer(chat, tree, other, conversation, user)
            good, bad = (name, other) if rating > 0 else (other, name)
            won = Said(f"{good}>{bad}:{user}", good, better_than=bad, user=user, created_at=moment)
            found.add(item.place, sibling, won)


def _read_chat(item: Item, found: Found) -> None:
    chat, tree = _chat(item.content)
    if not tree:
        raise Unusable("it is neither a chat nor feedback of Open WebUI")
    conversation, user = (text_or_none(item.content.get(name)) for name in ("id", "user_id"))
    for name, message in tree.items():
        if message.get("role") != "assistant":
            continue
        said = message.get("annotation")
        if not isinstance(said, dict) or not (said.get("rating") or said.get("comment")):
            found.left_out[NOT_RATED] += 1
            continue
        answer = _answer(chat, tree, name, conversation, user)
        statement = _statement(name, said, _rating(said), user, answer.created_at)
        found.add(item.place, answer, statement)


def _statement(
    name: str, said: dict[str, Any], rating: float | None, user: str | None, moment: float | None
) -> Said:
    reason, comment = (text_or_none(said.get(each)) for each in ("reason", "comment"))
    reason = None if reason == "other" else (reason or "").replace("_", " ")
    words = ". ".join(filter(None, (reason, comment)))
    if rating is None and not words:
        raise Unusable("rating must be 1 or -1")
    return Said(f"{name}:{user}", name, value=rating, comment=words or None, user=user, created_at=moment)


def _rating(said: dict[str, Any]) -> float | None:
    """Return 1 or -1; some versions write a text."""
    return {"1": 1.0, "-1": -1.0}.get(str(said.get("rating")))


def _chat(holder: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
    """Return the chat in an object around it, and its messages by ID."""
    for _ in range(3):
        history = _object(holder.get("history"))
        messages = history.get("messages") or holder.get("messages")
        if isinstance(messages, dict) and messages:
            return holder, {str(name): each for name, each in messages.items() if isinstance(each, dict)}
        if isinstance(messages, list) and messages:
            return holder, {str(each.get("id")): each for each in messages if isinstance(each, dict)}
        holder = _object(holder.get("chat"))
    return {}, {}


def _answer(
    chat: dict[str, Any], tree: Tree, name: str, conversation: str | None, user: str | None
) -> Answer:
    reply = tree[name]
    if reply.get("role") != "assistant":
        raise Unusable("the rated message is not an answer of the assistant")
    above = [_message(each) for each in _above(tree, name)][::-1]
    system = text_or_none(_object(chat.get("params")).get("system")) or text_or_none(chat.get("system"))
    if system and not any(each["role"] == "system" for each in above):
        above = [{"role": "system", "content": system}, *above]
    if not above:
        raise Unusable("the chat has nothing before the rated message")
    moment, model = moment_of(reply.get("timestamp")), text_or_none(reply.get("model"))
    return Answer(name, tuple(above), _message(reply), (), moment, model, user, conversation)


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
        other
        for other, each in tree.items()
        if other != name and parent and each.get("parentId") == parent and each.get("role") == "assistant"
    ]


def _message(given: dict[str, Any]) -> dict[str, Any]:
    message = message_of(given)
    files = given.get("files") if isinstance(given.get("files"), list) else []
    images = [
        {"type": "image_url", "image_url": {"url": str(each.get("url") or "")}}
        for each in files or []
        if isinstance(each, dict) and each.get("type") == "image"
    ]
    if images and isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}, *images]
    return message


def _object(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}
