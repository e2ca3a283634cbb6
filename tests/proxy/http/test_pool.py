"""The upstream pool before an upstream that speaks HTTP well, badly, in pieces, late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.proxy.http.errors import UpstreamTimeout, UpstreamUnreachable
from burnish.proxy.http.origin import KEEP_ALIVE_S, UpstreamCut
from tests.support.patience import within
from tests.support.raw_server import OK, Answer, get, pool, says, server, speaking

EARLY = [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n"]


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes, bool]:
    """Return a response, its body, and whether the connection may be used again."""
    informational = draw(st.sampled_from(EARLY))
    close = draw(st.booleans())
    headers = b"connection: close\r\n" if close else b""
    body = draw(st.binary(max_size=80))
    match draw(st.sampled_from(["length", "chunks", "end", "none"])):
        case "length":
            headers += b"Content-Length: %d\r\n" % len(body)
            content = body
        case "chunks":
            headers += b"Transfer-Encoding: chunked\r\n"
            pieces = cut(body, draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=4)))
            extension = draw(st.sampled_from([b"", b";a=b"]))
            content = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces if p)
            content += b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n"
        case "end":
            close, content = True, body
        case _:
            return informational + b"HTTP/1.1 204 None\r\n" + headers + b"\r\n", b"", not close
    return informational + b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + content, body, not close


def cut(raw: bytes, places: set[int]) -> list[bytes]:
    return [raw[a:b] for a, b in pairwise([0, *sorted(places), len(raw)])]


@settings(max_examples=40, deadline=None)
@given(answers(), st.data())
async def test_cuts_do_not_change_a_response(case: tuple[bytes, bytes, bool], data: st.DataObject) -> None:
    raw, body, stays = case
    pieces = cut(raw, data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=6)))
    async with server(says(pieces, stays=stays)) as upstream, pool() as opened:
        for _ in range(2):
            assert await get(opened, upstream.url) == (204 if b" 204 " in raw else 200, body)
        assert upstream.connections == (1 if stays else 2)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx-a: 1\r\nX-A: 2\r\ncontent-length: 5\r\n\r\nright",
        b"HTTP/1.1 200 OK\r\nx-a: 1\r\nX-A: 2\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\nri\r\n3;q\r\nght\r\n0\r\nt: u\r\n\r\n",
    ],
    ids=["length", "chunks"],
)
async def test_a_response_cut_at_every_byte(raw: bytes) -> None:
    for at in range(1, len(raw)):
        async with server(says([raw[:at], raw[at:]])) as upstream, pool() as opened:
            with await opened.send("GET", upstream.url, [], None) as response:
                assert response.status == 200
                headers = [header for header in response.headers if header[0] == b"x-a"]
                assert headers == [(b"x-a", b"1"), (b"x-a", b"2")]
                assert await response.whole() == b"right"
            assert await get(opened, upstream.url) == (200, b"right")
            assert upstream.connections == 1


async def test_headers_and_path_go_out_as_they_are() -> None:
    async with server(says(OK)) as upstream, pool() as opened:
        headers = [(b"X-One", b"1"), (b"x-one", b"2 3"), (b"empty", b"")]
        with await opened.send("POST", upstream.url, headers, b"body", path="/a%2Fb?c=%20d") as response:
            assert await response.whole() == b"right"
    authority = upstream.url.removeprefix("http://").encode()
    assert upstream.requests == [
        b"POST /a%2Fb?c=%20d HTTP/1.1\r\nhost: " + authority + b"\r\nX-One: 1\r\nx-one: 2 3\r\nempty: \r\n"
        b"content-length: 4\r\n\r\nbody"
    ]


SPLITTING = [(path, b"c") for path in ("/a b", "/a\r\nx: y", "@evil/a")]
SPLITTING += [("/a", value) for value in (b"b\r\nx: y", b"b\nc", b"b\rc")]


@pytest.mark.parametrize(("path", "header"), SPLITTING)
async def test_what_would_be_another_request_is_refused(path: str, header: bytes) -> None:
    async with server(says(OK)) as upstream, pool() as opened:
        with pytest.raises(ValueError, match=r"line break or a space|begin with a slash"):
            await opened.send("GET", upstream.url, [(b"x", header)], None, path=path)
    assert upstream.requests == []


HOSTILE = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 4\r\n\r\nright",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "huge length": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 5\n\nright",
    "space before the colon": b"HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nright",
    "NUL in a header": b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 5\r\n\r\nright",
    "another protocol": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "nothing": b"",
}


def hostile(raw: bytes, stays: bool) -> Answer:
    """Says this to everybody, but answers a PUT as it should."""

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        fine = request.startswith(b"PUT")
        writer.write(OK if fine else raw)
        await writer.drain()
        return stays or fine

    return answer


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_not_http_is_an_error_and_the_next_request_is_answered(raw: bytes) -> None:
    async with server(hostile(raw, stays=False)) as upstream, pool() as opened:
        with pytest.raises(UpstreamUnreachable, match="broke off before it answered"):
            await get(opened, upstream.url, "POST", b"once")
        assert len(upstream.requests) == 1
        assert await get(opened, upstream.url, "PUT", b"next") == (200, b"right")


INSERTED = [b"\r\n", b"\n", b"\r\n\r\n", b"0\r\n\r\n", b"\0", b": "]


@settings(max_examples=60, deadline=None)
@given(answers(), st.data(), st.booleans())
async def test_the_next_answer_is_right(case: tuple[bytes, bytes, bool], data: st.DataObject, stays: bool):
    """Bytes of a good response changed, left out, doubled: an answer or an error, never one to another request."""
    raw = bytearray(case[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["change", "cut", "double", "insert", "twice"])):
            case "change":
                raw[at] = data.draw(st.integers(0, 255))
            case "cut":
                del raw[at : at + data.draw(st.integers(1, 9))]
            case "double":
                raw[at:at] = raw[at : at + 12]
            case "insert":
                raw[at:at] = data.draw(st.sampled_from(INSERTED))
            case "twice":
                raw += case[0]
        if not raw:
            return

    limits = {"first_byte_timeout_s": within(0.3), "idle_timeout_s": within(0.3)}
    async with server(hostile(bytes(raw), stays)) as upstream, pool(**limits) as opened:
        with suppress(UpstreamUnreachable, UpstreamTimeout, UpstreamCut):
            await get(opened, upstream.url)
        if not stays:
            await upstream.closed.get()
        for _ in range(2):
            assert await get(opened, upstream.url, "PUT", b"next") == (200, b"right")


async def test_a_kept_connection_that_was_closed_meanwhile_is_not_used() -> None:
    async with server(says(OK, stays=False)) as upstream, pool() as opened:
        for _ in range(3):
            assert await get(opened, upstream.url, "POST", b"body") == (200, b"right")
            await upstream.closed.get()
        assert len(upstream.requests) == upstream.connections == 3


@pytest.mark.parametrize(("method", "tries"), [("GET", 2), ("POST", 1)])
async def test_a_kept_connection_that_dies_under_a_request(method: str, tries: int) -> None:
    """Only what may be sent twice is sent again: an engine may have begun to answer a POST."""
    asked = 0

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal asked
        asked += 1
        if asked != 2:
            writer.write(OK)
        return asked != 2

    async with server(answer) as upstream, pool() as opened:
        await get(opened, upstream.url)
        with nullcontext() if method == "GET" else pytest.raises(UpstreamUnreachable):
            assert await get(opened, upstream.url, method, b"once") == (200, b"right")
        assert asked == 1 + tries


async def test_an_old_connection_is_closed_before_the_upstream_would() -> None:
    async with server(says(OK)) as upstream, pool() as opened:
        await get(opened, upstream.url)
        async with asyncio.timeout(within(3 * KEEP_ALIVE_S)):
            await upstream.closed.get()
        assert await get(opened, upstream.url) == (200, b"right")
        assert upstream.connections == 2


async def test_requests_at_once_have_connections_of_their_own_and_later_ones_share_them() -> None:
    async with server(says(OK)) as upstream, pool() as opened:
        for _ in range(3):
            found = await asyncio.gather(*(get(opened, upstream.url) for _ in range(20)))
            assert found == [(200, b"right")] * 20
        assert upstream.connections == 20


async def test_without_reuse_each_request_has_its_own_connection() -> None:
    async with server(says(OK)) as upstream, pool() as opened:
        for _ in range(2):
            with await opened.send("GET", upstream.url, [], None, reuse=False) as response:
                assert await response.whole() == b"right"
        assert upstream.connections == 2
        assert b"connection: close\r\n" in upstream.requests[0]


@pytest.mark.parametrize("takes", [0, 1, 3, 100])
async def test_what_goes_into_a_sink_and_what_is_read_are_the_body_in_its_order(takes: int) -> None:
    """A sink that is full after some parts: what comes then is read again, and the last part always is."""
    body = bytes(range(40))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    found: list[tuple[str, bytes]] = []

    def sink(part: bytes) -> bool:
        found.append(("sink", part))
        return len(found) % (takes + 1) != takes

    async with server(says([head, *(body[at : at + 4] for at in range(0, len(body), 4))])) as upstream:
        async with pool() as opened:
            with await opened.send("GET", upstream.url, [], None) as response:
                while not response.finished:
                    found.append(("read", await response.read(sink)))
            assert await get(opened, upstream.url) == (200, body)
        assert upstream.connections == 1
    assert b"".join(part for _, part in found) == body
    assert found[-1][0] == "read"
    assert [where for where, _ in found].count("sink") >= 3


async def test_what_a_sink_was_given_stays_given_when_the_upstream_breaks_off() -> None:
    given: list[bytes] = []

    def sink(part: bytes) -> bool:
        given.append(part)
        return True

    pieces = [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"abc", b"def"]
    async with server(says(pieces, stays=False)) as upstream, pool() as opened:
        with await opened.send("GET", upstream.url, [], None) as response:
            with pytest.raises(UpstreamCut, match="broke off"):
                await response.read(sink)
    assert b"".join(given) == b"abcdef"


async def test_a_response_that_nobody_reads_on_closes_its_connection() -> None:
    async with server(says([OK[:-2], OK[-2:]])) as upstream, pool() as opened:
        with await opened.send("GET", upstream.url, [], None) as response:
            assert await response.read()
        assert await get(opened, upstream.url) == (200, b"right")
        assert upstream.connections == 2


async def streamed(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


@pytest.mark.parametrize("announced", [True, False])
async def test_a_streamed_body(announced: bool) -> None:
    headers = [(b"content-length", b"5")] if announced else []
    whole = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"abcde" if announced else b"0\r\n\r\n"))
        writer.write(OK)
        await whole.wait()
        writer.close()

    received: list[bytes] = []
    async with speaking(serve) as url, pool() as opened:
        with await opened.send("POST", url, headers, streamed(b"ab", b"", b"cde")) as response:
            assert await response.whole() == b"right"
        whole.set()
    sent = received[0].partition(b"\r\n\r\n")[2]
    assert sent == (b"abcde" if announced else b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")


async def test_a_body_that_fails_fails_the_request() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"a"
        raise ValueError("the client went away")

    async with server(says(b"")) as upstream, pool() as opened:
        with pytest.raises(ValueError, match="went away"):
            await opened.send("POST", upstream.url, [], failing())
