"""The text of an answer while it arrives: in every format, wherever its bytes are split, compressed or hostile."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence

import brotli
import orjson
import pytest
import zstandard

from burnish.proxy.messages import text_of
from burnish.proxy.surfaces import surface_at
from burnish.proxy.surfaces.arriving import TEXT_LIMIT, TOOLS_LIMIT, Arriving
from burnish.proxy.surfaces.sse import EVENT_LIMIT_BYTES
from tests.proxy.surfaces.test_answers import ANSWERS
from tests.support import chat_wire, wires

TEXT = "Two wörds, a 🙂 and\na line."
CALLS = [chat_wire.called("look_up", {"q": "x"}), chat_wire.called("read", {}, "call_2")]
SAID = {"reasoning_content": "Hm.", "content": TEXT, "tool_calls": CALLS}
SURFACES = {
    "chat": wires.CHAT, "completions": "/v1/completions", "responses": "/v1/responses", "messages": "/v1/messages",
    "ollama_chat": wires.OLLAMA, "ollama_generate": "/api/generate", "gemini": ":streamGenerateContent",
}  # fmt: skip
EVENTS = "text/event-stream"


def streamed(surface: str) -> bytes:
    return b"".join(wires.write(SURFACES[surface], SAID)[1])


def read(
    surface: str, pieces: Sequence[bytes], content_type: str = "", encoding: str = ""
) -> tuple[str, tuple[str, ...], bool]:
    """Read pieces one by one; return text, tools, and whether the model thought."""
    arriving = Arriving(surface, content_type or wires.content_type(SURFACES[surface]), encoding)
    found = [arriving.feed(piece) for piece in pieces]
    tools = tuple(name for added in found for name in added.tools)
    return "".join(added.text for added in found), tools, any(added.thinks for added in found)


def halves(body: bytes) -> list[list[bytes]]:
    return [[body[:at], body[at:]] for at in range(1, len(body), 7)]


@pytest.mark.parametrize("surface", SURFACES)
def test_text_and_tools_come_as_they_are_written_wherever_the_bytes_are_split(surface: str):
    body = streamed(surface)
    plain = surface == "completions"  # which has neither thoughts nor tools
    expected = (TEXT, () if plain else ("look_up", "read"), not plain)
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))], *halves(body)):
        assert read(surface, pieces) == expected


@pytest.mark.parametrize("surface", SURFACES)
def test_a_part_is_shown_before_the_rest_has_come(surface: str):
    body = streamed(surface)
    arriving = Arriving(surface, wires.content_type(SURFACES[surface]), "")
    shown = "".join(arriving.feed(body[at : at + 40]).text for at in range(0, len(body) * 2 // 3, 40))
    assert shown
    assert TEXT.startswith(shown)


def test_gemini_streams_a_growing_array_too():
    parts = [part.removeprefix(b"data: ").strip() for part in streamed("gemini").split(b"\r\n\r\n") if part]
    indented = (orjson.dumps(orjson.loads(part), option=orjson.OPT_INDENT_2) for part in parts)
    body = b"[%b]" % b"\n,\r\n".join(indented)
    for pieces in ([body], *halves(body)):
        assert read("gemini", pieces, "application/json") == (TEXT, ("look_up", "read"), True)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(streamed("chat"))),
        ("GZIP", gzip.compress(streamed("chat")[:500]) + gzip.compress(streamed("chat")[500:])),
        ("deflate", zlib.compress(streamed("chat"))),
        ("br", brotli.compress(streamed("chat"))),
        ("zstd", zstandard.compress(streamed("chat"))),
    ],
)
def test_compressed_answers(encoding: str, packed: bytes):
    for pieces in ([packed], *halves(packed)):
        assert read("chat", pieces, EVENTS, encoding) == (TEXT, ("look_up", "read"), True)


BOMB = b"\0" * 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BOMB, 1)),
        ("br", brotli.compress(BOMB, quality=1)),
        ("zstd", zstandard.compress(BOMB)),
        ("gzip", b"this isn't gzip"),
        ("rot13", b"data: {}\n\n"),
    ],
    ids=("gzip bomb", "brotli bomb", "zstd bomb", "not gzip", "unknown"),
)
def test_what_cant_be_unpacked_is_given_up(encoding: str, packed: bytes):
    arriving = Arriving("chat", EVENTS, encoding)
    assert arriving.feed(packed).text == ""
    assert arriving.over


def test_an_answer_in_one_piece_is_left_to_the_log():
    arriving = Arriving("chat", "application/json", "")
    assert arriving.feed(orjson.dumps(wires.write(wires.CHAT, SAID)[0])).text == ""
    assert arriving.over


def test_a_long_answer_is_shown_up_to_a_limit_and_so_are_its_tools():
    calls = [{"index": n, "id": f"c{n}", "function": {"name": f"tool{n}"}} for n in range(1_000)]
    body = chat_wire.chunk({"tool_calls": calls}) + chat_wire.chunk({"content": "x" * 1_000_000})
    text, tools, _ = read("chat", [body, body], EVENTS)
    assert (len(text), len(tools)) == (TEXT_LIMIT, TOOLS_LIMIT)


def test_an_event_without_an_end_doesnt_fill_the_memory():
    arriving = Arriving("chat", EVENTS, "")
    piece = b"data: " + b"x" * (EVENT_LIMIT_BYTES // 2)
    for _ in range(3):
        arriving.feed(piece)
    assert arriving.over


STREAMS = {
    f"{group}: {name}": answer
    for group, answers in ANSWERS.items()
    for name, answer in answers.items()
    if len(answer["frames"]) > 1
}
AT_THE_END = {
    "chat: 16-single-newlines", "chat: 17-ndjson", "chat: lines-as-events", "messages: events-in-lines",
    "responses: 25-web-search-call", "responses: 26-mcp-and-compaction-items",
}  # fmt: skip
"""Streams whose text is nowhere but in their last event, or that are cut into events in a way that isn't read live."""


@pytest.mark.parametrize("name", STREAMS)
def test_what_is_shown_while_it_arrives_is_what_the_log_keeps(name: str):
    answer = STREAMS[name]
    surface, content_type = surface_at(answer["path"].partition("?")[0]), answer["headers"]["content-type"]
    assert surface
    frames = [frame.encode() for frame in answer["frames"]]
    message = surface.reassemble(frames, content_type, "").message or {}
    text, tools, _ = read(surface.name, frames, content_type)
    called = [call.get("function") or call["custom"] for call in message.get("tool_calls") or ()]
    expected = text_of(message) + (message.get("refusal") or "")
    assert text == ("" if name in AT_THE_END else expected)
    assert tools == tuple(call["name"] for call in called if call["name"])


def test_the_name_of_a_tool_is_shown_when_it_is_whole():
    arriving = Arriving("chat", EVENTS, "")
    pieces = [
        chat_wire.chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": name}}]})
        for name in ("look", "_up")
    ]
    assert [arriving.feed(piece).tools for piece in (*pieces, chat_wire.chunk({}, "tool_calls"))] == [
        (), (), ("look_up",)
    ]  # fmt: skip


COMMENTED = b'event: message\r\ndata: {"choices": [{"delta": {"content":\r\ndata: "a"}}]}\r\n\r\n'
NO_CHUNKS = (
    b'data: {"choices": "none"}\n\ndata: not JSON\n\ndata: 5\n\ndata: [[]]\n\ndata: {"choices": [5, {}]}\n\n'
)
SECOND_CHOICE = b'data: {"choices": [{"index": 1, "delta": {"content": "no"}}]}\n\n'


def with_content(*contents: str) -> bytes:
    """Events whose contents are written as they stand."""
    event = b'data: {"choices": [{"delta": {"content": %b}}]}\n\n'
    return b"".join(event % each.encode() for each in contents)


ODD = {
    b": a comment\r\n\r\n" + COMMENTED: "a", NO_CHUNKS: "", SECOND_CHOICE: "",
    with_content('"\\ud83d"', '"\\ude42"'): "🙂", with_content('"\\ud83d alone"'): "\ufffd alone",
    with_content('[{"type": "text", "text": "part"}, {"text": 1}, 2]', "5"): "part",
}  # fmt: skip


def test_odd_events_are_read_as_far_as_they_go():
    assert [read("chat", [each], EVENTS)[0] for each in ODD] == [*ODD.values()]
