"""Exchanges to the byte: a client of bytes, burnish, and an upstream that says what is planned, a chunk at a time.

A chunk is only sent when the client has read the one before it, so whatever holds chunks back, or joins them, shows.
All run in one event loop, as in production, which a property test drives from outside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from hypothesis import strategies as st

from burnish.proxy.listener import event_loop
from tests.support.inprocess import serving
from tests.support.upstream import Received, Upstream, upstream

Headers = list[tuple[bytes, bytes]]
LIMIT_S = 10
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host", b"connection"})
BODILESS = (204, 304)


@dataclass
class Asked:
    """A request. Its headers are those of the ends; ``hop`` are those of this hop only."""

    method: str
    target: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    chunked: bool = False
    hop: Headers = field(default_factory=list)


@dataclass
class Planned:
    """An answer."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    chunks: Sequence[bytes] = ()
    framing: Literal["length", "chunked", "close"] = "chunked"
    hop: Headers = field(default_factory=list)
    delay_s: float = 0
    """Until it begins."""


@dataclass
class Got:
    """An answer as it came."""

    status: int
    headers: Headers
    chunks: list[bytes]

    def without(self, *names: bytes) -> Headers:
        """Return the headers less some, and less those that frame the body."""
        return [header for header in self.headers if header[0] not in FRAMING | set(names)]


class Stage:
    """A running burnish, its upstream, and one connection to it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.url = ""
        self.upstream: Upstream
        self._planned = Planned()
        self._taken = asyncio.Semaphore(0)
        self._client: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something in the loop of the stage."""
        return self._runner.run(asyncio.wait_for(work, LIMIT_S))

    def play(self, asked: Asked, planned: Planned) -> tuple[Received, Got]:
        """Ask and answer; return what the upstream got and what the client got."""
        return self.run(self._play(asked, planned))

    def check(self, asked: Asked, planned: Planned, *, added: Sequence[bytes] = ()) -> None:
        """Ask and answer, and see that everything of both arrives as it was sent, but for headers that burnish adds."""
        received, got = self.play(asked, planned)
        assert (received.method, received.target) == (asked.method, asked.target)
        assert received.body == asked.body
        assert end_to_end(received) == lowered(asked.headers)
        assert got.status == planned.status
        assert got.without(*added) == lowered(planned.headers)
        silent = asked.method == "HEAD" or planned.status in BODILESS
        assert got.chunks == ([] if silent else list(planned.chunks))

    def plan(self, planned: Planned) -> None:
        """Answer so from now on."""
        self._planned, self._taken = planned, asyncio.Semaphore(0)

    def go_on(self) -> None:
        """Let the upstream send the next chunk."""
        self._taken.release()

    async def script(self, request: Received, writer: asyncio.StreamWriter) -> None:
        """Answer as it is planned."""
        planned = self._planned
        length = str(sum(map(len, planned.chunks))).encode()
        framing = {"length": [(b"Content-Length", length)], "chunked": [(b"Transfer-Encoding", b"chunked")],
                   "close": [(b"Connection", b"close")]}[planned.framing]  # fmt: skip
        silent = request.method == "HEAD" or planned.status in BODILESS
        await asyncio.sleep(planned.delay_s)
        writer.write(b"HTTP/1.1 %d \r\n" % planned.status)
        writer.writelines(wire([*planned.headers, *planned.hop, *framing]))
        writer.write(b"\r\n")
        chunked = planned.framing == "chunked"
        for chunk in () if silent else planned.chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            await writer.drain()
            await self._taken.acquire()
        if chunked and not silent:
            writer.write(b"0\r\n\r\n")
        if planned.framing == "close":
            writer.close()
        else:
            await writer.drain()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to burnish."""
        address = urlsplit(self.url)
        return await asyncio.open_connection(address.hostname, address.port, limit=2**20)

    async def hang_up(self) -> None:
        """Close the connection to burnish."""
        if self._client:
            self._client[1].close()
            self._client = None

    async def _play(self, asked: Asked, planned: Planned) -> tuple[Received, Got]:
        self._client = reader, writer = self._client or await self.connect()
        self.plan(planned)
        before = len(self.upstream.requests)
        writer.write(request_bytes(asked, self.url))
        try:
            got = await self._read(reader, asked, planned)
            (received,) = self.upstream.requests[before:]
        except BaseException:
            await self.hang_up()
            raise
        return received, got

    async def _read(self, reader: asyncio.StreamReader, asked: Asked, planned: Planned) -> Got:
        got = await read_head(reader)
        if asked.method == "HEAD" or got.status in BODILESS:
            return got
        if (b"transfer-encoding", b"chunked") in got.headers:
            while chunk := await read_chunk(reader):
                got.chunks.append(chunk)
                self.go_on()
            return got
        for chunk in planned.chunks:
            got.chunks.append(await reader.readexactly(len(chunk)))
            self.go_on()
        return got


@contextmanager
def stage(tmp_path: Path, **flags: Any) -> Iterator[Stage]:
    """Run burnish before an upstream of its own, in the event loop of production."""
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        made = Stage(runner)
        ready, over = asyncio.Event(), asyncio.Event()

        async def serve() -> None:
            async with (
                upstream(made.script) as server,
                serving(tmp_path, upstream=server.url, **flags) as (url, _),
            ):
                made.upstream, made.url = server, url
                ready.set()
                await over.wait()

        task = runner.get_loop().create_task(serve())
        made.run(ready.wait())
        try:
            yield made
        finally:
            over.set()
            made.run(made.hang_up())
            made.run(task)


def request_bytes(asked: Asked, url: str) -> bytes:
    """Return a request as it goes over the wire."""
    host = url.removeprefix("http://").encode()
    head = [(b"Host", host), *asked.headers, *asked.hop]
    body = asked.body
    if asked.chunked:
        head.append((b"Transfer-Encoding", b"chunked"))
        body = (
            b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]) if part)
            + b"0\r\n\r\n"
        )
    elif body:
        head.append((b"Content-Length", str(len(body)).encode()))
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (
        asked.method.encode(),
        asked.target.encode(),
        b"".join(wire(head)),
        body,
    )


def wire(headers: Headers) -> list[bytes]:
    """Return headers as they go over the wire."""
    return [b"%b: %b\r\n" % header for header in headers]


async def read_head(reader: asyncio.StreamReader) -> Got:
    """Read the head of an answer."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    split = [line.partition(b":") for line in lines]
    return Got(
        int(status.split(b" ")[1]), [(name.lower(), value.strip(b" \t")) for name, _, value in split], []
    )


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Read one chunk of a body; b"" at its end."""
    size = int(await reader.readline(), 16)
    return (await reader.readexactly(size + 2))[:-2]


def lowered(headers: Headers) -> Headers:
    """Return headers with their names in lower case, in which HTTP takes them all the same."""
    return [(name.lower(), value) for name, value in headers]


def end_to_end(received: Received) -> Headers:
    """Return the headers that an upstream got, less those that frame the body or name the host."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in received.headers]
    return [header for header in headers if header[0] not in FRAMING]


_TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BLACK = [*range(0x21, 0x7F), *range(0x80, 0x100)]
names = (
    st.text(_TOKEN, min_size=1, max_size=12)
    .map(lambda text: b"X-" + text.encode())
    .filter(lambda name: not name.lower().startswith(b"x-burnish-"))
)
values = st.builds(
    lambda begin, middle, end: bytes([*begin, *middle, *end]) if begin and end else bytes(begin),
    st.lists(st.sampled_from(_BLACK), max_size=4),
    st.lists(st.sampled_from([*_BLACK, 0x20, 0x09]), max_size=12),
    st.lists(st.sampled_from(_BLACK), max_size=2),
)
REQUEST_NAMES = (
    b"Accept",
    b"Cookie",
    b"User-Agent",
    b"Authorization",
    b"X-Api-Key",
    b"Accept-Encoding",
    b"Via",
)
RESPONSE_NAMES = (
    b"Set-Cookie",
    b"Date",
    b"Server",
    b"ETag",
    b"Link",
    b"Vary",
    b"Retry-After",
    b"WWW-Authenticate",
)
request_headers = st.lists(st.tuples(names | st.sampled_from(REQUEST_NAMES), values), max_size=6)
response_headers = st.lists(st.tuples(names | st.sampled_from(RESPONSE_NAMES), values), max_size=6)
chunks = st.lists(st.binary(min_size=1, max_size=60), max_size=5)
framings: st.SearchStrategy[Any] = st.sampled_from(["length", "chunked", "close"])

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


def written(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Return JSON bodies as clients write them: with white space or without, and escaped as they please."""
    return st.builds(
        lambda value, indent, ascii: json.dumps(value, indent=indent, ensure_ascii=ascii).encode(
            "utf-8", "replace"
        ),
        values,
        st.sampled_from([None, 1]),
        st.booleans(),
    )
