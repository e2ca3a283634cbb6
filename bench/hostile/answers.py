"""The answers of a hostile upstream, by name. ``share`` scales their size: 1 is the size that is measured."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import brotli
import orjson
import zstandard

from tests.support.anthropic_wire import event, message_events, text, tool_use
from tests.support.chat_wire import DONE, called, chunk, whole
from tests.support.responses import call, events, response

JSON = "application/json"
EVENTS = "text/event-stream"
CALLS = 50_000
CALLS_AT_ONCE = 1_000
"""In one delta, if there are several."""
CHOICES = 50_000
MEMBERS = 100_000
UNPACKED_BYTES = 2**30
LONG_BYTES = 100 * 10**6
DEPTH = 100_000
ALLOWED_DEPTH = 1_000
CITATIONS = 150_000
BLOCKS = 50_000
RELAYED_BYTES = 32 * 2**20
"""What the relay keeps of an answer for the log."""
ENDLESS_BYTES = 64 * 10**6
"""Where this upstream stops what has no end."""
BLOCK = b"0" * 2**20
HEAD = b"HTTP/1.1 200 OK\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    wire: bytes
    """Head and body, as they are sent."""
    closes: bool = False
    """Whether the connection is closed afterwards."""


Build = Callable[[float], Answer]
ANSWERS: dict[str, Build] = {}
STREAMED: set[str] = set()
"""Of them the streams."""
CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
RESPONSES_PATH = "/v1/responses"
NATIVE: dict[str, str] = {}
"""Of them those that aren't in the format of chat, and their path."""


def _answer(build: Build) -> Build:
    ANSWERS[build.__name__.replace("_", "-")] = build
    return build


def _stream(build: Build) -> Build:
    STREAMED.add(build.__name__.replace("_", "-"))
    return _answer(build)


def _native(path: str) -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        NATIVE[build.__name__.replace("_", "-")] = path
        return _stream(build)

    return add


def with_length(content_type: str, body: bytes, encoding: str = "identity") -> Answer:
    """Return an answer whose length is known."""
    head = (
        f"content-type: {content_type}\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return Answer(HEAD + head.encode() + body)


def chat_stream(events: Iterable[bytes]) -> Answer:
    """Return a stream of chat, with the usual end."""
    return streamed([*events, chunk({}, "stop"), DONE])


def streamed(events: Iterable[bytes]) -> Answer:
    """Return a stream: each event is a chunk of HTTP."""
    framed = (b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    head = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return Answer(HEAD + head + b"".join(framed) + b"0\r\n\r\n")


@_answer
def ordinary(share: float) -> Answer:
    return with_length(JSON, orjson.dumps(whole({"content": "An answer like any."})))


@_stream
def calls(share: float) -> Answer:
    """50,000 streamed tool calls, 12 MB."""
    return chat_stream(chunk({"tool_calls": [call]}) for call in _calls(share))


@_stream
def calls_unnumbered(share: float) -> Answer:
    """The same calls, told apart only by their ids."""
    return chat_stream(chunk({"tool_calls": [_without_index(call)]}) for call in _calls(share))


@_stream
def calls_together(share: float) -> Answer:
    """The same calls, 1,000 in each event."""
    made = list(_calls(share))
    groups = (made[start : start + CALLS_AT_ONCE] for start in range(0, len(made), CALLS_AT_ONCE))
    return chat_stream(chunk({"tool_calls": group}) for group in groups)


@_answer
def calls_whole(share: float) -> Answer:
    """The same calls in an answer that isn't streamed."""
    made = [_without_index(call) for call in _calls(share)]
    return with_length(JSON, orjson.dumps(whole({"content": None, "tool_calls": made})))


@_stream
def choices(share: float) -> Answer:
    """50,000 choices, one in each event."""
    made = (_with_index(chunk({"content": "word"}), index) for index in range(round(CHOICES * share)))
    return chat_stream(made)


@_answer
def choices_whole(share: float) -> Answer:
    one = whole({"content": "word"})
    made = [one["choices"][0] | {"index": index} for index in range(round(CHOICES * share))]
    return with_length(JSON, orjson.dumps(one | {"choices": made}))


@_answer
def gzip_members(share: float) -> Answer:
    """An answer of 200 KB in 100,000 gzip members, 2.2 MB."""
    before, after = _around()
    member = gzip.compress(b"00", mtime=0)
    packed = gzip.compress(before) + member * round(MEMBERS * share) + gzip.compress(after)
    return with_length(JSON, packed, "gzip")


@_answer
def gzip_bomb(share: float) -> Answer:
    """1 GB in 1 MB of gzip."""
    return with_length(JSON, gzipped(_long(UNPACKED_BYTES * share)), "gzip")


@_stream
def gzip_bomb_events(share: float) -> Answer:
    return with_length(EVENTS, gzipped(_long_event(UNPACKED_BYTES * share)), "gzip")


@_answer
def gzip_twice(share: float) -> Answer:
    """1 GB in some KB: gzip in gzip."""
    return with_length(JSON, gzip.compress(gzipped(_long(UNPACKED_BYTES * share))), "gzip, gzip")


@_answer
def brotli_bomb(share: float) -> Answer:
    packer = brotli.Compressor(quality=1)
    packed = [packer.process(piece) for piece in _long(UNPACKED_BYTES * share)]
    return with_length(JSON, b"".join([*packed, packer.finish()]), "br")


@_answer
def zstd_bomb(share: float) -> Answer:
    packer = zstandard.ZstdCompressor().compressobj()
    packed = [packer.compress(piece) for piece in _long(UNPACKED_BYTES * share)]
    return with_length(JSON, b"".join([*packed, packer.flush()]), "zstd")


@_stream
def long_event(share: float) -> Answer:
    """One event of 100 MB on one line."""
    return with_length(EVENTS, b"".join(_long_event(LONG_BYTES * share)))


@_answer
def long_body(share: float) -> Answer:
    """JSON of 100 MB."""
    return with_length(JSON, b"".join(_long(LONG_BYTES * share)))


@_answer
def nested(share: float) -> Answer:
    """JSON in 100,000 levels."""
    before, after = _around()
    levels = round(DEPTH * share)
    return with_length(JSON, before[:-1] + b"[" * levels + b"]" * levels + after[1:])


@_stream
def nested_event(share: float) -> Answer:
    event, levels = chunk({"content": "@"}), round(DEPTH * share)
    return chat_stream([event.replace(b'"@"', b"[" * levels + b"]" * levels)])


@_stream
def nested_within_limits(share: float) -> Answer:
    """Events in 1,000 levels, which JSON parsers accept."""
    levels = round(ALLOWED_DEPTH * share)
    nested = chunk({"content": "@"}).replace(b'"@"', b"[" * levels + b"]" * levels)
    return chat_stream([nested, _with_index(nested, 1)])


@_stream
def small_events(share: float) -> Answer:
    """32 MiB of ordinary events."""
    event = chunk({"content": "word "})
    return chat_stream([event] * round(RELAYED_BYTES * share / len(event)))


@_native(MESSAGES_PATH)
def blocks(share: float) -> Answer:
    """50,000 content blocks of Messages."""
    return streamed(message_events(*[tool_use("look", {"place": 1})] * round(BLOCKS * share), size=50))


@_native(MESSAGES_PATH)
def citations(share: float) -> Answer:
    """150,000 citations of one block of Messages, 17 MB."""
    before, after = message_events(text("word"))[:4], message_events(text("word"))[4:]
    citation = event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": {}})
    return streamed([*before, *[citation] * round(CITATIONS * share), *after])


@_native(RESPONSES_PATH)
def items(share: float) -> Answer:
    """50,000 items of Responses."""
    made = (call("look", '{"place":1}', f"call_{place}") for place in range(round(BLOCKS * share)))
    return streamed(events(response(*made), piece=50))


@_stream
def endless_hints(share: float) -> Answer:
    """1xx answers, and never the real one."""
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n"
    return Answer(hint * round(ENDLESS_BYTES * share / len(hint)), closes=True)


@_stream
def endless_headers(share: float) -> Answer:
    line = b"x-more: and more\r\n"
    return Answer(HEAD + line * round(ENDLESS_BYTES * share / len(line)), closes=True)


@_answer
def broken_off(share: float) -> Answer:
    """A tenth of an answer."""
    wire = ordinary(share).wire
    return Answer(wire[: -len(wire) // 10], closes=True)


def _calls(share: float) -> Iterator[dict[str, Any]]:
    for index in range(round(CALLS * share)):
        yield {"index": index, **called("look", {"place": index}, f"call_{index}")}


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if key != "index"}


def _with_index(event: bytes, index: int) -> bytes:
    return event.replace(b'"index":0', b'"index":%d' % index)


def _around() -> tuple[bytes, bytes]:
    """Return what comes before and after the text in an answer of chat."""
    before, after = orjson.dumps(whole({"content": "@"})).split(b"@")
    return before, after


def _long(size: float) -> Iterator[bytes]:
    """Yield an answer of chat with a text of this many bytes."""
    before, after = _around()
    yield before
    yield from [BLOCK] * round(size / len(BLOCK))
    yield after


def _long_event(size: float) -> Iterator[bytes]:
    before, after = chunk({"content": "@"}).split(b"@")
    yield before
    yield from [BLOCK] * round(size / len(BLOCK))
    yield after
    yield chunk({}, "stop")
    yield DONE


def gzipped(pieces: Iterable[bytes]) -> bytes:
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(piece) for piece in pieces]
    return b"".join([*packed, packer.flush()])
