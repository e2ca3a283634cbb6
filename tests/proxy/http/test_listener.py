"""Requests are the same however their bytes come, and whatever other protocol they offer to speak."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from starlette.types import Receive, Scope, Send

from burnish.app.serve import server_for
from burnish.config.config import load_config
from burnish.proxy.http.listener import HEAD_LIMIT_BYTES, WRITE
from burnish.proxy.http.tunnel import TUNNEL
from tests.support.exchanging import Asked, Planned, Stage, read_chunk, read_head, request_bytes, stage
from tests.support.inprocess import behind, run, serving
from tests.support.patience import within
from tests.support.raw_server import dialled
from tests.support.upstream import completion, reply

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","messages":[]}'


class Probe:
    """An ASGI application that shows which hooks of uvicorn ran."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.held, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        if scope["path"] == "/hold":
            self.held.set()
            await receive()
            self.left.set()
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if write := scope.get("extensions", {}).get(WRITE):
            write(b"written at once,")
        await send({"type": "http.response.body", "body": b"and sent"})


async def test_uvicorn_still_calls_every_method_that_the_listener_overrides(tmp_path: Path) -> None:
    """Most are private to uvicorn. After a rename nothing would fail but what this test sees."""
    app = Probe()
    config = load_config({"data_dir": tmp_path, "request_timeout_s": within(0.5)})
    server = server_for(app, config, lambda _, error: error.envelope())
    async with run(server) as url, asyncio.timeout(within(30)):

        async def said_to(*pieces: bytes) -> bytes:
            async with dialled(url) as (reader, writer):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                return await reader.read()

        head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        # _start_asgi_task, on_headers_complete: the extension is there, and trailers are not headers.
        pieces = (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nHi\r\n0\r\n", b"X-Trailer: 1\r\n\r\n")
        assert b"\r\nwritten at once,\r\n8\r\nand sent\r\n" in await said_to(head, *pieces)
        assert b"x-trailer" not in dict(app.scopes[-1]["headers"])
        # on_body, data_received: a long body is taken, a long head is not.
        size = 3 * HEAD_LIMIT_BYTES
        long = (b"Content-Length: %d\r\n\r\n" % size, *[bytes(size // 96)] * 96)
        assert (await said_to(head, *long)).startswith(b"HTTP/1.1 200 ")
        assert len(app.bodies[-1]) == size
        too_long = b"X-Long: %b" % bytes([65] * 2 * HEAD_LIMIT_BYTES)
        assert (await said_to(head, too_long)).startswith(b"HTTP/1.1 431 ")
        # connection_made: a client that sends nothing is not waited for.
        assert await said_to() == b""
        # connection_lost: the request under way learns that the client left, though another one was sent after it.
        request = b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with dialled(url, 2 * request):
            await app.held.wait()
        await app.left.wait()
        # _should_upgrade: a websocket gets a tunnel, any other offer is passed over.
        offer = b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n"
        for protocol, extension in ((b"h2c", WRITE), (b"websocket", TUNNEL)):
            async with dialled(url, offer % protocol) as (reader, _):
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
            assert extension in app.scopes[-1]["extensions"]


async def two(running: Stage, content: bytes, at: int) -> list[bytes]:
    reader, writer = await running.connect()
    writer.write(content[:at])
    await asyncio.sleep(0.002)  # so that they come as two
    writer.write(content[at:])
    found = []
    for _ in range(2):
        await read_head(reader)
        body = b""
        while chunk := await read_chunk(reader):
            body += chunk
            running.go_on()
        found.append(body)
    writer.close()
    return found


@pytest.mark.parametrize("target", [CHAT, "/other"])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_request_sent_ahead_may_be_split_at_any_byte(tmp_path: Path, target: str, chunked: bool) -> None:
    with stage(tmp_path) as running:
        chunks = [BODY] if chunked else None
        turns = (Asked("POST", target, [(b"X-Turn", turn)], BODY, chunks) for turn in (b"1", b"2"))
        first, second = (request_bytes(turn, running.url) for turn in turns)
        for at in range(len(first), len(first + second)):
            running.plan(Planned(200, [], [b"ans", b"wer"]))
            before = len(running.upstream.requests)
            assert running.run(two(running, first + second, at)) == [b"answer"] * 2
            got = running.upstream.requests[before:]
            assert [(each.header("x-turn"), each.body) for each in got] == [("1", BODY), ("2", BODY)]


OTHER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_request_that_offers_another_protocol_is_one_like_any(
    tmp_path: Path, pieces: int, chunked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's HTTP client offers HTTP/2 with its first request, which may have a body."""
    body = orjson.dumps({"model": "mock", "messages": [{"role": "user", "content": "Hi"}]})
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    length = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(body)
    one = b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b%b\r\n%b" % (CHAT.encode(), OTHER, length, framed)
    async with behind(tmp_path, reply(completion())) as (http, server), dialled(str(http.base_url)) as ends:
        reader, writer = ends
        said = 3 * one  # two of them sent ahead
        for at in range(0, len(said), len(said) // pieces + 1):
            writer.write(said[at : at + len(said) // pieces + 1])
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(len(completion())) == completion()
    assert [each.body for each in server.requests] == [body] * 3
    names = {name.lower() for each in server.requests for name, _ in each.headers}
    assert not names & {"upgrade", "http2-settings"}
    assert not caplog.records


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
async def test_an_offer_that_cannot_be_read_is_refused(
    tmp_path: Path, protocol: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    offer = b"GET /\xff HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % protocol
    async with serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _), dialled(url, offer) as ends:
        reader, _ = ends
        assert (await reader.read(-1)).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


async def test_a_stop_answers_a_request_that_has_begun_to_come_on_a_kept_connection(tmp_path: Path) -> None:
    server = server_for(Probe(), load_config({"data_dir": tmp_path}), lambda _, error: error.envelope())
    request = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with run(server) as url, asyncio.timeout(within(30)), dialled(url, request) as (reader, writer):
        assert (await read_head(reader)).status == 200
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(request[:9])
        await writer.drain()
        server.should_exit = True
        while server.servers[0].is_serving():
            await asyncio.sleep(0.01)
        writer.write(request[9:])
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer
    assert answer.endswith(b"and sent\r\n0\r\n\r\n")


async def test_a_thousand_offers_at_once_are_answered(tmp_path: Path) -> None:
    offers = 1000 * (b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % OTHER)
    async with behind(tmp_path, reply(b"fine")) as (http, _):
        async with dialled(str(http.base_url), offers) as (reader, _):
            for _ in range(1000):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                await reader.readexactly(4)
