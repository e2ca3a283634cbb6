"""What goes through burnish arrives as it was sent, in both directions: to the byte, and chunk by chunk."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.exchanging import (
    Asked,
    Got,
    Headers,
    Planned,
    Stage,
    chunks,
    end_to_end,
    framings,
    json_values,
    lowered,
    names,
    read_chunk,
    read_head,
    request_bytes,
    request_headers,
    response_headers,
    stage,
    values,
    written,
)

CHAT = "/v1/chat/completions"
OURS = [b"x-burnish-completion-id"]
LEAVES_S = 1.0
"""How soon an upstream must notice that the client has gone; 100 ms would do, but not on a busy machine."""

# A "?" with nothing behind it is lost: ASGI has no place for it.
targets = st.builds(
    "/other/x{}{}".format,
    st.text("abcXYZ019-._~!$&'()*+,;=:@%/", max_size=12).map(
        lambda text: text.replace("%", "%2Fa").replace("/.", "/")
    ),
    st.sampled_from(["", "?a=%2Fb&c", "?q=%C3%BC+x&q=", "?//../x"]),
)
statuses = st.sampled_from(
    [*range(200, 209), 226, *range(300, 309), *range(400, 432), 451, 499, *range(500, 512), 520, 599]
)
planned = st.builds(Planned, statuses, response_headers, chunks, framings)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "x"])},
    optional={"content": json_values, "x": json_values},
)
completions = written(
    st.fixed_dictionaries(
        {"messages": st.lists(messages, max_size=3)},
        optional={
            "model": st.text(max_size=5),
            "stream": st.booleans(),
            "tools": json_values,
            "x": json_values,
        },
    )
)
unknown = st.builds(
    Asked,
    st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    targets,
    request_headers,
    st.binary(max_size=99),
    st.booleans(),
)
bodiless = st.builds(Asked, st.sampled_from(["GET", "HEAD", "OPTIONS"]), targets, request_headers)
completion = st.builds(
    Asked, st.just("POST"), st.just(CHAT), request_headers, completions, chunked=st.booleans()
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("exact")) as made:
        yield made


@settings(max_examples=900)
@given(unknown, planned)
def test_an_unknown_path_goes_through(running: Stage, asked: Asked, planned: Planned) -> None:
    running.check(asked, planned)


@settings(max_examples=300)
@given(bodiless, planned)
def test_requests_without_a_body_go_through(running: Stage, asked: Asked, planned: Planned) -> None:
    running.check(asked, planned)


@settings(max_examples=900)
@given(completion, planned)
def test_a_completion_goes_through(running: Stage, asked: Asked, planned: Planned) -> None:
    running.check(asked, planned, added=OURS)


@settings(max_examples=100)
@given(st.sampled_from([204, 304]), st.sampled_from([CHAT, "/other"]), response_headers)
def test_answers_without_a_body_go_through(
    running: Stage, status: int, target: str, headers: Headers
) -> None:
    added = OURS if target == CHAT else []
    running.check(Asked("POST", target, body=b'{"messages":[]}'), Planned(status, headers), added=added)


@settings(max_examples=100)
@given(st.binary(max_size=200), st.sampled_from(["gzip", "br", "zstd", "deflate", "x"]), st.integers(1, 40))
def test_a_compressed_body_stays_as_it_is(running: Stage, text: bytes, encoding: str, size: int) -> None:
    body = gzip.compress(text) if encoding == "gzip" else text
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    headers = [(b"Content-Type", b"application/json"), (b"Content-Encoding", encoding.encode())]
    for target, added in ((CHAT, OURS), ("/other", [])):
        running.check(
            Asked("POST", target, body=b'{"messages":[]}'), Planned(200, headers, pieces), added=added
        )


HOP = [
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Authorization", b"Basic eDp5"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"TE", b"trailers"),
    (b"Trailer", b"X-Sum"),
    (b"Upgrade", b"h2c"),
]


@settings(max_examples=200)
@given(
    st.sampled_from([CHAT, "/other"]),
    st.tuples(request_headers, response_headers),
    st.tuples(names, values),
    st.lists(st.sampled_from(HOP)),
)
def test_what_belongs_to_one_hop_ends_there_and_the_rest_is_kept(
    running: Stage, target: str, headers: tuple[Headers, Headers], named: tuple[bytes, bytes], hop: Headers
) -> None:
    """Also what ``Connection`` names, and what speaks to burnish."""
    name = named[0].lower()
    asks, answers = ([header for header in each if header[0].lower() != name] for each in headers)
    hop = [*hop, named, (name, b"again"), (b"Connection", b"keep-alive, " + name)]
    to_us = (b"X-Burnish-Session", b"s1")
    received, got = running.play(
        Asked("POST", target, asks, b'{"messages":[]}', hop=[*hop, to_us]),
        Planned(200, answers, [b"{}"], hop=hop),
    )
    assert end_to_end(received) == lowered(asks)
    assert got.without(*OURS) == lowered(answers)


# Connections


async def ask(running: Stage, *asked: Asked) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send requests one directly after the other."""
    reader, writer = await running.connect()
    writer.write(b"".join(request_bytes(each, running.url) for each in asked))
    return reader, writer


async def whole(running: Stage, reader: asyncio.StreamReader) -> Got:
    """Read an answer that comes in chunks."""
    got = await read_head(reader)
    while chunk := await read_chunk(reader):
        got.chunks.append(chunk)
        running.go_on()
    return got


@pytest.mark.parametrize("target", [CHAT, "/other"])
def test_requests_sent_ahead_are_answered_in_their_order(running: Stage, target: str) -> None:
    async def talk() -> list[Any]:
        asked = [Asked("POST", target, [(b"X-Turn", b"%d" % n)], b'{"messages":[]}') for n in range(4)]
        reader, writer = await ask(running, *asked)
        answers = [await whole(running, reader) for _ in asked]
        writer.close()
        return answers

    running.plan(Planned(200, [(b"X-Answer", b"yes")], [b"one", b"two"]))
    before = len(running.upstream.requests)
    answers = running.run(talk())
    assert [request.header("x-turn") for request in running.upstream.requests[before:]] == [
        "0",
        "1",
        "2",
        "3",
    ]
    assert [each.chunks for each in answers] == [[b"one", b"two"]] * 4


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def half_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


def abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("target", [CHAT, "/other"])
@pytest.mark.parametrize("leave", [close, half_close, abort])
@pytest.mark.parametrize("begun", [True, False])
def test_an_upstream_stops_when_the_client_leaves(
    running: Stage, target: str, leave: Callable[[asyncio.StreamWriter], None], begun: bool
) -> None:
    """One that closes only its own side has left, too: the two look the same from here until it is too late."""

    async def talk() -> float:
        loop = asyncio.get_running_loop()
        seen, gone = len(running.upstream.requests), running.upstream.disconnects
        reader, writer = await ask(running, Asked("POST", target, body=b'{"messages":[]}'))
        if begun:
            await read_head(reader)
            await read_chunk(reader)
        while len(running.upstream.requests) == seen:
            await asyncio.sleep(0.001)
        left = loop.time()
        leave(writer)
        while running.upstream.disconnects == gone:
            await asyncio.sleep(0.001)
        writer.close()
        return loop.time() - left

    # The second chunk waits for the client to go on, which it never does.
    running.plan(Planned(200, [], [b"one", b"two"], delay_s=0 if begun else 60))
    assert running.run(talk()) < LEAVES_S
