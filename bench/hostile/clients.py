"""The requests of hostile clients. Each function prepares it; sending returns the answers' statuses, 0 for none."""

from __future__ import annotations

import asyncio
import gzip
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import orjson

from bench.hostile.answers import BLOCK, CHAT_PATH, DEPTH, MEMBERS, UNPACKED_BYTES, gzipped

Send = Callable[[str], Awaitable[list[int]]]
"""Takes burnish's URL."""
Prepare = Callable[[str, float], Send]
"""Takes the model to ask for, and the share of the full size; builds what is sent."""

OLLAMA_PATH = "/api/chat"
READ_BYTES = 256 * 1024
FINAL = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")
"""A status line that isn't informational."""
MESSAGES = 100_000
RESULTS = 20_000
LARGE_BYTES = 60 * 10**6
PERCENT_CLIENTS = 4
ENCODED = 31_900
"""Times that a path is percent-encoded: the largest head that is accepted."""
SLOW_FOR_S = 10.0
SLOW_HEADS = 1_500
STALLED = 500
STALLED_BYTES = 50_000
ABORTED = 300
OWN_ROUTES = ("/burnish/login", "/v1/feedback", "/burnish/command")
MANAGEMENT = (
    "/v1/load_lora_adapter",
    "/v1/load_lora_adapter%0a",
    "/v1/load_lora_adapter%250A",
    "/v1/v1/load_lora_adapter",
)
OTHER_HOSTS = ("*@evil.example/x", "*.evil.example/x", "@evil.example/x", "http://evil.example/x")


def asks(path: str, *, stream: bool) -> Prepare:
    """Ask for a hostile answer."""

    def prepare(model: str, share: float) -> Send:
        return _sent(path, _question(model, path, stream=stream))

    return prepare


def many_messages(path: str) -> Prepare:
    """A conversation of 100,000 messages, 4 MB."""

    def prepare(model: str, share: float) -> Send:
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": f"{n}"} for n in range(round(MESSAGES * share) - 1)]
        body = {
            "model": model,
            "max_tokens": 9,
            "messages": [*messages, {"role": "user", "content": "Well?"}],
        }
        return _sent(path, orjson.dumps(body))

    return prepare


def unnamed_results(model: str, share: float) -> Send:
    """20,000 calls and their results, without ids and in the opposite order, as Ollama's clients may send them."""
    names = [f"tool_{place}" for place in range(round(RESULTS * share))]
    calls = [{"function": {"name": name, "arguments": {}}} for name in names]
    results = [{"role": "tool", "tool_name": name, "content": "Done."} for name in reversed(names)]
    question = {"role": "user", "content": "Well?"}
    messages = [question, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    return _sent(OLLAMA_PATH, orjson.dumps({"model": model, "stream": False, "messages": messages}))


def large_message(model: str, share: float) -> Send:
    """A message of 60 MB."""
    return _sent(CHAT_PATH, b"".join(_long_question(model, LARGE_BYTES * share)))


def gzip_bomb(model: str, share: float) -> Send:
    """A message of 1 GB in 1 MB of gzip."""
    body = gzipped(_long_question(model, UNPACKED_BYTES * share))
    return _sent(CHAT_PATH, body, "content-encoding: gzip\r\n")


def gzip_members(model: str, share: float) -> Send:
    """A message in 100,000 gzip members."""
    before, after = _question(model, text="@").split(b"@")
    member = gzip.compress(b"00", mtime=0)
    body = gzip.compress(before) + member * round(MEMBERS * share) + gzip.compress(after)
    return _sent(CHAT_PATH, body, "content-encoding: gzip\r\n")


def nested(model: str, share: float) -> Send:
    """A message in 100,000 levels."""
    levels = round(DEPTH * share)
    return _sent(CHAT_PATH, _question(model, text="@").replace(b'"@"', b"[" * levels + b"]" * levels))


def percent_encoded(model: str, share: float) -> Send:
    """Four clients without a key ask for paths that are encoded 31,900 times."""

    async def client(url: str) -> list[int]:
        statuses, until = [], time.monotonic() + SLOW_FOR_S * share
        while time.monotonic() < until:
            path = f"/{secrets.token_hex(4)}%{'25' * round(ENCODED * share)}"
            statuses.append(await exchange(url, _head("GET", path)))
        return statuses

    return lambda url: _all([client(url) for _ in range(PERCENT_CLIENTS)])


def management(model: str, share: float) -> Send:
    """Spellings of a route that manages the engine."""
    return _targets(MANAGEMENT)


def other_hosts(model: str, share: float) -> Send:
    """Targets that name another host."""
    return _targets(OTHER_HOSTS)


def slow_heads(model: str, share: float) -> Send:
    """1,500 clients send a byte of their head each second, for ten seconds."""

    async def client(url: str) -> list[int]:
        async with _dialled(url) as (_, writer):
            for byte in _head("GET", "/v1/models")[: round(SLOW_FOR_S)]:
                writer.write(bytes([byte]))
                await asyncio.sleep(1)
        return []

    return lambda url: _all([client(url) for _ in range(round(SLOW_HEADS * share))])


def stalled_uploads(model: str, share: float) -> Send:
    """500 clients send 50 KB of a request of 60 MB, and then nothing for ten seconds."""
    began = _head("POST", CHAT_PATH, f"content-length: {LARGE_BYTES}\r\n") + b"0" * STALLED_BYTES

    async def client(url: str) -> list[int]:
        async with _dialled(url) as (_, writer):
            writer.write(began)
            await asyncio.sleep(SLOW_FOR_S)
        return []

    return lambda url: _all([client(url) for _ in range(round(STALLED * share))])


def aborted_bodies(model: str, share: float) -> Send:
    """300 clients leave at once, each in the middle of a body for a route of burnish's own; none has a key."""
    began = [_head("POST", path, "content-length: 50\r\n") + b"{" for path in OWN_ROUTES]

    async def send(url: str) -> list[int]:
        async with AsyncExitStack() as open_ones:
            for number in range(round(ABORTED * share)):
                _, writer = await open_ones.enter_async_context(_dialled(url))
                writer.write(began[number % len(began)])
                await writer.drain()
        return []

    return send


async def exchange(url: str, said: bytes) -> int:
    """Send bytes on a connection of their own, and read to its end; returns the status, 0 without an answer."""
    status = 0
    with suppress(OSError):
        async with _dialled(url) as (reader, writer):
            writer.write(said)
            while piece := await reader.read(READ_BYTES):
                if not status and (found := FINAL.search(piece)):
                    status = int(found[1])
    return status


@asynccontextmanager
async def _dialled(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _all(clients: Iterable[Coroutine[None, None, list[int]]]) -> list[int]:
    return [status for statuses in await asyncio.gather(*clients) for status in statuses]


def _targets(targets: Iterable[str]) -> Send:
    async def send(url: str) -> list[int]:
        return [
            await exchange(url, _head("POST", target, "content-length: 2\r\n") + b"{}") for target in targets
        ]

    return send


def _sent(path: str, body: bytes, headers: str = "") -> Send:
    said = _head("POST", path, f"{headers}content-length: {len(body)}\r\n") + body

    async def send(url: str) -> list[int]:
        return [await exchange(url, said)]

    return send


def _head(method: str, target: str, headers: str = "") -> bytes:
    """Return the head of a request after which the connection is closed."""
    return (
        f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\n{headers}\r\n"
    ).encode()


def _question(model: str, path: str = CHAT_PATH, text: str = "Well?", *, stream: bool = False) -> bytes:
    question = [{"role": "user", "content": text}]
    messages = "input" if path.endswith("responses") else "messages"
    return orjson.dumps({"model": model, "max_tokens": 9, "stream": stream, messages: question})


def _long_question(model: str, size: float) -> Iterator[bytes]:
    before, after = _question(model, text="@").split(b"@")
    yield before
    yield from [BLOCK] * round(size / len(BLOCK))
    yield after
