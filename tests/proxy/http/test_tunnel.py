"""Websockets go through as a tunnel of bytes: a real server behind burnish, a real client before it, and raw ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from burnish.app.app import running
from burnish.app.serve import server_for
from burnish.config.config import load_config
from tests.proxy.log.exchanges import until
from tests.support.certificates import authority, server_context
from tests.support.inprocess import run, serving
from tests.support.patience import within
from tests.support.raw_server import Serve, dialled, speaking

PATH = "/v1/realtime?model=gpt-realtime"
HANDSHAKE = (
    b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n\r\n"
) % PATH.encode()
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: any\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n"
)


# -- real ends ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def websockets(
    tmp_path: Path, handler: Callable[[ServerConnection], Awaitable[None]], **flags: Any
) -> AsyncIterator[str]:
    """Burnish before a server of websockets; gives its address."""

    def choose(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return offered[0] if offered else None

    async with serve(handler, "127.0.0.1", 0, max_size=None, select_subprotocol=choose) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with serving(tmp_path, upstream=f"http://127.0.0.1:{port}", **flags) as (url, _):
            yield url


def client(url: str, **more: Any) -> connect:
    return connect(url.replace("http", "ws", 1) + PATH, proxy=None, max_size=None, **more)


async def echo(server: ServerConnection) -> None:
    async for message in server:
        await server.send(message)


async def passed(url: str, count: int = 1, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """What was logged, as soon as it is so much."""
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=within(60)) as http,
        asyncio.timeout(within(30)),
    ):
        while len(found := (await http.get("/burnish/passthrough")).json()["data"]) < count:
            await asyncio.sleep(0.01)
    return list(found)


async def test_frames_large_and_small_go_both_ways(tmp_path: Path) -> None:
    large = os.urandom(8 * 2**20)
    async with websockets(tmp_path, echo) as url:
        async with client(url, compression=None) as ours:
            await ours.send(large)
            assert await ours.recv() == large

            async def say() -> None:
                for number in range(3000):
                    await ours.send(str(number))

            saying = asyncio.ensure_future(say())
            assert [await ours.recv() for _ in range(3000)] == [str(number) for number in range(3000)]
            await saying
            await asyncio.wait_for(await ours.ping(), within(30))
        async with client(url) as compressed:
            await compressed.send("again and " * 1000)
            assert await compressed.recv() == "again and " * 1000
        first, second = reversed(await passed(url, 2))
    assert (first["path"], first["model"], first["status"]) == ("/v1/realtime", "gpt-realtime", 101)
    assert (first["outcome"], first["error"]) == ("complete", None)
    assert 8 * 2**20 < first["request_bytes"] < 9 * 2**20
    assert 8 * 2**20 < first["response_bytes"] < 9 * 2**20
    assert 0 < second["request_bytes"] < 1000


async def test_the_sdk_of_openai_talks_in_real_time(tmp_path: Path) -> None:
    async def server(its: ServerConnection) -> None:
        asked = json.loads(await its.recv())
        item = {"id": "i1", "type": "message", "role": "user", "content": asked["item"]["content"]}
        await its.send(json.dumps({"type": "conversation.item.added", "event_id": "e1", "item": item}))

    async with websockets(tmp_path, server) as url:
        ws = url.replace("http", "ws", 1) + "/v1"
        async with AsyncOpenAI(base_url=url + "/v1", websocket_base_url=ws, api_key="sk-caller") as openai:
            async with openai.realtime.connect(model="gpt-realtime") as connection:
                content: Any = [{"type": "input_text", "text": "Hi"}]
                said: Any = {"type": "message", "role": "user", "content": content}
                await connection.conversation.item.create(item=said)
                event = await connection.recv()
        assert event.type == "conversation.item.added"
        assert event.item.content[0].text == "Hi"
        (record,) = await passed(url)
    assert (record["path"], record["model"]) == ("/v1/realtime", "gpt-realtime")


async def test_the_handshake_takes_along_what_any_request_does(tmp_path: Path) -> None:
    got: list[tuple[Any, str | None]] = []

    async def server(its: ServerConnection) -> None:
        assert its.request is not None
        got.append((its.request, its.subprotocol))

    asked = {"X-Custom": "1", "X-Burnish-User": "ann", "Authorization": "Bearer our"}
    flags = {"api_key": "our", "upstream_api_key": "theirs"}
    async with websockets(tmp_path, server, **flags) as url:
        async with client(url, additional_headers=asked, subprotocols=[Subprotocol("realtime")]) as ours:
            assert ours.subprotocol == "realtime" and ours.response is not None
            assert "x-burnish-completion-id" not in ours.response.headers
        with pytest.raises(InvalidStatus) as refused:
            async with client(url):
                pass
        assert refused.value.response.status_code == 401
        (record,) = await passed(url, headers={"x-burnish-key": "our"})
    ((request, subprotocol),) = got
    assert request.path == PATH
    assert request.headers["host"].startswith("127.0.0.1:")
    assert request.headers["host"] != url.removeprefix("http://")
    assert request.headers.get_all("authorization") == ["Bearer theirs"]
    assert (request.headers["x-custom"], subprotocol) == ("1", "realtime")
    assert "x-burnish-user" not in request.headers
    assert record["caller"] == "ann"


@pytest.mark.parametrize("header", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_a_page_of_another_site_opens_none(tmp_path: Path, header: dict[str, str]) -> None:
    async with websockets(tmp_path, echo) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with client(url, additional_headers=header):
                pass
        assert refused.value.response.status_code == 403
        assert await passed(url, 0) == []


async def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority(tmp_path)))
    async with serve(echo, "127.0.0.1", 0, ssl=server_context(tmp_path), max_size=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with serving(tmp_path, upstream=f"https://localhost:{port}") as (url, _):
            async with client(url, compression=None) as ours:
                large = os.urandom(4 * 2**20)
                await ours.send(large)
                assert await ours.recv() == large
                await ours.close(4001, "bye")
            assert ours.close_code == 4001
            assert [each["outcome"] for each in await passed(url)] == ["complete"]


async def test_stopping_burnish_does_not_wait_for_a_websocket(tmp_path: Path) -> None:
    async with serve(echo, "127.0.0.1", 0) as upstream:
        port = next(iter(upstream.sockets)).getsockname()[1]
        settings = {"upstream": f"http://127.0.0.1:{port}", "data_dir": tmp_path / "data", "engine": "none"}
        config = load_config(settings)
        async with running(config) as app, asyncio.timeout(within(30)):
            server = server_for(app, config)
            async with run(server) as url:
                server.config.timeout_graceful_shutdown = None  # whatever it waits for, it waits for ever
                ours: ClientConnection = await client(url)
    with pytest.raises(ConnectionClosed):
        await ours.recv()


# -- raw ends ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def raw(tmp_path: Path, said: bytes, talk: Serve | None = None, **flags: Any) -> AsyncIterator[str]:
    """Burnish before a server that reads a handshake, says one thing and then does as it likes."""
    talks: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())  # type: ignore[arg-type]
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        try:
            if talk:
                await talk(reader, writer)
        finally:
            writer.close()

    try:
        async with speaking(serve_one) as upstream, serving(tmp_path, upstream=upstream, **flags) as (url, _):
            yield url
    finally:
        for task in talks:
            task.cancel()


async def test_its_agreement_comes_as_it_is_and_what_came_early_is_not_lost(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(9))

    early = HANDSHAKE + b"as"
    async with raw(tmp_path, AGREED + b"early", talk) as url, dialled(url, early) as (reader, writer):
        writer.write(b" early ")
        assert await reader.read(-1) == AGREED + b"early" + b"as early "
        writer.close()
        (record,) = await passed(url)
    assert (record["request_bytes"], record["response_bytes"]) == (9, 14)


@pytest.mark.parametrize("closes", ["client", "upstream"])
async def test_a_side_that_has_sent_everything_still_receives(tmp_path: Path, closes: str) -> None:
    """The other side hears of the half-close, and answers after it, in two pieces."""
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def close_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all")
        writer.write_eof()
        received.set_result(await reader.read(-1))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in (b"you sent ", await reader.read(-1)):
            writer.write(part)
            await writer.drain()
        writer.write_eof()

    ours, theirs = (close_first, answer) if closes == "client" else (answer, close_first)
    async with raw(tmp_path, AGREED, theirs) as url, dialled(url, HANDSHAKE) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await ours(reader, writer)
        assert await asyncio.wait_for(received, within(30)) == b"you sent all"


@pytest.mark.parametrize("slow", ["client", "upstream"])
async def test_who_does_not_read_holds_up_the_other(tmp_path: Path, slow: str) -> None:
    sent, done = 0, asyncio.Event()

    async def pour(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"x" * 2**16)
            await writer.drain()
            sent += 2**16

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (pour(writer) if slow == "client" else done.wait())

    async with raw(tmp_path, AGREED, talk) as url, dialled(url, HANDSHAKE) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        pouring = asyncio.ensure_future(pour(writer) if slow == "upstream" else done.wait())
        await until(lambda: sent)
        before, most = 0, 32 * 2**20  # what the kernel holds for four sockets
        while before < sent < most:  # until nobody takes any more
            before = sent
            await asyncio.sleep(0.5)
        pouring.cancel()
        assert sent < most


REFUSAL = b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 4\r\n\r\nwho?"


async def test_another_answer_is_passed_on(tmp_path: Path) -> None:
    async with raw(tmp_path, REFUSAL) as url, dialled(url, HANDSHAKE) as (reader, _):
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        (record,) = await passed(url)
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nwww-authenticate: Bearer\r\n" in head.lower().replace(b"bearer", b"Bearer")
    assert body == b"who?"
    assert (record["status"], record["outcome"], record["response_bytes"]) == (401, "complete", 4)


@pytest.mark.parametrize(
    ("upstream", "words"),
    [("http://127.0.0.1:9", b"Is it running?"), ("http://model.example:8000", b"NO_PROXY")],
    ids=["nobody listens", "behind an HTTP proxy"],
)
async def test_no_answer_at_all_is_an_error_of_burnish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upstream: str, words: bytes
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with serving(tmp_path, upstream=upstream) as (url, _):
        async with dialled(url, HANDSHAKE) as (reader, _):
            said = await reader.read(-1)
        (record,) = await passed(url)
    assert said.startswith(b"HTTP/1.1 502 ")
    assert words in said
    assert (record["outcome"], record["status"]) == ("failed", None)


async def test_nobody_is_told_to_switch_who_did_not_ask(tmp_path: Path) -> None:
    async with raw(tmp_path, AGREED + b"smuggled") as url, httpx.AsyncClient(timeout=within(60)) as http:
        answer = await http.get(url + PATH)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


@pytest.mark.parametrize("breaks", ["client", "upstream"])
async def test_a_side_that_breaks_off_ends_it(tmp_path: Path, breaks: str) -> None:
    ends: asyncio.Queue[bytes] = asyncio.Queue()

    async def breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(5) == b"hello"
        writer.transport.abort()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        with suppress(ConnectionError):
            ends.put_nowait(await reader.read(-1))

    ours, theirs = (breaks_off, listens) if breaks == "client" else (listens, breaks_off)
    async with raw(tmp_path, AGREED, theirs) as url:
        async with dialled(url, HANDSHAKE) as (reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await ours(reader, writer)
            assert await asyncio.wait_for(ends.get(), within(30)) == b""
        (record,) = await passed(url)
    assert record["request_bytes" if breaks == "upstream" else "response_bytes"] >= 5


async def test_one_on_which_nobody_says_anything_is_closed(tmp_path: Path) -> None:
    idle_s, clock, talked = within(1), asyncio.get_running_loop().time, 0
    silent_since = 0.0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal talked, silent_since
        enough = clock() + 1.5 * idle_s
        while clock() < enough:
            silent_since = clock()
            writer.write(b"still here")
            talked += 1
            await asyncio.sleep(0.05)
        await reader.read(-1)

    async with raw(tmp_path, AGREED, talk, idle_timeout_s=idle_s) as url:
        async with dialled(url, HANDSHAKE) as (reader, _):
            said = await reader.read(-1)
        assert clock() - silent_since >= idle_s
        (record,) = await passed(url)
    assert said == AGREED + b"still here" * talked
    assert (record["outcome"], "idle_timeout_s" in record["error"]) == ("cut", True)


async def test_it_is_one_of_the_connections_that_an_upstream_is_given(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    flags = {"max_connections": 1, "queue_timeout_s": 0.2}
    async with raw(tmp_path, AGREED, talk, **flags) as url, httpx.AsyncClient(timeout=within(60)) as http:
        async with dialled(url, HANDSHAKE) as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            assert (await http.get(f"{url}/v1/any")).status_code == 503
            async with dialled(url, HANDSHAKE) as (refused, _):
                assert (await refused.readline()).startswith(b"HTTP/1.1 503 ")
        await passed(url, 2)  # so its place is free again
        async with dialled(url, HANDSHAKE) as (reader, _):
            assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("pieces", [1, 7])
async def test_one_that_waits_behind_another_request(tmp_path: Path, pieces: int) -> None:
    """Sent ahead, in one piece or in many."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nfirst"
    async with raw(tmp_path, answer) as url:
        ahead = b"GET /v1/first HTTP/1.1\r\nHost: localhost\r\n\r\n" + HANDSHAKE
        async with dialled(url) as (reader, writer):
            for at in range(0, len(ahead), len(ahead) // pieces + 1):
                writer.write(ahead[at : at + len(ahead) // pieces + 1])
                await asyncio.sleep(0.01)
            said = await reader.read(-1)
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert said.count(b"first") == 2
