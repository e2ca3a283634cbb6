"""A scripted upstream on a real port: answers exactly the bytes that a test wants, and remembers what it got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from tests.support import chat_wire


@dataclass
class Received:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> dict:
        return orjson.loads(self.body)


Script = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Upstream:
    url: str
    script: Script
    requests: list[Received] = field(default_factory=list)
    disconnects: int = 0
    """Connections that the other side closed while an answer was under way."""
    connections: int = 0


async def _read(reader: asyncio.StreamReader, begun: bytes) -> Received:
    head = begun + await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers, trailers = [_header(line) for line in lines], []
    lower = {name.lower(): value for name, value in headers}
    if lower.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while line := (await reader.readline()).decode("latin-1").rstrip("\r\n"):
            trailers.append(_header(line))
        body = b"".join(parts)
    else:
        body = await reader.readexactly(int(lower.get("content-length", 0)))
    return Received(method, target, headers, body, trailers)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip(" \t")


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[Upstream]:
    """Run a server that answers each request by a script; a script that returns keeps the connection."""
    state = Upstream("", script)
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        state.connections += 1
        connections[task] = writer
        task.add_done_callback(connections.pop)
        # The first byte of the next request, or that there will be none: the other side may ask again at once.
        following = asyncio.ensure_future(reader.read(1))
        try:
            while begun := await following:
                state.requests.append(request := await _read(reader, begun))
                following = asyncio.ensure_future(reader.read(1))
                answer = asyncio.ensure_future(state.script(request, writer))
                await asyncio.wait({following, answer}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done() and not following.result():
                    state.disconnects += 1
                    answer.cancel()
                    await asyncio.wait({answer})
                    break
                await answer
                if writer.is_closing():
                    break
        except asyncio.IncompleteReadError:
            pass
        except ConnectionError:
            state.disconnects += 1
        finally:
            following.cancel()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield state
        # A handler that is cancelled with its loop makes asyncio complain; one whose connection is gone ends by itself.
        ending = dict(connections)
        for writer in ending.values():
            writer.transport.abort()
        if ending:
            await asyncio.wait(ending)


def reply(
    content: bytes, *, status: str = "200 OK", headers: str = "content-type: application/json\r\n"
) -> Script:
    """Answer always the same, with a length."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 {status}\r\n{headers}content-length: {len(content)}\r\n\r\n".encode() + content
        )
        await writer.drain()

    return script


def by_request(choose: Callable[[Received], Script]) -> Script:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await choose(request)(request, writer)

    return script


def in_turn(*scripts: Script) -> Script:
    """Answer by one script after the other, and by the last one from then on."""
    left = list(scripts)
    return by_request(lambda request: left.pop(0) if len(left) > 1 else left[0])


def completion(text: str = "Hello!", *, response_id: str = "chatcmpl-1", model: str = "mock") -> bytes:
    """A chat completion as an OpenAI-compatible server answers it."""
    return orjson.dumps(chat_wire.whole({"content": text}, id=response_id, model=model))


def events(text: str, *, response_id: str = "chatcmpl-1", done: bool = True) -> list[bytes]:
    """The SSE events of a streamed chat completion, a word each."""
    first, *words = text.split(" ")
    deltas = [
        {"role": "assistant", "content": ""},
        {"content": first},
        *({"content": f" {word}"} for word in words),
    ]
    parts = [chat_wire.chunk(delta, id=response_id) for delta in deltas]
    return [*parts, chat_wire.chunk({}, "stop", id=response_id), chat_wire.DONE] if done else parts


def stream(
    parts: list[bytes],
    *,
    content_type: str = "text/event-stream",
    pause_s: float = 0.0,
    lag_s: float = 0.0,
    cut: bool = False,
    hold: asyncio.Event | None = None,
    trailers: bytes = b"",
) -> Script:
    """Stream parts as HTTP chunks; ``cut`` drops the connection after them, ``hold`` waits before the last.

    ``lag_s`` passes between the last part and the end of the body.
    """

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for index, part in enumerate(parts):
            if hold and index == len(parts) - 1:
                await hold.wait()
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        if cut:
            writer.transport.abort()
            return
        if lag_s:
            await asyncio.sleep(lag_s)
        writer.write(b"0\r\n%b\r\n" % trailers)
        await writer.drain()

    return script
