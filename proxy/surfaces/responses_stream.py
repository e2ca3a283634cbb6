"""Reassemble a response from its events, or from the last event, which usually repeats all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from burnish.proxy.surfaces.lenient import Json, error_in
from burnish.proxy.surfaces.sse import JsonEvents

LAST = ("response.completed", "response.incomplete", "response.failed")
LAST_EVENTS = 2
"""Events at the end that are searched for the last one: some servers append ``[DONE]``."""

BLANK_LINES = 64
"""More blank lines than any server sends after an event."""


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
    response = _from_last_event(body)
    return Streamed(response, complete=True, error=None) if response else _from_events(body)


def _from_last_event(body: bytes) -> Json | None:
    """Return the response in the last event; None if it has no output. Much faster than reading all events."""
    end = len(body)
    for _ in range(LAST_EVENTS):
        tail = body[max(0, end - BLANK_LINES) : end]
        end -= len(tail) - len(tail.rstrip(b"\n"))
        start = body.rfind(b"\n\n", 0, end)
        if start < 0:
            return None
        events = JsonEvents(body[start:end] + b"\n\n")
        end = start
        for event in list(_objects(events)):
            if event.get("type") in LAST and _output(event.get("response")) and not events.damage:
                response: Json = event["response"]
                return response
    return None


def _from_events(body: bytes) -> Streamed:
    collector = _Collector()
    response: Json = {}
    complete = False
    error = None
    events = JsonEvents(body)
    for event in _objects(events):
        kind = event.get("type")
        if isinstance(event.get("response"), dict):
            response |= event["response"]
        if kind in LAST:
            complete = True
        elif kind == "error":
            error = error or error_in(event) or error_in({"error": event})
        elif isinstance(kind, str):
            collector.take(kind, event)
        else:
            error = error or error_in(event)
    if not _output(response):
        response["output"] = collector.output()
    damage = events.damage
    return Streamed(response, complete=complete and not damage, error=error or damage, damage=damage)


def _objects(events: JsonEvents) -> Iterator[Json]:
    return (event for _, event in events if isinstance(event, dict))


def _output(response: Any) -> list[Any]:
    output = response.get("output") if isinstance(response, dict) else None
    return output if isinstance(output, list) else []


class _Collector:
    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._done: set[int] = set()
        self._texts: dict[int, dict[tuple[Text, int], list[str]]] = {}
        self._named: dict[str, int] = {}

    def take(self, kind: str, event: Json) -> None:
        """Add an event; unknown kinds are ignored."""
        place = self._place(event)
        of, _, stage = kind.rpartition(".")
        if of == "response.output_item":
            if isinstance(event.get("item"), dict) and place not in self._done:
                self._items[place] = event["item"]
                if stage == "done":
                    self._done.add(place)
        elif (text := TEXTS.get(of)) is not None:
            pieces = self._texts.setdefault(place, {}).setdefault((text, _index(event, text.counted_by)), [])
            if stage == "done":
                pieces.clear()
            piece = event.get(text.field if stage == "done" else "delta")
            if isinstance(piece, str):
                pieces.append(piece)

    def _place(self, event: Json) -> int:
        """Return an item's position. llama.cpp sends none, so its items are ordered by first appearance."""
        if isinstance(place := event.get("output_index"), int):
            return place
        item = event.get("item")
        name = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        return self._named.setdefault(str(name), len(self._named))

    def output(self) -> list[Json]:
        """Return the items, incomplete ones as far as they came."""
        return [
            self._items[place]
            if place in self._done
            else _with_texts(self._items.get(place), self._texts.get(place, {}))
            for place in sorted(self._items.keys() | self._texts.keys())
        ]


def _with_texts(item: Json | None, texts: dict[tuple[Text, int], list[str]]) -> Json:
    """Return an item with the texts that came for it."""
    whole = {"type": next(iter(texts))[0].item_type} if item is None else dict(item)
    listed: dict[str, list[Json]] = {}
    for (text, _), pieces in sorted(texts.items(), key=lambda pair: pair[0][1]):
        piece = "".join(pieces)
        if text.parts is None:
            whole[text.field] = piece
        else:
            listed.setdefault(text.parts, []).append({"type": text.part, text.field: piece})
    return whole | listed


def _index(event: Json, name: str) -> int:
    index = event.get(name)
    return index if isinstance(index, int) else 0
