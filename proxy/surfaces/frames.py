"""Cuts an answer that is still arriving into its JSON objects: events, lines, or the elements of one growing array.

What can't be read is left out: the log reads the whole answer later, and says what is wrong with it.
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Json, TooMuch, object_in
from burnish.proxy.surfaces.sse import EVENT_LIMIT_BYTES, SseParser, is_streamed, payloads_of

UNPACKED_BYTES = 1024 * 1024
"""As much may come out of one piece of a compressed answer."""
PIECE_BYTES = 256
"""Of zstd, which can't be told to stop: as little goes in at a time."""
ARRAY_BYTES = 256 * 1024
"""Longest part of a growing array that waits for its end: each try to read it begins at its start."""


class UnreadableAnswer(ValueError):
    """The answer can't be read while it arrives."""


def frames(surface: str, begins: bytes, content_type: str) -> Frames | None:
    """Return what cuts an answer of a format that begins like this; None if it comes in one piece."""
    if surface.startswith("ollama"):
        return LineFrames()
    if surface == "gemini" and begins.lstrip().startswith(b"["):
        return ArrayFrames()
    return EventFrames() if is_streamed(begins, content_type) else None


class EventFrames:
    """Server-sent events. Those of one line each, as nearly all servers send them, are parsed together."""

    def __init__(self) -> None:
        self._rest = b""
        self._parser: SseParser | None = None

    def feed(self, chunk: bytes) -> Iterator[Json]:
        if self._parser is None:
            whole, end, tail = (self._rest + chunk).rpartition(b"\n\n")
            if len(tail) > EVENT_LIMIT_BYTES:
                raise TooMuch(f"an event is longer than {EVENT_LIMIT_BYTES} bytes")
            plain = None if b"\r" in chunk else payloads_of(whole) if end else []
            if plain is not None:
                self._rest = tail
                return _objects(plain)
            self._parser, chunk, self._rest = SseParser(EVENT_LIMIT_BYTES), self._rest + chunk, b""
        return (
            content for event in self._parser.feed(chunk) if (content := object_in(event.data)) is not None
        )


def _objects(payloads: list[bytes]) -> Iterator[Json]:
    """Parse all at once: a call for each costs more than the parsing."""
    try:
        contents = orjson.loads(
            b"[%b]" % b",".join(payload for payload in payloads if payload.startswith(b"{"))
        )
    except orjson.JSONDecodeError:
        contents = [object_in(payload) for payload in payloads]
    return (content for content in contents if isinstance(content, dict))


class LineFrames:
    """One object a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Json]:
        whole, _, self._rest = (self._rest + chunk).rpartition(b"\n")
        if len(self._rest) > EVENT_LIMIT_BYTES:
            raise TooMuch(f"a line is longer than {EVENT_LIMIT_BYTES} bytes")
        return (content for line in whole.splitlines() if (content := object_in(line)) is not None)


class ArrayFrames:
    """The elements of one array that grows, as Gemini streams without ``alt=sse``."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._decoder = json.JSONDecoder()

    def feed(self, chunk: bytes) -> Iterator[Json]:
        self._rest += self._text.decode(chunk)
        while True:
            self._rest = self._rest.lstrip("[, \t\r\n")
            try:
                content, end = self._decoder.raw_decode(self._rest)
            except (ValueError, RecursionError) as error:
                if len(self._rest) > ARRAY_BYTES:
                    raise UnreadableAnswer("a part of the array is too long") from error
                return
            self._rest = self._rest[end:]
            if isinstance(content, dict):
                yield content


Frames = EventFrames | LineFrames | ArrayFrames
"""Their ``feed`` takes bytes and yields the objects that these complete. It raises UnreadableAnswer, TooMuch."""


def unpacking(encoding: str) -> Callable[[bytes], bytes]:
    """Return what undoes a content encoding piece by piece. It raises UnreadableAnswer, and so does this."""
    if encoding in ("", "identity"):
        return bytes
    makers: dict[str, Callable[[], Callable[[bytes], bytes]]] = {
        "gzip": _zlib, "x-gzip": _zlib, "deflate": _zlib, "br": _brotli, "zstd": _zstd
    }  # fmt: skip
    if encoding not in makers:
        raise UnreadableAnswer(f"unknown content-encoding {encoding!r}")
    unpack = makers[encoding]()

    def bounded(chunk: bytes) -> bytes:
        try:
            content = unpack(chunk)
        except Exception as error:  # each library has errors of its own
            raise UnreadableAnswer(f"not {encoding}: {error}") from error
        if len(content) >= UNPACKED_BYTES:
            raise UnreadableAnswer(f"a piece has more than {UNPACKED_BYTES} bytes when {encoding} is decoded")
        return content

    return bounded


def _zlib() -> Callable[[bytes], bytes]:
    state: Any = zlib.decompressobj(32 + zlib.MAX_WBITS)

    def unpack(chunk: bytes) -> bytes:
        nonlocal state
        parts = []
        while chunk:
            parts.append(state.decompress(chunk, UNPACKED_BYTES))
            chunk = state.unused_data  # the next member of a gzip body
            if chunk:
                state = zlib.decompressobj(32 + zlib.MAX_WBITS)
        return b"".join(parts)

    return unpack


def _brotli() -> Callable[[bytes], bytes]:
    import brotli

    state = brotli.Decompressor()
    return lambda chunk: bytes(state.process(chunk, output_buffer_limit=UNPACKED_BYTES))


def _zstd() -> Callable[[bytes], bytes]:
    import zstandard

    state = zstandard.ZstdDecompressor().decompressobj()

    def unpack(chunk: bytes) -> bytes:
        parts: list[bytes] = []
        for start in range(0, len(chunk), PIECE_BYTES):
            parts.append(state.decompress(chunk[start : start + PIECE_BYTES]))
            if sum(map(len, parts)) >= UNPACKED_BYTES:
                break
        return b"".join(parts)

    return unpack
