"""Why a rated reply can't teach, as far as that shows without a model. Knows no framework.

The trainer leaves such replies out, and the proxy says so as soon as one is rated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.gate.replies import MEDIA, THOUGHTS, Message, is_media, is_text, kind_of, text_of

EMPTY = "the reply is empty"
REFUSED = "the model refused to answer"
NOT_TEXT = "there are images, audio or files in the conversation"
HELD = "the history is with the upstream"
TOKENS = "the prompt is token ids, not text"
NOT_ITS_OWN = "the answer holds calls or results of tools that the provider runs"
BROKEN_CALL = "a call of a tool has no name, or its arguments aren't JSON"
NOBODY_ASKED = "no message of a user comes before the answer"
MOST_CHARACTERS = 1000
"""Of a comment. Beside two others it stands in prompts for all criticised answers: a page would push out the rest."""
TOO_LONG = f"the comment has more than {MOST_CHARACTERS:,} characters: say in a sentence or two what is wrong"
# An agent that posts what it read may have been told to by a page. Fewer characters are in a result by chance.
LEAST_COPIED = 20
COPIED = "the comment stands word for word in a result of a tool: if you mean it, say it in your own words"


def unteachable(messages: Sequence[Message], reply: Message) -> str | None:
    """Return why a rating of a reply can't teach."""
    if why := not_text(messages, reply):
        return why
    if calls := reply.get("tool_calls"):
        return None if all(map(_is_whole, calls)) else BROKEN_CALL
    if text_of(reply).strip():
        return None
    return REFUSED if reply.get("refusal") else EMPTY


def _is_whole(call: Any) -> bool:
    called = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
    if not isinstance(called, Mapping) or not called.get("name"):
        return False
    arguments = called.get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            json.loads(arguments)
        except ValueError:
            return False
    return True


def uncommentable(messages: Sequence[Message], reply: Message, comment: str = "") -> str | None:
    """Return why a comment on a reply can't teach: the model answers again with the comment in its prompt."""
    if why := not_text(messages, reply):
        return why
    if not any(message.get("role") == "user" for message in messages):
        return NOBODY_ASKED
    if len(comment) > MOST_CHARACTERS:
        return TOO_LONG
    return COPIED if _is_copied(comment, messages) else None


def _is_copied(comment: str, messages: Sequence[Message]) -> bool:
    words = " ".join(comment.split())
    return len(words) >= LEAST_COPIED and any(
        words in " ".join(text_of(message).split()) for message in messages if message.get("role") == "tool"
    )


def not_text(messages: Sequence[Message], reply: Message) -> str | None:
    """Return why a conversation isn't the text that the model saw and wrote.

    Without its images, a reply about one would teach the model to make things up. Other blocks are text in a prompt
    (``gate.replies.text_of``). A reply with one isn't the model's alone.
    """
    own = _parts(reply)
    parts = [*(part for message in messages for part in _parts(message)), *own]
    if any(map(is_media, parts)):
        return NOT_TEXT
    kinds = {kind_of(part) for part in parts}
    if kinds & ELSEWHERE:
        return HELD
    if "tokens" in kinds:
        return TOKENS
    return None if all(is_text(part) or kind_of(part) in OWN for part in own) else NOT_ITS_OWN


ELSEWHERE = frozenset({"item_reference", "compaction", "compaction_summary"})
"""Kinds of items whose text only the upstream has."""
OWN = frozenset({*THOUGHTS, "refusal"})
"""Kinds of parts, besides texts, that the model writes itself."""


def _parts(message: Message) -> list[Any]:
    """Return the parts of a message, its items, and the media beside its content."""
    lists = [content for name in ("content", "items") if isinstance(content := message.get(name), list)]
    beside = [{"type": name} for name in MEDIA if message.get(name) and not _in_words(message, name)]
    return [*(part for parts in lists for part in parts), *beside]


def _in_words(message: Message, name: str) -> bool:
    """True of audio without sound, if its words stand in the content."""
    audio = message[name]
    silent = name == "audio" and isinstance(audio, Mapping) and not audio.get("data")
    return silent and bool(text_of(message).strip())
