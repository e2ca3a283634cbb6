"""Server-sent events (WHATWG HTML, "Parsing an event stream"): bytes in, events out. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from burnish.proxy.surfaces.lenient import Damage, as_text, loads

DONE = "[DONE]"
"""How OpenAI's streams end, and those of many others."""
SPEAKS_OTHERWISE = ("ping", "error")
"""Events whose data some servers do not write as JSON."""

FIELDS = (b"data:", b"event", b"id:", b"retry", b":")
"""How lines begin."""
STEP_BYTES = 256 * 1024
"""So much of a stream is read at a time."""
BYTE_ORDER_MARK = "\ufeff".encode()


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event."""

    name: str
    """Its ``event`` field, "message" when it has none."""
    data: str
    """Its ``data`` lines, joined by newlines."""


class JsonEvents:
    """The events of a stream, or of what there is of it, each with its data as JSON; None where that is none.

    They are read as they are asked for: all at once would take many times the room of their bytes.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.damage: str | None = None
        """What cannot be read, in words, once all have been asked for; a last event that was cut off is no damage."""

    def __iter__(self) -> Iterator[tuple[Event, Any]]:
        """Read them."""
        parser, damage, found = SseParser(), Damage(), False
        for start in range(0, len(self._body), STEP_BYTES):
            for event in parser.feed(self._body[start : start + STEP_BYTES]):
                data, found = _data(event), True
                known = event.name in SPEAKS_OTHERWISE or event.data.strip() in ("", DONE, "null")
                if data is None and not known:
                    damage.unread(event.data)
                yield event, data
        damage.garbled = parser.garbled
        for event in parser.close():
            found = True
            yield event, _data(event)
        self.damage = str(damage) or None if found or _begins(self._body) else as_text(self._body)


def _data(event: Event) -> Any:
    try:
        return loads(event.data)
    except ValueError:
        return None


def _begins(body: bytes) -> bool:
    """Whether a body begins as a stream does, if only with a comment or half a line; pages and errors do not."""
    start = body.removeprefix(BYTE_ORDER_MARK).lstrip()[:5]
    return any(start.startswith(field) or field.startswith(start) for field in FIELDS)


def windows(body: bytes) -> Iterator[bytes]:
    """Cut a stream between events into pieces that can be read whole without taking much room."""
    start = 0
    while start < len(body):
        end = body.find(b"\n\n", start + STEP_BYTES) + 2
        end = end if end > 1 else len(body)
        yield body[start:end]
        start = end


def plain_data(body: bytes) -> list[bytes] | None:
    """Return the data of each event of a whole stream, if each is one line ``data: …``; None for any other stream.

    Nearly all streams of chat completions are. It takes a fraction of what the parser does.
    """
    events = body.split(b"\n\n")
    if not events[-1]:
        events.pop()
    data = [event[6:] for event in events if event.startswith(b"data: ")]
    # Neither other fields nor comments, neither several lines to an event nor several blank ones between two.
    plain = len(data) == len(events) and not any(b"\n" in event for event in data) and b"\r" not in body
    return data if plain else None


class SseParser:
    """Turns a byte stream into events, however the stream was split, also inside a UTF-8 character."""

    def __init__(self) -> None:
        self._rest = b""
        self._at_start = True
        self._skip_newline = False
        self._name = ""
        self._data: list[str] = []
        self.garbled = False
        """Whether a line was not UTF-8."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete."""
        buffer = self._rest + chunk
        if self._at_start:
            if len(buffer) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(buffer):
                self._rest = buffer
                return []
            buffer = buffer.removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        if self._skip_newline and buffer:
            buffer = buffer.removeprefix(b"\n")
            self._skip_newline = False
        # bytes.splitlines breaks at \n, \r and \r\n only, which are SSE's line ends.
        lines = buffer.splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        if lines and not self._rest:
            # The \n of a \r\n may be the first byte of the next chunk.
            self._skip_newline = lines[-1].endswith(b"\r")
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n")))]

    def close(self) -> list[Event]:
        """End the stream: an event whose blank line never came is given too, as far as it got.

        The standard drops it; servers that forget the last blank line are common, and of a cut stream
        we keep what there is.
        """
        last = self._line(self._rest) if self._rest else None
        self._rest = b""
        return [event for event in (last, self._line(b"")) if event]

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self.garbled = True
            text = line.decode("utf-8", "replace")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event
