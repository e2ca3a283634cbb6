"""``python -m bench.hostile.upstream``: an upstream that is hostile to requests whose model says so.

Ordinary requests get an ordinary answer. The model ``hostile/NAME/SHARE`` gets that answer, built at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import re

from bench.hostile.answers import ANSWERS, CHAT_PATH, NATIVE, Answer
from tests.support.raw_server import server

HOSTILE = "hostile/"
"""How the model of a hostile exchange begins."""
MODEL = re.compile(rb'"model":\s*"([^"]+)"')
MODEL_WITHIN_BYTES = 4096
"""Where the model stands in a request's body."""
AT_ONCE_BYTES = 256 * 1024
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
REFUSED = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}"
MANAGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nloaded"
MANAGEMENT = b"POST /v1/load_lora_adapter"


def model_of(name: str, share: float) -> str:
    """Return the model that gets a hostile answer."""
    return f"{HOSTILE}{name}/{share:g}"


def built(model: str) -> Answer:
    """Return the answer that a model gets."""
    _, name, share = model.split("/")
    return ANSWERS[name](float(share))


async def serve(model: str) -> None:
    """Print the URL, and answer until the process is ended."""
    ordinary, hostile = ANSWERS["ordinary"](1), await asyncio.to_thread(built, model)
    paths = {CHAT_PATH, NATIVE.get(model.split("/")[1], CHAT_PATH)}

    def chosen(request: bytes) -> Answer:
        if request.startswith(MANAGEMENT):
            return Answer(MANAGED)
        if request.split(b" ", 2)[1].decode() not in paths:
            return Answer(NOT_FOUND)
        body = request.index(b"\r\n\r\n") + 4
        if b"content-encoding: gzip" in request[:body].lower():
            return ordinary
        if not (found := MODEL.search(request, body, body + MODEL_WITHIN_BYTES)):
            return Answer(REFUSED)
        return hostile if found[1] == model.encode() else ordinary

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> bool:
        reply = chosen(request)
        wire = memoryview(reply.wire)
        for start in range(0, len(wire), AT_ONCE_BYTES):
            writer.write(wire[start : start + AT_ONCE_BYTES])
            await writer.drain()
        return not reply.closes

    async with server(answer) as state:
        print(state.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    asyncio.run(serve(parser.parse_args().model))
