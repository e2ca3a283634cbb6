"""Whatever an upstream does wrong, the client learns what the docs say, the log has it, and nobody else notices.

Every test is a row of docs/faults.md. On uvloop, as the product runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from burnish.proxy.http.connection import HIGH_WATER_BYTES
from burnish.proxy.http.listener import HEAD_LIMIT_BYTES
from tests.proxy.log.exchanges import until
from tests.support.inprocess import calling, logged
from tests.support.patience import within
from tests.support.raw_server import Answer, Server, dialled, says, server, speaking
from tests.support.upstream import completion

PATH = "/v1/chat/completions"
FINE = completion("Fine.")
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


def answer_of(status: bytes, content: bytes, length: int | None = None) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(content) if length is None else length) + content


@dataclass
class World:
    http: httpx.AsyncClient
    upstream: Server

    async def ask(self, text: str = "fault") -> httpx.Response:
        body = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": text}]}
        return await self.http.post(PATH, json=body)

    async def records(self) -> dict[str, dict[str, Any]]:
        """The log: by what was asked, the latest record. (The healthy ones alone may fill many a page.)"""
        listed = (await self.http.get("/burnish/completions?limit=1000")).json()["data"]
        latest = {each["prompt"]: each["id"] for each in listed[::-1]}
        shown = {text: await self.http.get(f"/burnish/completions/{name}") for text, name in latest.items()}
        return {text: answer.json() for text, answer in shown.items()}

    async def healthy(self) -> None:
        """Somebody else's request is answered, whatever others wait for."""
        async with asyncio.timeout(within(5)):
            answer = await self.ask("healthy")
        assert answer.content == FINE


@asynccontextmanager
async def world(tmp_path: Path, fault: Answer | dict[str, Answer], **flags: Any) -> AsyncIterator[World]:
    """A burnish before an upstream that answers well whoever says "healthy", and does something wrong to all others.

    ``fault``: one, or several by what is said.
    """

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if b"healthy" in request:
            writer.write(answer_of(b"200 OK", FINE))
            return True
        faults = fault if isinstance(fault, dict) else {"": fault}
        said = next(each for name, each in faults.items() if not name or f'"{name}"'.encode() in request)
        return await said(request, writer)

    async with server(answer) as upstream, calling(tmp_path, upstream=upstream.url, **flags) as http:
        yield World(http, upstream)


async def meanwhile(world: World, under_way: Awaitable[Any]) -> Any:
    """Await something while others go on being answered."""
    task = asyncio.ensure_future(under_way)
    await world.healthy()
    while not task.done():
        await world.healthy()
        await asyncio.sleep(within(0.05))
    return task.result()


# -- the upstream ------------------------------------------------------------------------------------------------------


def resets(*said: bytes) -> Answer:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        for part in said:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.transport.abort()
        return False

    return answer


def silent(*said: bytes) -> Answer:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        for part in said:
            writer.write(part)
        return bool(await asyncio.Event().wait())

    return answer


async def babbles(request: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(STREAM)
    while not writer.is_closing():
        writer.write(CHUNK)
        await asyncio.sleep(0.02)
    return False


NO_ANSWER = {
    "dies": (resets(), 502, "broke off before it answered"),
    "hangs up": (says(b"", stays=False), 502, "broke off before it answered"),
    "never answers": (silent(), 504, "did not begin to answer within"),
    "half a head": (silent(b"HTTP/1.1 200 OK\r\nx: "), 504, "did not begin"),
    "no HTTP": (says(b"SSH-2.0-OpenSSH\r\n"), 502, "not HTTP"),
    "two lengths": (says(answer_of(b"200 OK\r\ncontent-length: 3", b"four")), 502, "not HTTP"),
    "endless header": (says(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2**20), 502, "more than 65536 bytes"),
    "status 999": (says(answer_of(b"999 No", b"four")), 502, "status 999"),
}


async def test_upstreams_that_give_no_answer(tmp_path: Path) -> None:
    faults = {name: fault for name, (fault, _, _) in NO_ANSWER.items()}
    async with world(tmp_path, faults, first_byte_timeout_s=within(1)) as here:
        answers = await meanwhile(here, asyncio.gather(*map(here.ask, faults)))
        records = await here.records()
        for answer, (name, (_, status, words)) in zip(answers, NO_ANSWER.items(), strict=True):
            assert answer.status_code == status, name
            assert words in answer.json()["error"]["message"], name
            record = records[name]
            assert record["id"] == answer.headers["x-burnish-completion-id"], name
            assert (record["outcome"], record["status"]) == ("failed", None), name
            assert words in record["error"], name
        await here.healthy()


HALF_AN_ANSWER = {
    "dies": (resets(STREAM + CHUNK), "broke off"),
    "hangs up": (says([STREAM, CHUNK], stays=False), "broke off"),
    "bad chunk": (silent(STREAM + CHUNK, b"zz\r\n"), "not HTTP"),
    "chunk without its end": (silent(STREAM + CHUNK[:-2] + b"5\r\n"), "not HTTP"),
    "half a chunk": (says([STREAM, CHUNK[:-9]], stays=False), "broke off"),
    "too short": (says(answer_of(b"200 OK", b"half", length=9), stays=False), "broke off"),
    "falls silent": (silent(STREAM, CHUNK), "fell silent"),
    "trailers without end": (silent(STREAM, CHUNK, b"0\r\n" + b"x: y\r\n" * 2**17), "more than 65536 bytes"),
    "never ends": (babbles, "longer than total_timeout_s"),
}


async def test_upstreams_that_give_half_an_answer_or_take_too_long(tmp_path: Path) -> None:
    faults = {name: fault for name, (fault, _) in HALF_AN_ANSWER.items()} | {"waits": silent()}
    limits = {"idle_timeout_s": within(0.5), "total_timeout_s": within(1.5)}
    async with world(tmp_path, faults, **limits) as here:
        asking = asyncio.gather(*map(here.ask, faults), return_exceptions=True)
        *half, late = await meanwhile(here, asking)
        assert {type(each) for each in half} <= {httpx.RemoteProtocolError, httpx.ReadError}
        records = await here.records()
        for name, (_, words) in HALF_AN_ANSWER.items():
            assert (records[name]["outcome"], records[name]["status"]) == ("cut", 200), name
            assert words in records[name]["error"], name
        assert late.status_code == 504
        assert "total_timeout_s" in late.json()["error"]["message"]
        assert records["waits"]["outcome"] == "failed"
        await here.healthy()


@pytest.mark.parametrize("path", [PATH, "/v1/files"])
async def test_an_upstream_that_answers_before_the_request_ends(tmp_path: Path, path: str) -> None:
    ended = asyncio.Event()
    refusal = answer_of(b"413 Too Large", b'{"error":{"message":"too large"}}')

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)
        await ended.wait()
        writer.close()

    body = b'{"model":"mock","messages":[{"role":"user","content":"' + b"x" * 2**24 + b'"}]}'
    async with speaking(serve) as upstream, calling(tmp_path, upstream=upstream) as http:
        answer = await http.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["message"]) == (413, "too large")
        if path == PATH:
            (record,) = await logged(http)
            assert (record["outcome"], record["status"]) == ("complete", 413)
        ended.set()


async def test_more_requests_than_the_upstream_is_given(tmp_path: Path) -> None:
    async with world(tmp_path, silent(), max_connections=1, queue_timeout_s=0.2) as here:
        waiting = asyncio.ensure_future(here.ask())
        await here.upstream.asked.wait()
        answer = await here.ask("healthy")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "upstream_busy"
        assert (await here.records())["healthy"]["outcome"] == "failed"
        waiting.cancel()
        await asyncio.wait([waiting])
        async with asyncio.timeout(within(30)):
            await here.upstream.closed.get()  # the place is free again
        await here.healthy()


# -- the client --------------------------------------------------------------------------------------------------------


def request(content: bytes, path: str = PATH, length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length or len(content)}\r\n\r\n"
    return head.encode() + content


FAULT = b'{"model":"mock","stream":true,"messages":[{"role":"user","content":"fault"}]}'


async def test_a_client_that_does_not_read_holds_up_only_its_own_stream(tmp_path: Path) -> None:
    sent, idle_s = 0, within(0.5)

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(STREAM)
        while not writer.is_closing():
            writer.write(b"%x\r\n%b\r\n" % (2**16, b"x" * 2**16))
            await writer.drain()
            sent += 2**16
        return False

    async with world(tmp_path, answer, idle_timeout_s=idle_s) as here:
        async with dialled(str(here.http.base_url), request(FAULT)):
            await until(lambda: sent)
            before = 0
            while sent > before:  # until nobody takes any more
                before = sent
                await meanwhile(here, asyncio.sleep(0.5))
            # What the kernel holds for three sockets, and what we do.
            assert 0 < sent < 32 * 2**20 + 4 * HIGH_WATER_BYTES
            # Longer than an upstream may be silent, which this one is not.
            await meanwhile(here, asyncio.sleep(2 * idle_s))
            assert sent == before
        async with asyncio.timeout(within(30)):
            while (record := (await here.records()).get("fault")) is None:
                await asyncio.sleep(0.02)
        assert record["outcome"] == "cancelled"


async def test_a_client_that_leaves_in_the_middle_of_an_upload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstream sees a request that breaks off, never one that ends there."""
    begun, ended = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"half")
        begun.set()
        ended.set_result(head + await reader.read(-1))
        writer.close()

    async with speaking(serve) as upstream, calling(tmp_path, upstream=upstream) as http:
        head = b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        async with dialled(str(http.base_url), head + b"4\r\nhalf\r\n"):
            await begun.wait()
        async with asyncio.timeout(within(30)):
            got = await ended
    assert got.endswith(b"4\r\nhalf\r\n")
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


HALVES = {
    "of a known length": b"content-length: 50\r\n\r\n{",
    "in chunks": b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    "before the body": b"content-length: 50\r\nexpect: 100-continue\r\n\r\n",
    "in a chunk's head": b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n3",
}
ROUTES = ("/burnish/login", "/v1/feedback", "/burnish/command", "/v1/rollouts", "/burnish/adapters/rollback")


@pytest.mark.parametrize("half", HALVES.values(), ids=list(HALVES))
@pytest.mark.parametrize("closes", ["at once", "its own side"])
async def test_a_client_that_leaves_in_the_middle_of_a_body_for_burnish_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, half: bytes, closes: str
) -> None:
    """A cancelled rating is no fault: nothing is logged."""
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as http:
        for path in ROUTES:
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
            async with dialled(str(http.base_url), head + half) as (reader, writer):
                if closes == "its own side":
                    writer.write_eof()
                    async with asyncio.timeout(within(30)):
                        assert b" 500 " not in await reader.read(-1)
        assert (await http.get("/healthz")).status_code == 200
    assert [each.getMessage() for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []


async def dribble(here: World, opening: bytes, piece: bytes, pause_s: float = 0.02) -> bytes:
    """Send a beginning, then piece after piece until the other side has had enough; return what it says."""
    async with dialled(str(here.http.base_url), opening) as (reader, writer):
        said = asyncio.ensure_future(reader.read(-1))
        async with asyncio.timeout(within(20)):
            while not said.done():
                writer.write(piece)
                await asyncio.sleep(pause_s)
        return said.result()


SLOW = {
    "head": (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"x"),
    "headers": (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"x: y\r\n"),
    "body": (request(b"{", length=10_000), b" "),
    "upload": (request(b"{", "/v1/files", length=10_000), b" "),
}
CROWD = 75
"""Of each kind: both ends of each connection are in this process, which may have a thousand."""


async def test_clients_that_dribble_are_sent_away(tmp_path: Path) -> None:
    async with world(tmp_path, silent(), request_timeout_s=within(0.5)) as here:
        sending = [dribble(here, opening, piece) for opening, piece in SLOW.values()]
        for name, said in zip(SLOW, await meanwhile(here, asyncio.gather(*sending)), strict=True):
            assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), name
            assert b"request_timeout_s" in said, name
        assert [each for each in here.upstream.requests if b"healthy" not in each] == []


async def test_a_crowd_of_slow_clients_is_sent_away_and_nobody_waits(tmp_path: Path) -> None:
    async def left_alone(url: str, opening: bytes) -> bytes:
        async with dialled(url, opening) as (reader, _):
            return await reader.read(-1)

    async with world(tmp_path, silent(), request_timeout_s=within(1)) as here:
        openings = [opening for opening, _ in SLOW.values()] * CROWD
        sending = [left_alone(str(here.http.base_url), opening) for opening in openings]
        answers = await meanwhile(here, asyncio.gather(*sending))
        assert {answer[:13] for answer in answers} == {b"HTTP/1.1 408 "}


@pytest.mark.parametrize("after", [b"", request(b"healthy", "/v1/any")], ids=["at first", "later"])
async def test_a_client_that_says_nothing_is_sent_away(tmp_path: Path, after: bytes) -> None:
    async with world(tmp_path, silent(), request_timeout_s=within(0.5)) as here:
        async with dialled(str(here.http.base_url), after) as (reader, _):
            async with asyncio.timeout(within(30)):
                said = await reader.read(-1)
        assert said.count(b"HTTP/1.1") == (1 if after else 0)


async def test_a_client_that_is_slow_but_gets_on_is_served(tmp_path: Path) -> None:
    limit_s = within(0.5)
    pause_s = limit_s / 5
    size = int(6000 * pause_s)
    content = b'{"model":"mock","messages":[{"role":"user","content":"healthy"}]}' + b" " * (10 * size)
    async with world(tmp_path, silent(), request_timeout_s=limit_s) as here:
        async with dialled(str(here.http.base_url), request(b"", length=len(content))) as (reader, writer):
            for at in range(0, len(content), size):  # twice the limit in all
                await asyncio.sleep(pause_s)
                writer.write(content[at : at + size])
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_an_upload_that_the_upstream_takes_slowly_is_not_the_clients_fault(tmp_path: Path) -> None:
    limit_s = within(0.5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(3 * limit_s)
        await reader.readexactly(2**24)
        writer.write(answer_of(b"200 OK", b"taken"))
        writer.close()

    flags = {"request_timeout_s": limit_s}
    async with speaking(serve) as upstream, calling(tmp_path, upstream=upstream, **flags) as http:
        answer = await http.post("/v1/files", content=b"x" * 2**24)
        assert answer.content == b"taken"


HEADS = {"one header": b"x: " + b"y" * 8 * HEAD_LIMIT_BYTES, "many": b"x: y\r\n" * HEAD_LIMIT_BYTES}


@pytest.mark.parametrize("pieces", [1, 64])
async def test_headers_that_are_too_large(tmp_path: Path, pieces: int) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    async with world(tmp_path, silent()) as here:
        for name, content in HEADS.items():
            async with dialled(str(here.http.base_url), head) as (reader, writer):
                size = len(content) // pieces
                for at in range(0, len(content), size):
                    writer.write(content[at : at + size])
                    await asyncio.sleep(0)
                said = await reader.readuntil(b"\r\n")
            assert said == b"HTTP/1.1 431 Request Header Fields Too Large\r\n", name
        await here.healthy()
        assert len(here.upstream.requests) == 1


ENDLESS = {
    "trailers": (b"2\r\n{}\r\n0\r\n", b"x: y\r\n"),
    "one trailer": (b"2\r\n{}\r\n0\r\nx: ", b"y"),
    "a chunk extension": (b"2;", b"x"),
}


@pytest.mark.parametrize("path", [PATH, "/v1/messages", "/v1/files"])
async def test_what_comes_around_a_body_without_end(tmp_path: Path, path: str) -> None:
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" % path.encode()
    async with world(tmp_path, silent()) as here:
        sending = [dribble(here, head + opening, piece * 5000) for opening, piece in ENDLESS.values()]
        for name, said in zip(ENDLESS, await meanwhile(here, asyncio.gather(*sending)), strict=True):
            assert said.startswith(b"HTTP/1.1 431 "), name
            assert (b'"type":"error"' in said) is (path == "/v1/messages"), name


# -- large bodies ------------------------------------------------------------------------------------------------------


async def test_what_is_passed_through_is_never_held_whole(tmp_path: Path) -> None:
    """64 MiB up and down while the client takes them slowly: what was sent is never far ahead of what was taken."""
    size, taken, ahead = 2**26, 0, 0

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal ahead
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for sent in range(0, size, 2**16):
            writer.write(b"x" * 2**16)
            await writer.drain()
            ahead = max(ahead, sent + 2**16 - taken)
        return True

    async with world(tmp_path, answer) as here:
        async with here.http.stream("GET", "/v1/files/f1/content") as response:
            async for part in response.aiter_raw():
                taken += len(part)
        assert taken == size
        assert ahead < size // 2
