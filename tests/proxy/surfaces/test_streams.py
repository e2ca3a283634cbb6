"""Streams of every format, split and cut off at every position, and written in every way that the format allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.proxy.surfaces import SURFACES, Reply, surface_at
from burnish.proxy.surfaces.sse import BYTE_ORDER_MARK
from tests.proxy.surfaces.test_answers import ANSWERS
from tests.support.recorded import ARGUMENTS, RECORDED, TEXT, THOUGHT, Recorded

HALF = "\ufffd"
"""What there is of a character of which half has come."""

every_stream = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)


def read(recorded: Recorded, *chunks: bytes) -> Reply:
    return SURFACES[recorded.surface].reassemble(chunks, recorded.content_type, "")


def texts(reply: Reply) -> tuple[str, str]:
    def text(value: Any) -> str:
        parts = value if isinstance(value, list) else [{"text": value}]
        return "".join(part.get("text") or "" for part in parts)

    message = reply.message or {}
    return message.get("reasoning_content") or "", text(message.get("content"))


@every_stream
def test_it_is_read_whole(recorded: Recorded) -> None:
    reply = read(recorded, recorded.body)
    thoughtless = recorded.surface == "completions"
    assert texts(reply) == ("" if thoughtless else THOUGHT, TEXT)
    if recorded.surface not in ("completions", "ollama_generate") and not recorded.fails:
        assert reply.message
        first, second = (call["function"] for call in reply.message["tool_calls"])
        assert (first["name"], orjson.loads(first["arguments"])) == ("look", ARGUMENTS)
        assert second["name"] == "look"
    assert (reply.complete, reply.readable) == (not recorded.fails, True)
    assert (reply.error is not None and "out of memory" in reply.error) is recorded.fails


HALVED = {name: each for name, each in RECORDED.items() if b"\\ude00" in each.body}


@pytest.mark.parametrize("recorded", HALVED.values(), ids=HALVED)
def test_half_an_emoji_that_comes_alone_is_replaced(recorded: Recorded) -> None:
    alone = read(recorded, recorded.body.replace(b"\\ude00", b"", 1))
    assert texts(alone)[1] == TEXT.replace("😀", HALF)


@every_stream
def test_split_at_every_position_it_says_the_same(recorded: Recorded) -> None:
    body = recorded.body
    whole = read(recorded, body)
    assert all(read(recorded, body[:at], body[at:]) == whole for at in range(len(body)))
    assert read(recorded, *(body[at : at + 1] for at in range(len(body)))) == whole


@every_stream
def test_cut_off_at_every_position_it_says_what_had_come(recorded: Recorded) -> None:
    body = recorded.body
    whole = read(recorded, body)
    before = ("", "")
    for at in range(len(body)):
        reply = read(recorded, body[:at])
        said = texts(reply)
        for text, least, most in zip(said, before, texts(whole), strict=True):
            assert most.startswith(text.removesuffix(HALF))
            assert len(text) >= len(least.removesuffix(HALF))
        before = said
        # What is not whole is not taken for it, nor for damaged.
        assert not reply.complete or (reply.message, recorded.fails) == (whole.message, False)
        assert reply.readable or reply.message is None


WAYS: dict[str, Callable[[str], str]] = {
    "comments between events": lambda frame: f": ping\n\n{frame}",
    "an id in each event": lambda frame: f"id: 1\n{frame}",
    "pings": lambda frame: f'{frame}event: ping\ndata: {{"type": "ping"}}\n\n',
    "no space": lambda frame: frame.replace("data: ", "data:", 1),
    "the standard's other line end": lambda frame: frame.replace("\n", "\r\n"),
    "two blank lines": lambda frame: f"{frame}\n",
}
STREAMS = {
    f"{surface}: {name}": answer
    for surface, answers in ANSWERS.items()
    for name, answer in answers.items()
    if all(frame.endswith("\n\n") for frame in answer["frames"])
}


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=25)
@given(
    ways=st.sets(st.sampled_from(sorted(WAYS))),
    content_type=st.sampled_from(["text/event-stream", "text/plain", "application/octet-stream"]),
    mark=st.sampled_from([b"", BYTE_ORDER_MARK]),
    share=st.floats(0, 1),
)
def test_however_it_is_written_and_cut_it_says_what_had_come(
    name: str, ways: set[str], content_type: str, mark: bytes, share: float
) -> None:
    answer = STREAMS[name]
    surface = surface_at(answer["path"].partition("?")[0])
    assert surface

    def read_as(*body: bytes, content_type: str = content_type) -> Reply:
        return surface.reassemble(body, content_type, "")

    plain = read_as("".join(answer["frames"]).encode(), content_type="text/event-stream")
    frames = answer["frames"]
    for way in sorted(ways):
        frames = list(map(WAYS[way], frames))
    body = mark + "".join(frames).encode()
    assert replace(read_as(body), usage=plain.usage) == plain
    cut = read_as(body[: int(share * len(body))])
    for text, most in zip(texts(cut), texts(plain), strict=True):
        assert most.startswith(text.removesuffix(HALF))
    assert not cut.complete or cut.message == plain.message
