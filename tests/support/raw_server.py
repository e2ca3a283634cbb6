"""An upstream of bytes: a port that answers with whatever a test likes, HTTP or not; and a pool that asks it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from burnish.config.config import Config
from burnish.proxy.http.pool import Pool
from burnish.proxy.relay.upstreams import pool_of
from tests.support.patience import within

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright"
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a request, given whole; returns whether the connection stays. Cancelled when the other side hangs up."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        """Set by the first request."""
        self.closed: asyncio.Queue[None] = asyncio.Queue()
        """One entry for each connection that has been closed."""


async def _next(reader: asyncio.StreamReader) -> bytes:
    """Return the first byte of a next request; b"" when there is none."""
    try:
        return await reader.read(1)
    except ConnectionError:
        return b""


@asynccontextmanager
async def speaking(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a server that reads and writes as it likes; gives its URL. ``tls``: as https://localhost."""
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, ssl=tls)
    address = "https://localhost" if tls else "http://127.0.0.1"
    try:
        yield f"{address}:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


@asynccontextmanager
async def dialled(
    url: str, said: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server as a client that sends what it likes: first these bytes."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**20)
    writer.write(said)
    try:
        async with asyncio.timeout(within(60)):
            yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    state = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        ahead, stays = b"", True
        following: asyncio.Future[bytes] | None = None
        try:
            while stays:
                request = ahead + await reader.readuntil(b"\r\n\r\n")
                if (at := request.lower().find(b"content-length: ")) > 0:
                    request += await reader.readexactly(int(request[at + 16 :].split(b"\r\n")[0]))
                state.requests.append(request)
                state.asked.set()
                following = asyncio.ensure_future(_next(reader))
                answering = asyncio.ensure_future(answer(request, writer))
                await asyncio.wait({following, answering}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and not following.result():  # the other side has hung up
                    answering.cancel()
                await asyncio.wait({answering})
                stays = not answering.cancelled() and answering.result()
                ahead = await following if stays else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if following:
                following.cancel()
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            state.closed.put_nowait(None)

    async with speaking(serve, tls) as state.url:
        yield state


def says(*answers: Sequence[bytes] | bytes, stays: bool = True) -> Answer:
    """Give one answer after the other, the last again and again; an answer may come in pieces."""
    left = list(answers)

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        said = left.pop(0) if len(left) > 1 else left[0]
        for piece in (said,) if isinstance(said, bytes) else said:
            writer.write(piece)
            await writer.drain()
            # Let the loop deliver it by itself: the other end runs in this loop, too.
            await asyncio.sleep(0.001)
        return stays

    return answer


@asynccontextmanager
async def pool(**limits: float) -> AsyncIterator[Pool]:
    opened = pool_of(Config(data_dir=Path("/nonexistent"), **limits))
    try:
        yield opened
    finally:
        await opened.close()


async def get(opened: Pool, url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    async with asyncio.timeout(within(20)):
        with await opened.send(method, url, [], body, path="/x") as response:
            return response.status, await response.whole()
