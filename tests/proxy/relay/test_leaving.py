"""A client that leaves takes its request away from the upstream within 100 ms, whenever it leaves and however."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.inprocess import calling, logged, serving
from tests.support.patience import within
from tests.support.raw_server import dialled, speaking
from tests.support.upstream import events

CASES = 50
MEDIAN_S = 0.1
WORST_S = 2.0
"""A moment of a machine that is busy with something else may fall into one of them."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"
CHUNK = b"8\r\ndata: x\n\r\n"
STREAMED = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
WHOLE = STREAMED.replace(b"true", b"false")


class Upstream:
    """Takes a request as far as it comes, says what it is to say, and waits until the other side is gone."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.began = asyncio.Event()
        self.gone: asyncio.Queue[float] = asyncio.Queue()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._says)
        self.began.set()
        with suppress(ConnectionError):
            while await reader.read(2**16):
                pass
        self.gone.put_nowait(time.perf_counter())
        writer.close()


@asynccontextmanager
async def upstream(says: bytes) -> AsyncIterator[Upstream]:
    made = Upstream(says)
    async with speaking(made.serve) as made.url:
        yield made


def asked(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), size)
    return head + body


COMPLETION, OTHER = "/v1/chat/completions", "/v1/audio/transcriptions"
MOMENTS = {
    "streamed, before it begins": (asked(COMPLETION, STREAMED), b"", b""),
    "streamed, before a byte of the body": (asked(COMPLETION, STREAMED), HEAD, HEAD),
    "streamed, in the middle": (asked(COMPLETION, STREAMED), HEAD + CHUNK, CHUNK),
    "whole, before it begins": (asked(COMPLETION, WHOLE), b"", b""),
    "whole, in the middle": (asked(COMPLETION, WHOLE), HALF, b"half"),
    "other, before it begins": (asked(OTHER, b"sound"), b"", b""),
    "other, in the middle": (asked(OTHER, b"sound"), HEAD + CHUNK, CHUNK),
    "other, while it is sent": (asked(OTHER, b"half a sound", 2**20), b"", b""),
    "no body": (b"GET /v1/files/f/content HTTP/1.1\r\nhost: localhost\r\n\r\n", HEAD + CHUNK, CHUNK),
    "another one sent ahead": (asked(COMPLETION, STREAMED) + asked(OTHER, b"next"), HEAD + CHUNK, CHUNK),
}
LEAVE: list[Callable[[asyncio.StreamWriter], None]] = [
    lambda writer: writer.close(),
    lambda writer: writer.write_eof(),  # see docs/faults.md
    lambda writer: writer.transport.abort(),
]


@pytest.mark.parametrize(("said", "answered", "seen"), MOMENTS.values(), ids=MOMENTS)
async def test_the_upstream_is_let_go(tmp_path: Path, said: bytes, answered: bytes, seen: bytes) -> None:
    took = []
    async with upstream(answered) as server, serving(tmp_path, upstream=server.url) as (url, _):
        for case in range(CASES):
            server.began.clear()
            async with dialled(url, said) as (reader, writer):
                await server.began.wait()
                if seen:
                    await reader.readuntil(seen.lower()[-4:])
                left = time.perf_counter()
                LEAVE[case % len(LEAVE)](writer)
                took.append(await server.gone.get() - left)
        assert server.gone.empty()
    assert statistics.median(took) <= within(MEDIAN_S)
    assert max(took) <= within(WORST_S)


@pytest.mark.parametrize(("seen", "outcome"), [(-1, "complete"), (2, "cancelled")])
async def test_an_answer_is_complete_once_its_last_event_arrived(tmp_path: Path, seen: int, outcome: str):
    sent = events("Hi there.")[:seen]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in sent)
    async with upstream(HEAD + chunks) as server, calling(tmp_path, upstream=server.url) as http:
        async with dialled(str(http.base_url), asked(COMPLETION, STREAMED)) as (reader, _):
            await reader.readuntil(chunks[-12:])
        await server.gone.get()
        assert [each["outcome"] for each in await logged(http)] == [outcome]
