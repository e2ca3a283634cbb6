"""Exchanges to the byte: a client of bytes, burnish, and an upstream that says what is planned, a chunk at a time.

A chunk is only sent when the client has read the one before it, so whatever holds chunks back, or joins them, shows.
All run in one event loop, as in production, which a test drives from outside.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import uvloop

from tests.support.chance import Headers
from tests.support.inprocess import serving
from tests.support.patience import within
from tests.support.upstream import Received, Upstream, upstream

LIMIT_S = 60
Framing = Literal["length", "chunked", "close"]
LANES = 4
"""Connections over which exchanges go at the same time."""
NOTHING_ASKED = b"[]"
"""With this burnish asks after a 404 whether the upstream knows the path."""
TAG = "x-exchange"
"""Header by which the upstream knows in which exchange it is asked; without it, it answers as planned last."""
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host", b"connection"})
BODILESS = (204, 304)


@dataclass
class Asked:
    """A request. Its headers are those of the ends; ``hop`` are those of this hop only, and so are ``trailers``."""

    method: str
    target: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    chunks: Sequence[bytes] | None = None
    """The body as it is sent; None: with its length."""
    hop: Headers = field(default_factory=list)
    trailers: Headers = field(default_factory=list)


@dataclass
class Planned:
    status: int = 200
    headers: Headers = field(default_factory=list)
    chunks: Sequence[bytes] = ()
    framing: Framing = "chunked"
    hop: Headers = field(default_factory=list)
    trailers: Headers = field(default_factory=list)
    early: bytes = b""
    """What is said before it: 1xx answers."""
    delay_s: float = 0
    """Until it begins."""


@dataclass
class Exchange:
    """A request, its answer, and what of the request arrives otherwise than it was sent."""

    asked: Asked
    planned: Planned
    target: str
    body: bytes
    added: Sequence[bytes] = ()
    """Headers that burnish adds to the answer."""
    trailed: bool = False
    """Whether the request's trailers arrive."""


@dataclass
class Got:
    status: int
    headers: Headers
    chunks: list[bytes]
    trailers: Headers = field(default_factory=list)
    early: list[bytes] = field(default_factory=list)
    """Heads of the answers that announced it, 100 excepted."""


class Turn:
    """One exchange as the upstream has it."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.taken = asyncio.Semaphore(0)
        """Chunks that the client has read."""
        self.received: list[Received] = []
        self._ends = deque(ends(planned.chunks))
        self._size = 0

    def take(self, part: bytes) -> None:
        """Take note of what the client has read; a chunk may come in several parts, never with some of the next."""
        self._size += len(part)
        while self._ends and self._ends[0] <= self._size:
            self._ends.popleft()
            self.taken.release()


class Stage:
    """A running burnish, its upstream, and connections to it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.url = ""
        self.upstream: Upstream
        self._turns: dict[str | None, Turn] = {}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def run(self, work: Awaitable[Any]) -> Any:
        return self._runner.run(asyncio.wait_for(work, within(LIMIT_S)))

    def check(self, *exchanges: Exchange) -> None:
        """Ask and answer, several at a time, and see that everything arrives as it was sent."""
        self.run(self._check_all(exchanges))

    def plan(self, planned: Planned) -> None:
        """Answer so from now on."""
        self._turns[None] = Turn(planned)

    def go_on(self) -> None:
        self._turns[None].taken.release()

    async def script(self, request: Received, writer: asyncio.StreamWriter) -> None:
        turn = self._turns[request.header(TAG)]
        if turn.received and request.body == NOTHING_ASKED:
            writer.write(b"HTTP/1.1 400 \r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
            return
        turn.received.append(request)
        planned = turn.planned
        length = str(sum(map(len, planned.chunks))).encode()
        framing = {"length": [(b"Content-Length", length)], "chunked": [(b"Transfer-Encoding", b"chunked")],
                   "close": [(b"Connection", b"close")]}[planned.framing]  # fmt: skip
        silent = request.method == "HEAD" or planned.status in BODILESS
        if planned.delay_s:
            await asyncio.sleep(planned.delay_s)
        head = b"".join(wire([*planned.headers, *planned.hop, *framing]))
        writer.write(b"%bHTTP/1.1 %d \r\n%b\r\n" % (planned.early, planned.status, head))
        chunked = planned.framing == "chunked"
        for chunk in () if silent else planned.chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            await writer.drain()
            await turn.taken.acquire()
        if chunked and not silent:
            writer.write(b"0\r\n%b\r\n" % b"".join(wire(planned.trailers)))
        if planned.framing == "close":
            writer.close()
        else:
            await writer.drain()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self.url)
        return await asyncio.open_connection(address.hostname, address.port, limit=2**20)

    async def hang_up(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    async def _check_all(self, exchanges: Sequence[Exchange]) -> None:
        async def lane(several: Sequence[Exchange]) -> None:
            for exchange in several:
                try:
                    self._compare(exchange, *await self._play(exchange.asked, exchange.planned))
                except Exception as error:
                    error.add_note(f"in {exchange}")
                    raise

        async with asyncio.TaskGroup() as lanes:
            for number in range(LANES):
                lanes.create_task(lane(exchanges[number::LANES]))

    def _compare(self, exchange: Exchange, received: Received, got: Got) -> None:
        asked, planned = exchange.asked, exchange.planned
        assert (received.method, received.target) == (asked.method, exchange.target)
        assert received.body == exchange.body
        assert end_to_end(received) == lowered(asked.headers)
        assert got.status == planned.status
        ours = FRAMING | set(exchange.added)
        if b"content-type" not in dict(lowered(planned.headers)):
            ours |= {b"x-content-type-options"}  # a browser would guess
        assert [header for header in got.headers if header[0] not in ours] == lowered(planned.headers)
        chunks = () if asked.method == "HEAD" or planned.status in BODILESS else planned.chunks
        assert b"".join(got.chunks) == b"".join(chunks)
        assert set(ends(chunks)) <= set(ends(got.chunks))
        behind = planned.framing == "chunked" and (asked.method != "HEAD" and planned.status not in BODILESS)
        assert got.trailers == _forwarded(planned.trailers if behind else [])
        assert got.early == [each for each in planned.early.split(b"\r\n\r\n")[:-1] if b" 103 " in each]
        given = [(name.encode(), value.encode()) for name, value in received.trailers]
        assert lowered(given) == _forwarded(asked.trailers if exchange.trailed else [])
        announced = planned.framing == "length" and planned.status not in BODILESS
        length = [b"%d" % sum(map(len, planned.chunks))] if announced else []
        assert [value for name, value in got.headers if name == b"content-length"] == length

    async def _play(self, asked: Asked, planned: Planned) -> tuple[Received, Got]:
        reader, writer = self._idle.pop() if self._idle else await self.connect()
        tag = next((value.decode() for name, value in asked.headers if name.lower() == TAG.encode()), None)
        turn = self._turns[tag] = Turn(planned)
        try:
            writer.write(request_bytes(asked, self.url))
            got = await self._read(reader, asked, turn)
            assert len(turn.received) == 1, (
                f"the upstream was asked {len(turn.received)} times; the client got {got}"
            )
        except BaseException:
            writer.close()
            raise
        if tag:
            del self._turns[tag]
        self._idle.append((reader, writer))
        return turn.received[0], got

    async def _read(self, reader: asyncio.StreamReader, asked: Asked, turn: Turn) -> Got:
        got = await read_head(reader)
        if asked.method == "HEAD" or got.status in BODILESS:
            return got
        if (b"transfer-encoding", b"chunked") in got.headers:
            while chunk := await read_chunk(reader, got.trailers):
                got.chunks.append(chunk)
                turn.take(chunk)
            return got
        for chunk in turn.planned.chunks:
            got.chunks.append(await reader.readexactly(len(chunk)))
            turn.take(chunk)
        return got


@contextmanager
def stage(tmp_path: Path, **flags: Any) -> Iterator[Stage]:
    """Run burnish before an upstream of its own, in the event loop of production."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
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
    host = url.removeprefix("http://").encode()
    head = [(b"Host", host), *asked.headers, *asked.hop]
    body = asked.body
    if asked.chunks is not None:
        head.append((b"Transfer-Encoding", b"chunked"))
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in asked.chunks)
        body += b"0\r\n%b\r\n" % b"".join(wire(asked.trailers))
    elif body:
        head.append((b"Content-Length", str(len(body)).encode()))
    line = b"%b %b HTTP/1.1\r\n" % (asked.method.encode(), asked.target.encode())
    return line + b"".join(wire(head)) + b"\r\n" + body


def ends(chunks: Sequence[bytes]) -> list[int]:
    """Return where chunks end in the body that they make."""
    return list(accumulate(map(len, chunks)))


def wire(headers: Headers) -> list[bytes]:
    return [b"%b: %b\r\n" % header for header in headers]


async def read_head(reader: asyncio.StreamReader) -> Got:
    """Read the head of an answer, passing over those that only announce it."""
    early = []
    while True:
        head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
        status, *lines = head.split(b"\r\n")
        if (code := int(status.split(b" ")[1])) >= 200:
            break
        if code != 100:
            early.append(head)
    return Got(code, [_header(line) for line in lines], [], early=early)


async def read_chunk(reader: asyncio.StreamReader, trailers: Headers | None = None) -> bytes:
    """Read one chunk of a body; b"" at its end, with what trails it."""
    if size := int(await reader.readline(), 16):
        return (await reader.readexactly(size + 2))[:-2]
    while line := (await reader.readline()).rstrip(b"\r\n"):
        assert trailers is not None
        trailers.append(_header(line))
    return b""


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


def _forwarded(trailers: Headers) -> Headers:
    """Return those of the trailers that may go on."""
    return [(name, value) for name, value in lowered(trailers) if name != b"authorization"]


def lowered(headers: Headers) -> Headers:
    """Return headers with their names in lower case, in which HTTP takes them all the same."""
    return [(name.lower(), value) for name, value in headers]


def end_to_end(received: Received) -> Headers:
    """Return the headers that an upstream got, less those that frame the body or name the host."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in received.headers]
    return [header for header in headers if header[0] not in FRAMING]
