"""Streams of every format, split at every position and cut off at every position."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from burnish.proxy.surfaces import SURFACES, Reply
from tests.support.recorded import ARGUMENTS, RECORDED, TEXT, THOUGHT, Recorded

HALF = "\ufffd"
"""What there is of a character of which half has come."""

every_stream = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)


def read(recorded: Recorded, *chunks: bytes) -> Reply:
    return SURFACES[recorded.surface].reassemble(chunks, recorded.content_type, "")


def texts(reply: Reply) -> tuple[str, str]:
    def text(value: Any) -> str:
        parts = value if isinstance(value, list) else [{"text": value}]
        return "".join(part["text"] or "" for part in parts)

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
