"""Requests that are no completions are logged by their figures, and never by what they say."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from pathlib import Path
from typing import Any

import brotli
import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from burnish.proxy.relay.flight import ENDS_BYTES, Ends
from tests.app.observe.scrapes import scrape
from tests.support.inprocess import behind
from tests.support.patience import within
from tests.support.upstream import reply

VECTOR = [0.25] * 3000
SECRET = "nobody must find this"


def stored(tmp_path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file())


async def passed(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await client.get("/burnish/passthrough")).json()["data"])


PACK = {"": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}
USAGE = {"prompt_tokens": 7, "total_tokens": 7, "prompt_tokens_details": {"cached": 0}}


@pytest.mark.parametrize("usage_first", [True, False])
@pytest.mark.parametrize("encoding", ["", "gzip", "deflate", "br"])
async def test_an_embedding_is_logged_with_tokens(tmp_path: Path, encoding: str, usage_first: bool) -> None:
    data = {"object": "list", "data": [{"embedding": VECTOR, "index": 0}], "model": "served"}
    usage = {"usage": USAGE}
    content = orjson.dumps(usage | data if usage_first else data | usage)
    headers = f"content-type: application/json\r\ncontent-encoding: {encoding}\r\n"
    said = PACK[encoding](content)
    async with behind(tmp_path, reply(said, headers=headers)) as (client, _):
        ann, began = {"x-burnish-user": "ann"}, time.monotonic()
        openai = AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="-", default_headers=ann)
        answer = await openai.embeddings.create(model="small", input=SECRET, encoding_format="float")
        assert answer.data[0].embedding == VECTOR
        await openai.close()
        (record,) = await passed(client)
        assert (await client.get("/burnish/completions")).json()["data"] == []
        assert (await client.get("/burnish/status")).json()["counts"]["passthrough"] == 1
        metrics = await scrape(client)
    assert record.items() >= {
        "method": "POST", "path": "/v1/embeddings", "model": "small", "status": 200, "outcome": "complete",
        "caller": "ann", "prompt_tokens": 7,
    }.items()  # fmt: skip
    assert record["response_bytes"] == len(said)
    asked = orjson.dumps({"input": SECRET, "model": "small", "encoding_format": "float"})
    assert record["request_bytes"] == len(asked)
    assert 0 < record["first_byte_s"] <= record["total_s"] < time.monotonic() - began
    assert record["id"].startswith("pass_")
    for counted, labels, value in (
        ("total", {"status": "2xx", "outcome": "complete"}, 1),
        ("bytes_total", {"direction": "in"}, len(said)),
        ("tokens_total", {"type": "input"}, 7),
    ):
        assert metrics.value(f"burnish_passthrough_{counted}", kind="embeddings", **labels) == value
    assert SECRET.encode() not in stored(tmp_path)


async def test_audio_files_and_batches_are_logged_and_what_only_looks_is_not(tmp_path: Path) -> None:
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 45}
    async with behind(tmp_path, reply(orjson.dumps({"text": SECRET, "usage": usage}))) as (client, _):
        openai = AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="-")
        sound = b"\0\xff" * 100_000
        await openai.audio.transcriptions.create(model="whisper-1", file=("a.wav", sound))
        await openai.files.create(file=("x.jsonl", SECRET.encode()), purpose="batch")
        batch: Any = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        await openai.batches.create(input_file_id="f", **batch)
        await openai.files.delete("f-1")
        for path in ("/v1/files", "/v1/batches/b", "/health", "/v1/models/small"):
            await client.get(path)
            await client.head(path)
            await client.options(path)
        await client.get("/v1/models")
        await client.put("/whatever?model=from-the-query&key=private", content=b"{")
        await openai.close()
        records = (await passed(client))[::-1]
        pages = (await client.get("/burnish/passthrough?limit=2")).json()
        rest = (await client.get(f"/burnish/passthrough?before={pages['data'][-1]['id']}")).json()
        metrics = await scrape(client)
    assert [(each["method"], each["path"], each["model"]) for each in records] == [
        ("POST", "/v1/audio/transcriptions", "whisper-1"),
        ("POST", "/v1/files", None),
        ("POST", "/v1/batches", None),
        ("DELETE", "/v1/files/f-1", None),
        ("PUT", "/whatever", "from-the-query"),
    ]
    assert (records[0]["prompt_tokens"], records[0]["completion_tokens"]) == (14, 45)
    assert records[0]["request_bytes"] > len(sound)
    assert [each["id"] for each in pages["data"] + rest["data"]] == [each["id"] for each in records[::-1]]
    assert (pages["has_more"], rest["has_more"]) == (True, False)
    assert metrics.total("burnish_passthrough_total", kind="files") == 2
    assert metrics.total("burnish_passthrough_total", kind="other") == 1
    files = stored(tmp_path)
    assert [each in files for each in (SECRET.encode(), sound[:64], b"private")] == [False] * 3


HOSTILE = [
    b'{"usage": {"prompt_tokens": -1, "completion_tokens": "9", "total_tokens": 1e400}}',
    b'{"usage": {"prompt_tokens": 36893488147419103232}}', b'{"usage": null}', b'{"usage": [1]}',
    b'{"usage": {"prompt_tokens":', b'{"usage": {"a":' + b"[" * 3000,
    b'{"text": "\\"usage\\": {\\"prompt_tokens\\": 5}"}', b"\xff\xfe\0\0", b"",
]  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE)
async def test_an_answer_that_says_nonsense_is_logged_without_tokens(tmp_path: Path, content: bytes) -> None:
    async with behind(tmp_path, reply(content)) as (client, _):
        odd = b'{"model": "\\ud800", "input": "\\"model\\": \\"no\\""}'
        assert (await client.post("/v1/embeddings?model", content=odd)).content == content
        (record,) = await passed(client)
    assert (record["prompt_tokens"], record["completion_tokens"], record["model"]) == (None, None, "?")


@pytest.mark.parametrize(
    "content", [gzip.compress(b" " * 2**26), b"no gzip at all", b""], ids=["bomb", "none", "empty"]
)
async def test_a_compressed_answer_that_cannot_be_read_is_passed_on(tmp_path: Path, content: bytes) -> None:
    async with behind(tmp_path, reply(content, headers="content-encoding: gzip\r\n")) as (client, _):
        async with client.stream("POST", "/v1/embeddings", json={}) as answer:
            assert b"".join([part async for part in answer.aiter_raw()]) == content
        (record,) = await passed(client)
    logged = (record["outcome"], record["response_bytes"], record["prompt_tokens"])
    assert logged == ("complete", len(content), None)


async def test_what_went_wrong_is_logged(tmp_path: Path) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.target == "/v1/cut":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
            await writer.drain()
            writer.transport.abort()
        elif request.target == "/v1/slow":
            await asyncio.Event().wait()
        else:
            await reply(b"no", status="429 Too Many Requests")(request, writer)

    async with behind(tmp_path, script, first_byte_timeout_s=within(0.5)) as (client, _):
        assert (await client.post("/v1/busy", content=b"x")).status_code == 429
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/cut", content=b"x")
        assert (await client.post("/v1/slow", content=b"x")).status_code == 504
        records = (await passed(client))[::-1]
    assert [(each["status"], each["outcome"], each["response_bytes"]) for each in records] == [
        (429, "complete", 2), (200, "cut", 4), (None, "failed", 0),
    ]  # fmt: skip
    assert "did not begin to answer" in records[2]["error"]


async def test_who_is_forgotten_leaves_nothing_of_it_either(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"{}")) as (client, _):
        for user in ("ann", "ben", "ann"):
            headers = {"x-burnish-user": user}
            await client.post("/v1/embeddings", json={"model": f"of-{user}"}, headers=headers)
        assert (await client.delete("/burnish/users/ann")).json()["erased"] == 2
        assert [each["caller"] for each in await passed(client)] == ["ben"]
    files = stored(tmp_path)
    assert (b"of-ann" in files, b"of-ben" in files) == (False, True)


@given(st.lists(st.binary(max_size=3 * ENDS_BYTES), max_size=6))
def test_the_ends_of_a_body_are_those_of_the_whole(parts: list[bytes]) -> None:
    ends = Ends()
    for part in parts:
        ends.add(part)
    whole = b"".join(parts)
    assert ends.size == len(whole)
    expected = whole if len(whole) <= ENDS_BYTES else whole[:ENDS_BYTES] + b"\n" + whole[-ENDS_BYTES:]
    assert ends.both() == expected
