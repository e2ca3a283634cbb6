"""Answers that are not what their format says: clients get them to the byte, the log takes none for a sound one."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import brotli
import httpx
import orjson
import pytest
import zstandard

from tests.support.dialects import DIALECTS, user
from tests.support.inprocess import behind
from tests.support.recorded import RECORDED, Recorded
from tests.support.upstream import Received, Upstream, reply, stream

STREAMS = {name: recorded for name, recorded in RECORDED.items() if not recorded.fails}
every_stream = pytest.mark.parametrize("recorded", STREAMS.values(), ids=STREAMS)
OE = "ö".encode()
PAGE = b"<!doctype html>\n<html><body>Bad gateway</body></html>\n"
ERRORS = {
    "OpenAI's": {"error": {"message": "out of memory", "type": "server_error"}},
    "Anthropic's": {"type": "error", "error": {"type": "api_error", "message": "out of memory"}},
    "Google's": [{"error": {"code": 500, "message": "out of memory", "status": "INTERNAL"}}],
    "Ollama's": {"error": "out of memory"},
    "FastAPI's": {"detail": "out of memory"},
}


@dataclass
class World:
    http: httpx.AsyncClient
    server: Upstream

    async def hear(
        self, recorded: Recorded, body: bytes, content_type: str, encoding: str = ""
    ) -> dict[str, Any]:
        """Let a body come as an answer, see that it arrives as it is, and return what the log has of it."""
        packed = f"content-encoding: {encoding}\r\n" if encoding else ""
        self.server.script = reply(body, headers=f"content-type: {content_type}\r\n{packed}")
        asked = DIALECTS[recorded.surface].body((user("Weather?"),))
        async with self.http.stream("POST", recorded.path, json=asked | {"stream": True}) as answer:
            assert answer.status_code == 200
            assert b"".join([part async for part in answer.aiter_raw()]) == body
        name = answer.headers["x-burnish-completion-id"]
        return dict((await self.http.get(f"/burnish/completions/{name}")).json())


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with behind(tmp_path, reply(b"")) as (http, server):
        yield World(http, server)


ODD: dict[str, Callable[[bytes], bytes]] = {
    "as it should be": lambda body: body,
    "line ends of a carriage return and a line feed": lambda body: body.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "no last line end": lambda body: body.rstrip(b"\n"),
    "a line of a megabyte": lambda body: body.replace(b"Gr\xc3\xbc", b"Gr\xc3\xbc" + b"." * 2**20),
}
ODD_EVENTS: dict[str, Callable[[bytes], bytes]] = {
    "line ends of a carriage return": lambda body: body.replace(b"\n", b"\r"),
    "comments": lambda body: body.replace(b"\n\n", b"\n\n: still there\n\n"),
    "other names of events": lambda body: body.replace(b"event: ", b"event: x."),
    "further fields": lambda body: body.replace(b"data: ", b"id: 7\nretry: 10\nx: y\ndata: "),
    "no space behind the colon": lambda body: body.replace(b"data: ", b"data:"),
}


@every_stream
async def test_a_stream_that_is_odd_is_read_as_any_other(here: World, recorded: Recorded) -> None:
    odd = ODD | (ODD_EVENTS if "event-stream" in recorded.content_type else {})
    for name, change in odd.items():
        heard = await here.hear(recorded, change(recorded.body), recorded.content_type)
        assert (heard["outcome"], heard["error"]) == ("complete", None), name
        content = orjson.dumps(heard["reply"]).replace(b"." * 2**20, b"")
        if name == "as it should be":
            usual = content
        assert content == usual, name


def broken_in_the_middle(recorded: Recorded) -> bytes:
    """A stream with an event that has lost its end, which was not the end of all."""
    parts = list(recorded.parts) if len(recorded.parts) > 1 else recorded.body.split(b"\n,\r\n")
    at = next(index for index, part in enumerate(parts) if OE in part)
    parts[at] = parts[at][: parts[at].index(OE)] + parts[at][len(parts[at].rstrip()) :]
    return b"".join(parts)


DAMAGED: dict[str, Callable[[Recorded], bytes]] = {
    "an event that is no JSON": broken_in_the_middle,
    "bytes that are no text": lambda recorded: recorded.body.replace(OE, b"\xff\xfe"),
    "cut off": lambda recorded: recorded.body[: len(recorded.body) * 2 // 3],
    "a page": lambda recorded: PAGE,
    "nothing": lambda recorded: b"",
    "no text at all": lambda recorded: bytes(range(256)) * 9,
}


def is_marked(record: dict[str, Any]) -> bool:
    """Whether the log says what is wrong, and nobody learns from it."""
    return bool(record["error"]) and (record["outcome"] != "complete" or record["reply"] is None)


@every_stream
async def test_an_answer_that_is_damaged_is_passed_on_and_marked(here: World, recorded: Recorded) -> None:
    fine = await here.hear(recorded, recorded.body, recorded.content_type)
    damaged = {name: damage(recorded) for name, damage in DAMAGED.items()}
    errors = {f"{name} error": orjson.dumps(error) for name, error in ERRORS.items()}
    for name, body in (damaged | errors).items():
        for content_type in (recorded.content_type, "application/json", "text/html"):
            heard = await here.hear(recorded, body, content_type)
            # Responses says all of it again at its end: what was damaged before does not matter.
            assert is_marked(heard) or heard["reply"] == fine["reply"], (name, content_type)
            if name.endswith("error"):
                assert "out of memory" in heard["error"], (name, content_type)
    assert (fine["outcome"], fine["error"]) == ("complete", None)


async def test_compressed_bytes_that_are_damaged_are_passed_on_and_marked(here: World) -> None:
    """All formats share the decoding, so one format is enough here."""
    recorded = STREAMS["chat"]
    whole, flat = gzip.compress(recorded.body), zlib.compress(recorded.body)
    damaged = {
        "cut off": (whole[: len(whole) // 2], "gzip"),
        "a bit is wrong": (whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], "gzip"),
        "deflate, cut off": (flat[: len(flat) // 2], "deflate"),
        "not compressed": (recorded.body, "gzip"),
        "br, cut off": ((packed := brotli.compress(recorded.body))[: len(packed) // 2], "br"),
        "zstd, cut off": ((tight := zstandard.compress(recorded.body))[: len(tight) // 2], "zstd"),
        "br that is none": (recorded.body, "br"),
        "zstd that is none": (recorded.body, "zstd"),
        "unknown": (recorded.body, "rot13"),
    }
    for name, (body, encoding) in damaged.items():
        assert is_marked(await here.hear(recorded, body, recorded.content_type, encoding)), name
    fine = await here.hear(recorded, whole, recorded.content_type, "gzip")
    assert (fine["outcome"], fine["error"]) == ("complete", None)


BROKEN_REQUESTS = {
    "invalid UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
    "UTF-16": '{"model":"m","messages":[]}'.encode("utf-16"), "half a body": b'{"model":"m","messages":[',
    "an array": b"[]", "nothing": b"", "nested without end": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_a_request_that_is_no_json_is_the_upstreams_to_judge(here: World, dialect: Any) -> None:
    here.server.script = reply(PAGE, status="418 I'm a teapot")
    for name, body in BROKEN_REQUESTS.items():
        answer = await here.http.post(dialect.path, content=body)
        assert (answer.status_code, answer.content) == (418, PAGE), name
        assert here.server.requests[-1].body == body, name
        passed = (await here.http.get("/burnish/passthrough?limit=1")).json()["data"][0]
        assert "JSON" in passed["error"], name


async def test_half_an_emoji_in_a_request_is_the_upstreams_to_judge(tmp_path: Path) -> None:
    """Clients in JavaScript cut texts within a character, and write the half as an escape."""
    body = b'{ "model":"default","x\\ud83d":1,"messages":[{"role":"user","content":"cut \\ud83d"}]}'
    got: list[bytes] = []

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        got.append(request.body)
        await stream(list(RECORDED["chat"].parts))(request, writer)

    async with behind(tmp_path, script, model="theirs") as (http, _):
        answer = await http.post("/v1/chat/completions", content=body)
        name = answer.headers["x-burnish-completion-id"]
        record = (await http.get(f"/burnish/completions/{name}")).json()
    assert got == [body.replace(b"default", b"theirs")]
    assert record["messages"][0]["content"] == "cut \ufffd"
    assert record["outcome"] == "complete"
