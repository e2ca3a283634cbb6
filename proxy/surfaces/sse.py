"""Server-sent events (WHATWG HTML, "Parsing an event stream"): bytes in, events out. Does no I/O."""

from __future__ import annotations

from dataclasses import dataclass

BYTE_ORDER_MARK = "\ufeff".encode()


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event."""

    name: str
    """Its ``event`` field, "message" when it has none."""
    data: str
    """Its ``data`` lines, joined by newlines."""


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
        name, _, value = line.decode("utf-8", "replace").partition(":")
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
