"""Reassemble a response from its events.

Servers say a text up to three times: in deltas, in a ``done`` event or item, and in the last event. Each of them may
be thinner than the others, so all are read, and the longest text of an item counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from burnish.proxy.surfaces.lenient import Json, error_in, objects
from burnish.proxy.surfaces.sse import JsonEvents, NotPlain, plain_objects

LAST = ("response.completed", "response.incomplete", "response.failed")


class Text(NamedTuple):
    """The place of a streamed text in an item."""

    item_type: str
    """Type of the item."""
    field: str
    """Member of the item, or of its part."""
    parts: str | None = None
    """Member of the item that lists its parts."""
    part: str = ""
    """Type of the part."""
    counted_by: str = ""
    """Member of the event that counts the parts."""


TEXTS = {
    "response.output_text": Text("message", "text", "content", "output_text", "content_index"),
    "response.refusal": Text("message", "refusal", "content", "refusal", "content_index"),
    "response.reasoning_text": Text("reasoning", "text", "content", "reasoning_text", "content_index"),
    "response.reasoning_summary_text": Text("reasoning", "text", "summary", "summary_text", "summary_index"),
    "response.function_call_arguments": Text("function_call", "arguments"),
    "response.custom_tool_call_input": Text("custom_tool_call", "input"),
}
"""Prefix of the events ``….delta`` and ``….done`` → the text that they carry."""


class Streamed(NamedTuple):
    response: Json
    """As a client without streaming would get it, as far as it came."""
    complete: bool
    error: str | None
    damage: str | None = None
    """Message about unreadable parts."""


def streamed(body: bytes) -> Streamed:
    try:
        return _collected(plain_objects(body), None)
    except NotPlain:
        events = JsonEvents(body)
        return _collected((event for _, event in events if isinstance(event, dict)), events)


def _collected(said: Iterable[Json], events: JsonEvents | None) -> Streamed:
    """``events``: where they are from, if some of it may be damaged."""
    items = _Items()
    response: Json = {}
    complete = False
    error = None
    for event in said:
        kind = event.get("type")
        if isinstance(event.get("response"), dict):
            response |= event["response"]
        if kind in LAST:
            complete = True
        elif kind == "error":
            error = error or error_in(event) or error_in({"error": event})
        elif isinstance(kind, str):
            items.take(kind, event)
        else:
            error = error or error_in(event)
    items.snapshot(objects(response.get("output")))
    response["output"] = items.output()
    damage = events.damage if events else None
    return Streamed(response, complete=complete and not damage, error=error or damage, damage=damage)


class _Items:
    """The items of a response, each by its id, else by its place."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._named: dict[Any, _Item] = {}
        self._at: dict[Any, _Item] = {}
        """The latest one at a place."""

    def take(self, kind: str, event: Json) -> None:
        """Add an event; unknown kinds are ignored."""
        of, _, stage = kind.rpartition(".")
        if of == "response.output_item":
            if isinstance(item := event.get("item"), dict):
                self._of(event, item.get("id"), item.get("type"), begins=stage == "added").whole(item)
        elif (text := TEXTS.get(of)) is not None:
            piece = event.get(text.field if stage == "done" else "delta")
            if isinstance(piece, str):
                place = text, _index(event, text.counted_by)
                self._of(event, event.get("item_id"), text.item_type).text(place, piece, done=stage == "done")

    def snapshot(self, output: list[Json]) -> None:
        """Add the items of the last event. Some servers give them other ids: then kind and order count."""
        left = list(self._items)
        for item in output:
            same = self._named.get(_name(item.get("id")))
            alike = (other for other in left if other.kind == item.get("type"))
            match = same if same in left else next(alike, None)
            if match is None:
                self._items.append(match := _Item())
            else:
                left.remove(match)
            match.whole(item)

    def _of(self, event: Json, name: Any, kind: Any, *, begins: bool = False) -> _Item:
        """Return the item of an event. llama.cpp sends no places, others the same one for all items, or the next."""
        name, place = _name(name), _name(event.get("output_index"))
        item = self._named.get(name) if name is not None else None
        if item and begins and item.kind:
            item = None  # two items with one id
        if item is None and (name is None or place is not None):
            item = self._at.get(place)
            if item and (begins or item.kind != kind or (item.done and name is not None)):
                item = None
        if item is None:
            self._items.append(item := _Item())
        if name is not None:
            self._named[name] = item
        self._at[place] = item
        return item

    def output(self) -> list[Json]:
        """Return the items, incomplete ones as far as they came."""
        return [item.joined() for item in self._items]


class _Item:
    def __init__(self) -> None:
        self.kind: Any = None
        """Its type."""
        self.done = False
        self._wholes: list[Json] = []
        """All that was said of it as a whole, latest last."""
        self._texts: dict[tuple[Text, int], list[str]] = {}
        """By the number of their part; the longest text that came is in one piece."""

    def whole(self, item: Json) -> None:
        self.kind, self.done = item.get("type"), bool(self._wholes)
        self._wholes.append(item)

    def text(self, place: tuple[Text, int], piece: str, *, done: bool) -> None:
        self.kind = self.kind or place[0].item_type
        pieces = self._texts.setdefault(place, [])
        if not done:
            pieces.append(piece)
        elif len(piece) >= sum(map(len, pieces)):
            pieces[:] = [piece]

    def joined(self) -> Json:
        """Return the item with the longest text that came for each of its members."""
        item: Json = {"type": self.kind}
        for whole in self._wholes:
            item |= {key: _longer(item.get(key), member) for key, member in whole.items()}
        streamed: Json = {}
        for (text, _), pieces in sorted(self._texts.items(), key=lambda each: each[0][1]):
            if text.parts is None:
                streamed[text.field] = "".join(pieces)
            else:
                streamed.setdefault(text.parts, []).append({"type": text.part, text.field: "".join(pieces)})
        return item | {key: _longer(member, item.get(key)) for key, member in streamed.items()}


def _longer(first: Any, second: Any) -> Any:
    """Return the member with the longer text, else the second one."""
    return first if _length(first) > _length(second) or second is None else second


def _length(member: Any) -> int:
    if isinstance(member, str):
        return len(member)
    return sum(len(str(part.get(name) or "")) for part in objects(member) for name in ("text", "refusal"))


def _name(name: Any) -> Any:
    """Return an id or a place; None for what can't be one."""
    return name if isinstance(name, str | int) and name != "" else None


def _index(event: Json, name: str) -> int:
    index = event.get(name)
    return index if isinstance(index, int) else 0
