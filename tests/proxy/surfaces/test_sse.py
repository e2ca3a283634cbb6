"""The SSE parser gives the same events however the bytes were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.surfaces.sse import SseParser, StreamEvent


def parse(*chunks: bytes) -> list[StreamEvent]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [StreamEvent("message", "a")]),
        (
            b"data:a\r\n\r\ndata: b\r\rdata:  c\n\n",
            [StreamEvent("message", text) for text in ("a", "b", " c")],
        ),
        (b"event: error\ndata: x\n\n", [StreamEvent("error", "x")]),
        (b"data: one\ndata: two\n\n", [StreamEvent("message", "one\ntwo")]),
        (b": comment\n\ndata: a\n\n", [StreamEvent("message", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [StreamEvent("message", "a")]),
        (b"id: 7\nretry: 10\nunknown\ndata: a\n\n", [StreamEvent("message", "a")]),
        (b"event: ping\n\ndata: a\n\n", [StreamEvent("message", "a")]),
        (b"data\n\n", [StreamEvent("message", "")]),
        (b'data: {"half": ', [StreamEvent("message", '{"half": ')]),
        (b"data: a\n", [StreamEvent("message", "a")]),
        (b"", []),
        ("data: grüße 😀\n\n".encode(), [StreamEvent("message", "grüße 😀")]),
        (b"data: \xff\n\n", [StreamEvent("message", "\ufffd")]),
        ("data: a\u2028b\x0b\x85c\n\n".encode(), [StreamEvent("message", "a\u2028b\x0b\x85c")]),
    ],
)
def test_parses(stream: bytes, expected: list[StreamEvent]):
    assert parse(stream) == expected


LINES = ["data: ", "data:", "event: e", ": note", "", "data: grüße 😀", "data: {}", "id: 1", "\ufeff"]
lines = st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\r", "\r\n"])).map("".join)
streams = st.lists(lines, max_size=8).map("".join).map(str.encode)


@given(streams | st.binary(max_size=40))
def test_every_split_position_gives_the_same_events(stream: bytes):
    whole = parse(stream)
    for position in range(len(stream) + 1):
        assert parse(stream[:position], stream[position:]) == whole
    assert parse(*(bytes([byte]) for byte in stream)) == whole
