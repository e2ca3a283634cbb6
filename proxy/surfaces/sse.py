"""Server-sent events (WHATWG HTML, "Parsing an event stream"): bytes in, events out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Damage, Json, TooMuch, as_text, loads, object_in

DONE = "[DONE]"
"""Data of the last event of OpenAI's streams."""
NOT_JSON = ("ping", "error")
"""Events whose data isn't JSON on some servers."""

FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""Prefixes of lines."""
DATA_FIELD, EVENT, DATA_LINE = b"data: ", b"event: ", b"\ndata: "
STEP_BYTES = 256 * 1024
EVENT_LIMIT_BYTES = 8 * 1024 * 1024
"""An event of a stream that is read while it arrives; images that models send in one event are shorter."""
BYTE_ORDER_MARK = "\ufeff".encode()


@dataclass(frozen=True, slots=True)
class StreamEvent:
    name: str
    """Its ``event`` field; "message" by default."""
    data: str
    """Its ``data`` lines, joined by newlines."""


class JsonEvents:
    """The events of a stream, which may be truncated, each with its data as JSON (None: not JSON).

    They are parsed lazily, because all at once would take many times the memory of the bytes.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.damage: str | None = None
        """Message about unreadable events, set after the last one. A truncated last event doesn't count."""

    def __iter__(self) -> Iterator[tuple[StreamEvent, Any]]:
        if is_lines(self._body):
            yield from self._lines()
            return
        parser, damage, any_event = SseParser(), Damage(), False
        for start in range(0, len(self._body), STEP_BYTES):
            for event in parser.feed(self._body[start : start + STEP_BYTES]):
                any_event = True
                for part, content in parts_of(event):
                    if content is None and not _is_expected(part):
                        damage.unread(part.data)
                    yield part, content
        damage.garbled = parser.garbled
        for event in parser.close():
            any_event = True
            yield from parts_of(event)
        self.damage = str(damage) or None if any_event or _begins(self._body) else as_text(self._body)

    def _lines(self) -> Iterator[tuple[StreamEvent, Any]]:
        damage = Damage()
        for line in BytesIO(self._body):
            event = StreamEvent("message", line.decode("utf-8", "replace"))
            content = _data(event)
            if content is None and line.endswith(b"\n") and not _is_expected(event):
                damage.unread(event.data)
            yield event, content
        self.damage = str(damage) or None


def parts_of(event: StreamEvent) -> list[tuple[StreamEvent, Any]]:
    """Return an event with its data as JSON (None: not JSON); one for each line if the server left out blank lines."""
    content = _data(event)
    if content is None and "\n" in event.data:
        events = [StreamEvent(event.name, line) for line in event.data.split("\n")]
        parts = [(part, _data(part)) for part in events]
        if any(isinstance(content, dict) for _, content in parts):
            return parts
    return [(event, content)]


def _is_expected(event: StreamEvent) -> bool:
    """Whether data needn't be JSON: some servers write a comment as data, too."""
    return event.name in NOT_JSON or event.data.strip() in ("", DONE, "null") or event.data.startswith(":")


def _data(event: StreamEvent) -> Any:
    try:
        return loads(event.data)
    except ValueError:
        return None


def _begins(body: bytes) -> bool:
    """Return whether a body begins like a stream, even with a comment or half a line; pages and errors don't."""
    start = body.removeprefix(BYTE_ORDER_MARK).lstrip()[:6]
    return any(start.startswith(field) or field.startswith(start) for field in FIELDS)


def is_streamed(body: bytes, content_type: str) -> bool:
    """Return whether a body is a stream, of events or of lines. Content types are often wrong."""
    start = body[:16].removeprefix(BYTE_ORDER_MARK).lstrip()
    if start.startswith(b"{"):
        return is_lines(body)
    return "event-stream" in content_type.lower() or start.startswith(FIELDS)


def is_lines(body: bytes) -> bool:
    """Return whether a body is a stream of one JSON object a line."""
    if body.find(b"\n", 0, -1) < 0:
        return False
    first, _, more = body[:STEP_BYTES].lstrip().partition(b"\n")
    return first.startswith(b"{") and bool(more.strip()) and object_in(first) is not None


def windows(body: bytes) -> Iterator[bytes]:
    """Split a stream between events into pieces that take little memory."""
    start = 0
    while start < len(body):
        end = body.find(b"\n\n", start + STEP_BYTES) + 2
        end = end if end > 1 else len(body)
        yield body[start:end]
        start = end


def plain_data(body: bytes) -> list[bytes] | None:
    """Return the data of each event, if each is one line ``data: …``, as nearly always in chat; else None.

    Much faster than the parser.
    """
    events = body.split(b"\n\n")
    if not events[-1]:
        events.pop()
    payloads = [event[6:] for event in events if event.startswith(b"data: ")]
    # No other fields or comments, one line per event, one blank line between events.
    plain = (
        len(payloads) == len(events) and not any(b"\n" in event for event in payloads) and b"\r" not in body
    )
    return payloads if plain else None


class NotPlain(ValueError):
    """The stream isn't in the usual form."""


def plain_objects(body: bytes) -> Iterator[Json]:
    """Read the objects of a stream in the usual form. Raises NotPlain.

    Many are parsed as one array, because a call for each costs more than the parsing.
    """
    for window in windows(body):
        payloads = payloads_of(window.rstrip(b"\n")) if b"\r" not in window else None
        if payloads is None:
            raise NotPlain
        try:
            contents = orjson.loads(b"[%b]" % b",".join(data for data in payloads if data != DONE.encode()))
        except orjson.JSONDecodeError as error:
            raise NotPlain from error
        if not all(isinstance(content, dict) for content in contents):
            raise NotPlain
        yield from contents


def payloads_of(whole: bytes) -> list[bytes] | None:
    """Return the data of each event; None if one has more than a name and one line of data."""
    payloads = []
    for event in whole.split(b"\n\n"):
        _, separator, payload = (
            event.partition(DATA_LINE) if event.startswith(EVENT) else (b"", DATA_FIELD, event[6:])
        )
        if not separator or b"\n" in payload or not event.startswith((DATA_FIELD, EVENT)):
            return None
        payloads.append(payload)
    return payloads


class SseParser:
    """Turns bytes into events, wherever they are split, even inside a UTF-8 character."""

    def __init__(self, event_limit: int | None = None) -> None:
        self._event_limit = event_limit
        self._rest: list[bytes] = []
        """Pieces of a line that isn't complete; joined once, so that a long line costs no more than its length."""
        self._rest_bytes = self._data_chars = 0
        self._at_start = True
        self._skip_newline = False
        self._name = ""
        self._data: list[str] = []
        self.garbled = False
        """Whether a line wasn't UTF-8."""

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Add bytes; return the events that they complete. Raises TooMuch if one is too long."""
        if self._at_start:
            chunk = self._taken() + chunk
            if len(chunk) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(chunk):
                self._keep(chunk)
                return []
            chunk = chunk.removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        if b"\n" not in chunk and b"\r" not in chunk and not self._skip_newline:
            self._keep(chunk)
            return []
        buffer = self._taken() + chunk
        if self._skip_newline and buffer:
            buffer = buffer.removeprefix(b"\n")
            self._skip_newline = False
        # bytes.splitlines breaks at \n, \r and \r\n only, which are SSE's line ends.
        lines = buffer.splitlines(keepends=True)
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            self._keep(lines.pop())
        elif lines:
            # The \n of a \r\n may be the first byte of the next chunk.
            self._skip_newline = lines[-1].endswith(b"\r")
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n")))]

    def close(self) -> list[StreamEvent]:
        """End the stream and return an event without its blank line, as far as it came.

        The standard drops it, but many servers forget the last blank line, and truncated streams are kept.
        """
        remainder = self._taken()
        last = self._line(remainder) if remainder else None
        return [event for event in (last, self._line(b"")) if event]

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        self._check()

    def _check(self) -> None:
        if self._event_limit and self._rest_bytes + self._data_chars > self._event_limit:
            raise TooMuch(f"an event is longer than {self._event_limit} bytes")

    def _taken(self) -> bytes:
        remainder = b"".join(self._rest)
        self._rest, self._rest_bytes = [], 0
        return remainder

    def _line(self, line: bytes) -> StreamEvent | None:
        if not line:
            return self._dispatch()
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self.garbled = True
            text = line.decode("utf-8", "replace")
        name, _, content = text.partition(":")
        content = content.removeprefix(" ")
        if name == "data":
            self._data.append(content)
            self._data_chars += len(content)
            self._check()
        elif name == "event":
            self._name = content
        return None

    def _dispatch(self) -> StreamEvent | None:
        event = StreamEvent(self._name or "message", "\n".join(self._data)) if self._data else None
        self._name, self._data, self._data_chars = "", [], 0
        return event
