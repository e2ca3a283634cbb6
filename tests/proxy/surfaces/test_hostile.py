"""Answers that no model gives are read up to a limit."""

from __future__ import annotations

import gzip

import orjson
import pytest

from burnish.proxy.surfaces import SURFACES
from burnish.proxy.surfaces.choices import MOST_CHOICES
from burnish.proxy.surfaces.deltas import MOST_CALLS
from burnish.proxy.surfaces.lenient import MOST_MEMBERS, TooMuch, Undecodable, decode
from burnish.proxy.surfaces.sse import SseParser

MIB = 1024 * 1024


def call(number: int) -> dict:
    return {"index": number, "id": f"call_{number}", "function": {"name": "f", "arguments": "{}"}}


def chunk(*choices: dict) -> bytes:
    return b"data: " + orjson.dumps({"choices": choices}) + b"\n\n"


def calls(count: int) -> bytes:
    return b"".join(chunk({"index": 0, "delta": {"tool_calls": [call(at)]}}) for at in range(count))


def read(body: bytes, encoding: str = ""):
    return SURFACES["chat"].reassemble([body], "text/event-stream", encoding)


def test_more_calls_or_choices_than_any_model_makes_are_not_read():
    whole = read(calls(MOST_CALLS))
    assert whole.message is not None
    assert len(whole.message["tool_calls"]) == MOST_CALLS
    too_many = read(calls(MOST_CALLS + 1))
    assert (too_many.message, too_many.readable) == (None, False)
    assert too_many.error == f"more than {MOST_CALLS} tool calls in one answer"
    choices = [{"index": at, "delta": {"content": "hi"}} for at in range(MOST_CHOICES + 1)]
    assert read(chunk(*choices)).error == f"more than {MOST_CHOICES} choices in one answer"


def test_gzip_may_have_many_members_but_not_any_number():
    members = [gzip.compress(b"%d " % at) for at in range(MOST_MEMBERS)]
    assert len(decode(b"".join(members), "gzip").split()) == MOST_MEMBERS
    long = gzip.compress(bytes(3 * MIB)) + gzip.compress(b"end")
    assert decode(long, "gzip") == bytes(3 * MIB) + b"end"
    with pytest.raises(Undecodable, match=f"more than {MOST_MEMBERS} members"):
        decode(b"".join([*members, gzip.compress(b"x")]), "gzip")


def test_an_event_has_a_limit_while_it_arrives():
    parser = SseParser(event_limit=1000)
    assert len(parser.feed(b"data: " + b"x" * 900 + b"\n\n")) == 1
    for endless in (b"y", b"data: z\n"):
        with pytest.raises(TooMuch, match="an event is longer than 1000 bytes"):
            for _ in range(1001):
                parser.feed(endless)
        parser = SseParser(event_limit=1000)
