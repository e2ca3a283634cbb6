"""What a choice of chat says, whatever servers make of the format: for the log, and for the translator.

A stream's pieces come in ``delta`` or in ``message``; content as text, as an object or as parts; calls with or without
index and id, and their names in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Json, TooMuch, dumps, objects

CALL_TEXTS = {"function": "arguments", "custom": "input"}
"""Kind of tool call → its member that arrives in pieces."""
MOST_CALLS = 2048
"""Sixteen times as many as OpenAI allows."""
TOO_MANY_CALLS = f"more than {MOST_CALLS} tool calls in one answer"
THOUGHTS = ("thinking", "reasoning")
"""Kinds of parts, and their members, that are thoughts."""
NOTES = ("reference", "citation", "citations")
"""Kinds of parts that say where a text is from."""
BESIDE_THE_TEXT = (*THOUGHTS, *NOTES)
OTHER_PARTS = "parts"
"""Member of a delta: the parts that are neither text nor thoughts."""


class Deltas:
    """The pieces of one choice. A whole message is one piece."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._members: set[str] = set()
        """Those that came with something in them."""
        self._in_deltas = False

    def take(self, choice: Json) -> Json:
        """Return what a choice adds, in the form of a delta."""
        delta = choice.get("delta")
        if isinstance(delta, dict) and delta:
            self._in_deltas = True
            return self._noted(plain(delta))
        message = choice.get("message")
        return self._noted(self._rest(plain(message))) if isinstance(message, dict) else {}

    def _rest(self, message: Json) -> Json:
        """Return what a message adds, which may repeat all that came before it."""
        said, text = "".join(self._texts), message.get("content") or ""
        if not self._members or not (self._in_deltas or text.startswith(said)):
            return message
        new = {name: member for name, member in message.items() if name not in self._members}
        return new | ({"content": text[len(said) :]} if text.startswith(said) else {})

    def _noted(self, delta: Json) -> Json:
        if text := delta.get("content"):
            self._texts.append(text)
        if len(delta) > 1 or not text:
            self._members.update(name for name, member in delta.items() if member)
        else:
            self._members.add("content")
        return delta


def plain(message: Json) -> Json:
    """Return a message or a delta whose content is a text: its thoughts and other parts become members of their own."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return message
    texts: list[str] = []
    thoughts: list[str] = []
    other_parts: list[Json] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            thoughts += _thoughts(part)
            if part.get("type") not in THOUGHTS:
                text = part.get("text")
                texts += [text] if isinstance(text, str) else []
                other_parts += [] if isinstance(text, str) else [part]
    members: Json = {"content": "".join(texts) if texts else None}
    if thoughts:
        members["reasoning_content"] = "".join((message.get("reasoning_content") or "", *thoughts))
    return {**message, **members} | ({OTHER_PARTS: other_parts} if other_parts else {})


def _thoughts(part: Json) -> list[str]:
    kind = part.get("type")
    if kind not in THOUGHTS:
        return []
    content = part.get(kind, part.get("text"))
    if isinstance(content, str):
        return [content]
    return [text for inner in objects(content) if isinstance(text := inner.get("text"), str)]


def with_parts(message: Json) -> Json:
    """Return a whole message with its other parts where chat has them: behind the text, or as references."""
    if OTHER_PARTS not in message:
        return message
    other_parts = message.pop(OTHER_PARTS)
    if notes := [part for part in other_parts if part.get("type") in NOTES]:
        message["references"] = notes
    if rest := [part for part in other_parts if part not in notes]:
        text = message.get("content")
        message["content"] = [*([{"type": "text", "text": text}] if text else []), *rest]
    return message


class Call:
    """A tool call that grows. Compared by identity."""

    def __init__(self) -> None:
        self.id: Any = None
        self.name = ""
        self._type = "function"
        self._kind = ""
        self.texts: list[str] = []
        """Its arguments, in pieces."""
        self._arguments: Any = None
        """Against the format, some servers send an object."""

    def take(self, piece: Json) -> None:
        self.id = self.id or _key(piece.get("id"))
        if isinstance(piece.get("type"), str) and piece["type"]:
            self._type = piece["type"]
        for kind, member in CALL_TEXTS.items():
            if isinstance(called := piece.get(kind), dict):
                self._kind = kind
                self._take_name(called.get("name"))
                self._take_arguments(called.get(member))

    def _take_name(self, name: Any) -> None:
        if not isinstance(name, str):
            return
        if name.startswith(self.name):  # the first, the same again, or all of it so far
            self.name = name
        elif not self.begun:
            self.name += name

    def _take_arguments(self, arguments: Any) -> None:
        if isinstance(arguments, dict | list):
            self._arguments = arguments
            self.texts.append(dumps(arguments))
        elif isinstance(arguments, str) and arguments:
            self.texts.append(arguments)

    @property
    def begun(self) -> bool:
        """Whether any of its arguments came."""
        return bool(self.texts)

    def continued_by(self, name: str, *, numbered: bool) -> bool:
        """Whether a piece with a name, but no id, goes on with this call instead of beginning the next.

        ``numbered``: it has the index of this call.
        """
        if not self.name or not self.begun:
            return numbered or not self.name or name == self.name
        return name == self.name and not self.whole

    @property
    def whole(self) -> bool:
        """Whether its arguments are complete."""
        if not self.begun or not self.texts[-1].rstrip().endswith(("}", "]")):
            return False
        try:
            orjson.loads("".join(self.texts))
        except orjson.JSONDecodeError:
            return False
        return True

    def as_message(self) -> Json:
        call: Json = {"id": self.id, "type": self._type}
        if self._kind:
            arguments = "".join(self.texts) if self._arguments is None else self._arguments
            call[self._kind] = {"name": self.name or None, CALL_TEXTS[self._kind]: arguments}
        return call


class Calls:
    """The tool calls of an answer.

    A piece with a name begins a call, unless it has the id of one. A piece without a name goes on with the call that
    has its id or its index, else with the latest one. Without an index, the position among several pieces counts.
    """

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._by_id: dict[Any, Call] = {}
        self._at: dict[Any, Call] = {}
        """The latest call at an index, or at a position."""

    def take(self, pieces: Sequence[Json]) -> None:
        """Add the pieces of a delta. Raises TooMuch."""
        grown: set[Call] = set()
        for position, piece in enumerate(pieces):
            place = _key(piece.get("index"))
            place = ("position", position) if place is None and len(pieces) > 1 else place
            call = self._of(piece, place, grown)
            call.take(piece)
            grown.add(call)
            self._at[place] = call
            if call.id is not None:
                self._by_id[call.id] = call

    def _of(self, piece: Json, place: Any, grown: set[Call]) -> Call:
        """``grown``: the calls that grew by the same delta, of which a named piece is another one."""
        identity, name = _key(piece.get("id")), _name(piece)
        call = self._by_id.get(identity) if identity is not None else None
        if call is not None and not (name and call in grown):
            return call
        latest = self.all[-1] if self.all else None
        call = latest if place is None else self._at.get(place)
        if not name:
            if call is None and (place is None or identity is None):
                call = latest
        elif call is not None:
            other = identity is not None and call.id is not None
            if other or call in grown or not call.continued_by(name, numbered=place is not None):
                call = None
        return call or self._begun()

    def _begun(self) -> Call:
        if len(self.all) == MOST_CALLS:
            raise TooMuch(TOO_MANY_CALLS)
        self.all.append(Call())
        return self.all[-1]


def _key(index_or_id: Any) -> Any:
    """Return an index or an id; None for what can't be one."""
    return index_or_id if isinstance(index_or_id, str | int | float) and index_or_id != "" else None


def _name(piece: Json) -> str:
    names = (called.get("name") for kind in CALL_TEXTS if isinstance(called := piece.get(kind), dict))
    return next((name for name in names if isinstance(name, str)), "")
