"""Requests that are the upstream's to judge: compressed ones, and bodies that burnish can't read."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import orjson
import pytest
import zstandard

from tests.support.dialects import DIALECTS, Answer, user
from tests.support.inprocess import behind, calling, logged
from tests.support.program import call
from tests.support.sdks import world
from tests.support.upstream import reply

Json = dict[str, Any]
HI = {"role": "user", "content": "Hi."}
RATED = [HI, {"role": "assistant", "content": "Rain."}, {"role": "user", "content": "/rl good"}]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress,
    "zstd": zstandard.compress, "zstd, gzip": lambda body: gzip.compress(zstandard.compress(body)),
    "identity": lambda body: body,
}  # fmt: skip
CHAT = "/v1/chat/completions"


def told(name: str) -> Any:
    return reply(orjson.dumps(DIALECTS[name].answer(Answer("Rain."))))


@pytest.mark.parametrize("name", ["chat", "responses", "messages", "gemini"])
async def test_a_compressed_request_goes_as_it_came_and_is_logged_and_rated(tmp_path: Path, name: str):
    dialect = DIALECTS[name]
    async with behind(tmp_path, told(name)) as (client, server):
        for encoding, pack in PACK.items():
            headers = {"content-encoding": encoding, "x-burnish-user": encoding}
            body = pack(orjson.dumps(dialect.body((user("Weather?"),))))
            await client.post(dialect.path, content=body, headers=headers)
            arrived = server.requests[-1]
            assert (arrived.body, arrived.header("content-encoding")) == (body, encoding)
            history = (user("Weather?"), Answer("Rain."), user("/rl good"))
            rating = pack(orjson.dumps(dialect.body(history)))
            rated = await client.post(dialect.path, content=rating, headers=headers)
            assert dialect.says(rated.json()).startswith("burnish: rated good"), encoding
            record = (await logged(client))[-1]
            assert (record["prompt"], record["rating"], record["caller"]) == ("Weather?", 1.0, encoding)
    assert len(server.requests) == len(PACK)


async def test_a_compressed_request_that_burnish_changes_goes_uncompressed(tmp_path: Path) -> None:
    headers = {"content-encoding": "gzip"}
    history = [*RATED, {"role": "assistant", "content": "burnish: rated good"}]
    for changed in ({"model": "default", "messages": [HI]}, {"model": "m", "messages": [*history, HI]}):
        async with behind(tmp_path, told("chat"), model="theirs") as (client, server):
            await client.post(CHAT, content=gzip.compress(orjson.dumps(changed)), headers=headers)
        assert server.requests[0].header("content-encoding") is None
        assert orjson.loads(server.requests[0].body)["model"] in ("theirs", "m")
        assert "/rl" not in str(server.requests[0].body)
    async with world(tmp_path / "chat only", {"content": "Rain."}) as here:
        body = gzip.compress(orjson.dumps({"model": "mock", "max_tokens": 9, "messages": [HI]}))
        assert (await here.http.post("/v1/messages", content=body, headers=headers)).status_code == 200
        assert here.asked()[0]["messages"] == [HI]
        assert here.upstream.requests[-1].header("content-encoding") is None


async def test_a_compressed_request_that_cannot_be_read_is_passed_on_and_noted(tmp_path: Path) -> None:
    asked = orjson.dumps({"model": "m", "messages": [HI]})
    cases = {
        "gzip": (gzip.compress(asked)[:20], "JSON"),
        "zstd": (asked, "not zstd"),
        "rot13": (asked, "unknown content-encoding 'rot13'"),
        "br": (brotli.compress(b" " * 2**20 + asked), "longer than max_body_bytes"),
    }
    async with behind(tmp_path, reply(b"{}"), max_body_bytes=2**16) as (client, server):
        for encoding, (body, says) in cases.items():
            answer = await client.post(CHAT, content=body, headers={"content-encoding": encoding})
            arrived = server.requests[-1]
            assert (answer.content, arrived.body) == (b"{}", body)
            assert arrived.header("content-encoding") == encoding
            passed = (await client.get("/burnish/passthrough?limit=1")).json()["data"][0]
            assert says in passed["error"], encoding
        assert await logged(client) == []


@pytest.mark.parametrize("streams", [1, "true", "True", True])
async def test_other_spellings_of_a_stream_are_the_upstreams_to_judge(tmp_path: Path, streams: Any) -> None:
    asked = {"model": "m", "stream": streams, "messages": [HI]}
    async with behind(tmp_path, told("chat")) as (client, server):
        await client.post(CHAT, json=asked)
        rated = await client.post(CHAT, json=asked | {"messages": RATED})
        (record,) = await logged(client)
    assert server.requests[0].json() == asked
    assert (record["rating"], record["params"]["stream"]) == (1.0, streams)
    assert rated.headers["content-type"].startswith("text/event-stream")


ODD: list[tuple[str, Json, str]] = [
    ("chat", {}, "messages must be a list"),
    ("chat", {"model": "m", "messages": "Hi."}, "messages must be a list"),
    ("chat", {"model": 5, "messages": [HI]}, "model must be a string"),
    ("chat", {"model": "m", "messages": [{"content": "Hi."}]}, "messages[0].role"),
    ("chat", {"model": "m", "messages": [{"role": None, "content": "Hi."}]}, "messages[0].role"),
    ("chat", {"model": "m", "messages": [{"role": 7, "content": "Hi."}]}, "messages[0].role"),
    ("completions", {"model": "m", "prompt": {}}, "prompt must be"),
    ("responses", {"model": "m", "input": 5}, "input must be"),
    ("messages", {"model": "m", "messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ("ollama_chat", {"model": "m", "messages": ["Hi."]}, "messages[0] must be"),
    ("ollama_generate", {"model": "m", "prompt": 5}, "prompt must be"),
    ("gemini", {"contents": "Hi."}, "contents must be"),
]


async def test_a_body_that_burnish_cannot_read_is_the_upstreams_to_judge_and_noted(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b'{"whatever": 1}')) as (client, server):
        for name, body, says in ODD:
            answer = await client.post(DIALECTS[name].path, json=body)
            assert (answer.status_code, answer.content) == (200, b'{"whatever": 1}'), body
            assert server.requests[-1].json() == body
            passed = (await client.get("/burnish/passthrough?limit=1")).json()["data"][0]
            assert passed["error"].startswith("not logged as a completion, because")
            assert says in passed["error"]
            assert (passed["outcome"], passed["status"]) == ("complete", 200)
        assert await logged(client) == []
        url = str(client.base_url).rstrip("/")
        shown = await asyncio.to_thread(call, "history", "--passthrough", url=url)
    assert "note: not logged as a completion, because burnish can't read it: contents must" in shown.stdout


async def test_an_odd_role_is_logged(tmp_path: Path) -> None:
    asked = {"model": "m", "messages": [HI | {"role": "critic"}]}
    async with behind(tmp_path, told("chat")) as (client, server):
        await client.post(CHAT, json=asked)
        (record,) = await logged(client)
    assert (server.requests[0].json(), record["messages"]) == (asked, asked["messages"])


async def test_burnish_judges_what_it_would_have_to_translate(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for _ in range(2):
            for name, body, says in ODD:
                if name in ("chat", "completions"):
                    continue
                answer = await here.http.post(DIALECTS[name].path, json=body)
                error = answer.json()["error"]
                assert answer.status_code == 400
                assert says in (error if isinstance(error, str) else error["message"])
        assert here.asked() == []


async def test_burnish_judges_for_the_embedded_engine(tmp_path: Path) -> None:
    empty: list[tuple[str, Json, str]] = [
        ("chat", {"messages": []}, "messages is empty"),
        ("messages", {"messages": [], "max_tokens": 3}, "messages is empty"),
        ("responses", {"input": []}, "input is empty"),
        ("gemini", {"contents": []}, "contents is empty"),
    ]
    async with calling(tmp_path) as client:
        for name, body, says in ODD + empty:
            path = DIALECTS[name].path.replace("/m:", "/default:")
            answer = await client.post(path, json=body | {"model": body.get("model", "default")})
            error = answer.json()["error"]
            assert answer.status_code == 400, (name, body)
            assert says in (error if isinstance(error, str) else error["message"])
        loaded = await client.post("/api/chat", json={"model": "default", "messages": [], "stream": False})
        assert (loaded.status_code, loaded.json()["done_reason"]) == (200, "load")
