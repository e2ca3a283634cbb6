"""One connection before an upstream that fills memory, wastes time, or has its bytes taken for another answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from burnish.proxy.http.connection import HEAD_LIMIT_BYTES
from burnish.proxy.http.errors import UpstreamUnreachable
from burnish.proxy.http.origin import UpstreamCut
from tests.support.patience import within
from tests.support.raw_server import OK, Answer, get, pool, says, server, speaking

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n"


def begins_with(head: bytes, then: bytes) -> Answer:
    """Say one thing, then another again and again for as long as anybody listens."""

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        while not writer.is_closing():
            writer.write(then)
            await writer.drain()
            await asyncio.sleep(0)
        return False

    return answer


@pytest.mark.parametrize(
    ("head", "then"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nx-a: ", b"b" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 10),
        (b"", b"\r\n" * 500),
    ],
    ids=["headers", "a header", "1xx", "empty lines"],
)
async def test_a_head_without_end_is_refused(head: bytes, then: bytes) -> None:
    async with server(begins_with(head, then)) as upstream, pool() as opened:
        with pytest.raises(UpstreamUnreachable, match=f"more than {HEAD_LIMIT_BYTES} bytes"):
            await get(opened, upstream.url, "POST", b"body")


@pytest.mark.parametrize(
    ("head", "then"),
    [
        (CHUNKED + b"4;", b"a=b;" * 250),
        (CHUNKED + b"0\r\n", b"x-trailer: 1\r\n" * 100),
        (CHUNKED + b"0\r\nx-trailer: ", b"1" * 1000),
    ],
    ids=["chunk extension", "trailers", "a trailer"],
)
async def test_framing_without_end_is_a_cut(head: bytes, then: bytes) -> None:
    async with server(begins_with(head, then)) as upstream, pool() as opened:
        with await opened.send("POST", upstream.url, [], b"body") as response:
            assert await response.read() == b"four"
            with pytest.raises(UpstreamCut, match=f"more than {HEAD_LIMIT_BYTES} bytes"):
                await response.whole()


async def test_a_long_stream_in_small_chunks_is_none_of_that() -> None:
    """Framing that comes by itself, as some servers send it: more of it than the limit, but a body in between."""
    pieces = [CHUNKED, *(50 * (b"1;" + b"a" * 2000 + b"\r\n", b"x\r\n"))]
    async with server(says([*pieces, b"0\r\n\r\n"])) as upstream, pool() as opened:
        assert await get(opened, upstream.url) == (200, b"four" + 50 * b"x")


@pytest.mark.parametrize("status", [0, 99, 101, 600, 999])
async def test_a_status_that_is_none(status: int) -> None:
    async with server(says(OK.replace(b"200", b"%03d" % status))) as upstream, pool() as opened:
        with pytest.raises(UpstreamUnreachable, match=f"status {status}"):
            await get(opened, upstream.url, "POST", b"body")


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"304 Not Modified"])
async def test_an_answer_without_a_body_may_have_the_length_of_one(method: str, status: bytes) -> None:
    length = b"9" if method == "HEAD" or not status.startswith(b"200") else b"0"
    head = b"HTTP/1.1 %b\r\ncontent-length: %b\r\n\r\n" % (status, length)
    async with server(says(head)) as upstream, pool() as opened:
        for _ in range(2):
            assert await get(opened, upstream.url, method) == (int(status[:3]), b"")
        assert upstream.connections == 1


@pytest.mark.parametrize("answer", [OK, b"HTTP/1.1 204 None\r\n\r\n"], ids=["body", "no body"])
@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\n\r\n", b"garbage"])
async def test_bytes_after_the_end_end_the_connection_not_the_answer(answer: bytes, more: bytes) -> None:
    async with server(says(answer + more, OK)) as upstream, pool() as opened:
        assert (await get(opened, upstream.url))[0] == int(answer[9:12])
        assert await get(opened, upstream.url, "POST", b"next") == (200, b"right")
        assert upstream.connections == 2


@contextmanager
def blocking_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server in a thread of its own, which goes on while the loop does not."""

    def accept() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted, suppress(ConnectionError):  # a client that closes on what it has not read resets
                serve(accepted)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(within(10))


async def test_what_was_said_before_the_request_is_not_its_answer() -> None:
    """A 408 for an idle connection, say, which lies in the kernel when the next request takes the connection."""
    first = True
    read, said = threading.Event(), threading.Event()

    def serve(accepted: socket.socket) -> None:
        nonlocal first
        accepted.recv(2**16)
        accepted.sendall(OK)
        if first:
            first = False
            read.wait(within(30))
            accepted.sendall(b"HTTP/1.1 408 Too Late\r\ncontent-length: 5\r\n\r\nwrong")
            said.set()
            accepted.settimeout(within(30))
            accepted.recv(2**16)

    with blocking_server(serve) as url:
        async with pool() as opened:
            with await opened.send("GET", url, [], None) as response:
                assert await response.read() == b"right"
                read.set()
                assert said.wait(within(30))  # in the loop, which must not see it
            assert await get(opened, url, "POST", b"next") == (200, b"right")


UNASKED = {
    "another answer": OK.replace(b"right", b"wrong"),
    "a timeout": b"HTTP/1.1 408 Too Late\r\ncontent-length: 5\r\n\r\nwrong",
    "the beginning of one": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwr",
    "half a head": b"HTTP/1.1 200 OK\r\nx-a: ", "an early hint": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
    "no body": b"HTTP/1.1 204 None\r\n\r\n", "a last chunk": b"0\r\n\r\n", "an empty line": b"\r\n", "a byte": b"\0",
    "TLS": b"\x15\x03\x03\0\x02\x02\x46",
}  # fmt: skip


@pytest.mark.parametrize("said", UNASKED.values(), ids=UNASKED)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_is_said_on_an_idle_connection_is_nobodys_answer(said: bytes, method: str) -> None:
    kept: list[asyncio.StreamWriter] = []

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        kept.append(writer)
        writer.write(OK)
        return True

    async with server(answer) as upstream, pool() as opened:
        assert await get(opened, upstream.url) == (200, b"right")
        kept[0].write(said)
        async with asyncio.timeout(within(30)):
            await upstream.closed.get()  # by us: nobody asked
        assert await get(opened, upstream.url, method, b"next") == (200, b"right")
        assert upstream.connections == 2


async def test_after_an_early_answer_nothing_of_that_request_meets_the_next() -> None:
    """An upstream that answers at once and takes the rest of the body for a request would mix up all answers."""
    body = b"x" * 32 * 2**20 + b"POST /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
    heads: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        await ended.wait()
        writer.close()

    async with speaking(serve) as url, pool() as opened:
        assert await get(opened, url, "POST", body) == (200, b"right")
        assert await get(opened, url) == (200, b"right")
        ended.set()
    assert [head.split(b" ")[0] for head in heads] == [b"POST", b"GET"], "each on its own connection"


async def test_an_upstream_that_hangs_up_half_way_into_the_request_fails_it_at_once() -> None:
    """It says that it is done, but takes nothing more: a body that does not get through must not hold the request."""

    def serve(accepted: socket.socket) -> None:
        accepted.recv(100)
        accepted.shutdown(socket.SHUT_WR)
        ended.wait(within(30))

    ended = threading.Event()
    with blocking_server(serve) as url:
        async with pool() as opened:
            with pytest.raises(UpstreamUnreachable, match="closed the connection"):
                async with asyncio.timeout(within(20)):
                    await get(opened, url, "POST", b"x" * 32 * 2**20)
        ended.set()


async def slow_body() -> AsyncIterator[bytes]:
    for part in (b"ab", b"cd"):
        await asyncio.sleep(0)
        yield part


@pytest.mark.parametrize("streamed", [False, True], ids=["bytes", "streamed"])
async def test_a_request_that_is_cancelled_at_any_step_leaves_nothing_behind(streamed: bool) -> None:
    """With room for one request, whatever is not given back holds up the next for ever."""

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        for piece in (OK[:20], OK[20:-3], OK[-3:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return True

    async def ask() -> tuple[int, bytes]:
        headers, body = ([(b"content-length", b"4")], slow_body()) if streamed else ([], b"abcd")
        with await opened.send("POST", upstream.url, headers, body) as response:
            return response.status, await response.whole()

    async with server(answer) as upstream, pool(max_connections=1, queue_timeout_s=within(5)) as opened:
        steps, cancelled = 0, True
        while cancelled:
            asking = asyncio.ensure_future(ask())
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled = asking.cancel()
            await asyncio.wait([asking])
            assert await ask() == (200, b"right")
            steps += 1
        assert steps > 3
