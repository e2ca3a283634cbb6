"""Streams through burnish, as many a second as a bench wants. Each has 40 chunks and takes a second."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager

import orjson

from tests.support.upstream import Upstream, events, stream, upstream

CHUNKS = 40
TAKES_S = 1.0


def engine() -> AbstractAsyncContextManager[Upstream]:
    """Serve the streams."""
    words = " ".join(["word"] * CHUNKS)
    return upstream(stream(events(words), pause_s=TAKES_S / CHUNKS))


async def streams(url: str, per_second: float, seconds: float) -> None:
    """Begin so many streams a second for so long, and read all of them to their end."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(round(seconds * per_second)):
            await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
            group.create_task(ask(url, number))


async def ask(url: str, number: int) -> None:
    """Ask for a stream over a connection of its own, and read it to its end."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    messages = [{"role": "user", "content": f"Question {number}"}]
    body = orjson.dumps({"model": "mock", "stream": True, "messages": messages})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body)
    answer = await reader.read()
    assert b"data: [DONE]" in answer, answer[:500]
    writer.close()
