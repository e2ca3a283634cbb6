from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.behind import behind
from tests.support.inprocess import serving
from tests.support.upstream import Received, completion, events, reply, stream, upstream

ASK = {"model": "mock", "messages": [{"role": "user", "content": "Say hello."}]}
PATH = "/v1/chat/completions"


async def record_of(client: httpx.AsyncClient, response_id: str) -> dict[str, Any]:
    answer = await client.get(f"/burnish/completions/{response_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_bytes_and_headers_go_through_untouched(tmp_path: Path) -> None:
    content = completion()
    headers = "content-type: application/json; odd\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ndate: then\r\n"
    body = b' {"messages" : [{"role":"user","content":"h\\u00e4?"}],\n "model":"mock", "user":"u" } '
    async with behind(tmp_path, reply(content, headers=headers)) as (client, server):
        answer = await client.post(
            PATH,
            content=body,
            headers={
                "content-type": "application/json",
                "authorization": "Bearer sk-caller",
                "x-custom": "1",
            },
        )
    got = server.requests[-1]
    assert got.body == body
    assert got.header("authorization") == "Bearer sk-caller"
    assert got.header("x-custom") == "1"
    assert [value for name, value in got.headers if name.lower() == "host"] == [
        server.url.removeprefix("http://")
    ]
    assert answer.content == content
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers.get_list("date") == ["then"]
    assert answer.headers["content-type"] == "application/json; odd"
    assert answer.headers["x-burnish-completion-id"].startswith("cmpl_")
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "sub_agent"),
    [
        ({}, False),
        ({"x-claude-code-session-id": "1", "x-session-id": "ses_1"}, False),
        ({"X-Claude-Code-Agent-Id": "a5d7f3b96f80b7fd5", "x-claude-code-session-id": "1"}, True),
        ({"x-parent-session-id": "ses_1", "x-session-id": "ses_2"}, True),
    ],
)
async def test_a_sub_agent_is_known_by_its_headers(
    tmp_path: Path, headers: dict[str, str], sub_agent: bool
) -> None:
    async with behind(tmp_path, reply(completion())) as (client, server):
        answer = await client.post(PATH, json=ASK, headers=headers)
        record = await record_of(client, answer.headers["x-burnish-completion-id"])
        last = await client.post("/v1/feedback", json={"last": True, "rating": "good"})
    assert record["sub_agent"] is sub_agent
    assert last.status_code == (404 if sub_agent else 201)
    assert all(server.requests[-1].header(name) == value for name, value in headers.items())


async def test_a_stream_streams(tmp_path: Path) -> None:
    parts, hold = events("one two three"), asyncio.Event()
    async with (
        behind(tmp_path, stream(parts, hold=hold)) as (client, _),
        client.stream("POST", PATH, json={**ASK, "stream": True}) as answer,
    ):
        got = b""
        async for chunk in answer.aiter_raw():
            got += chunk
            if got == b"".join(parts[:-1]):
                hold.set()  # the last part is sent only after all others have arrived here
        assert got == b"".join(parts)


@pytest.mark.parametrize("named", ["completion_id", "response_id"])
async def test_a_rating_that_overtakes_the_end_of_its_answer_waits_for_it(tmp_path: Path, named: str) -> None:
    hold = asyncio.Event()
    async with behind(tmp_path, stream(events("one two three"), hold=hold)) as (client, _):
        async with client.stream("POST", PATH, json={**ASK, "stream": True}) as answer:
            parts = answer.aiter_raw()
            first = (await anext(parts)).removeprefix(b"data: ").partition(b"\n")[0]
            made = answer.headers["x-burnish-completion-id"]
            meant = made if named == "completion_id" else orjson.loads(first)["id"]
            early = await client.post("/v1/feedback", json={named: meant, "rating": "bad"})
            async with asyncio.TaskGroup() as group:
                rating = group.create_task(client.post("/v1/feedback", json={named: meant, "rating": "good"}))
                await asyncio.sleep(0.2)
                assert not rating.done()
                hold.set()
                async for _ in parts:
                    pass
    rated = rating.result()
    assert early.status_code == 404
    assert "can be rated once it has ended" in early.json()["error"]["message"]
    assert (rated.status_code, rated.json()["completion_id"]) == (201, made)


async def test_default_means_the_upstreams_own_model(tmp_path: Path) -> None:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        models = orjson.dumps({"object": "list", "data": [{"id": "their-model", "object": "model"}]})
        await reply(models if request.target == "/v1/models" else completion())(request, writer)

    async with (
        upstream(script) as server,
        serving(tmp_path, upstream=server.url + "/v1") as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        await client.post(PATH, json={**ASK, "model": "default"})
        listed = (await client.get("/v1/models")).json()
    assert server.requests[-2].json()["model"] == "their-model"
    assert {entry["id"] for entry in listed["data"]} == {"default", "their-model"}


@pytest.mark.parametrize(
    ("status", "headers", "content"),
    [
        (
            "429 Too Many Requests",
            "retry-after: 7\r\ncontent-type: application/json\r\n",
            b'{"error":{"message":"slow"}}',
        ),
        ("500 Oh", "content-type: text/plain\r\n", b"oh dear"),
        ("401 Unauthorized", "www-authenticate: Bearer\r\n", b""),
        ("307 Temporary Redirect", "location: http://elsewhere.example/\r\n", b""),
    ],
)
async def test_an_upstreams_error_arrives_as_it_is(
    tmp_path: Path, status: str, headers: str, content: bytes
) -> None:
    async with upstream(reply(content, status=status, headers=headers)) as server:
        async with (
            serving(tmp_path, upstream=server.url) as (url, _),
            httpx.AsyncClient(base_url=url) as client,
        ):
            answer = await client.post(PATH, json=ASK)
            assert answer.status_code == int(status[:3])
            assert answer.content == content
            name, _, value = headers.split("\r\n", maxsplit=1)[0].partition(": ")
            assert answer.headers[name] == value
            record = await record_of(client, answer.headers["x-burnish-completion-id"])
            assert record["status"] == int(status[:3])
    assert len(server.requests) == 1


async def test_nobody_listening_is_a_502_that_says_so(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        answer = await client.post(PATH, json=ASK)
        assert answer.status_code == 502
        assert "Is it running?" in answer.json()["error"]["message"]
        record = await record_of(client, answer.headers["x-burnish-completion-id"])
        assert record["outcome"] == "failed"


async def test_a_cut_stream_arrives_cut_and_is_logged_so(tmp_path: Path) -> None:
    parts = events("half an answ", done=False)
    async with behind(tmp_path, stream(parts, cut=True)) as (client, _):
        got = b""
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("POST", PATH, json={**ASK, "stream": True}) as answer:
                async for chunk in answer.aiter_raw():
                    got += chunk
        assert got == b"".join(parts)
        record = await record_of(client, answer.headers["x-burnish-completion-id"])
        assert record["outcome"] == "cut"
        assert record["reply"]["content"] == "half an answ"


async def test_the_log_reads_what_was_compressed_and_the_client_gets_it_compressed(tmp_path: Path) -> None:
    packed = gzip.compress(completion("Packed."))
    script = reply(packed, headers="content-type: application/json\r\ncontent-encoding: gzip\r\n")
    async with behind(tmp_path, script) as (client, _):
        async with client.stream("POST", PATH, json=ASK) as answer:
            assert b"".join([part async for part in answer.aiter_raw()]) == packed
        record = await record_of(client, answer.headers["x-burnish-completion-id"])
        assert record["reply"]["content"] == "Packed."


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "JSON object"),
        (b'{"model":5,"messages":[]}', 400, "model"),
        (b'{"model":"m","messages":"hi"}', 400, "messages"),
        (b'{"model":"m","messages":[' + b'"x",' * 600 + b'"x"]}', 413, "max_body_bytes"),
    ],
)
async def test_bad_requests_are_explained(tmp_path: Path, content: bytes, status: int, says: str) -> None:
    async with behind(tmp_path, reply(completion()), max_body_bytes=1024) as (client, server):
        answer = await client.post(PATH, content=content)
    assert (answer.status_code, server.requests) == (status, [])
    assert says in answer.json()["error"]["message"]


async def test_every_other_path_goes_through(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"ok", headers="x-y: z\r\n")) as (client, server):
        big = b"x" * 3_000_000
        assert (await client.post("/v1/audio?a=%2Fb&c", content=big)).content == b"ok"
        assert (await client.get("/anything%20else")).headers["x-y"] == "z"
        assert (await client.request("DELETE", "/v1/files/f1")).status_code == 200
    assert [(r.method, r.target) for r in server.requests] == [
        ("POST", "/v1/audio?a=%2Fb&c"),
        ("GET", "/anything%20else"),
        ("DELETE", "/v1/files/f1"),
    ]
    assert server.requests[0].body == big


async def test_engine_management_and_foreign_pages_are_refused(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(b"ok")) as (client, server):
        assert (await client.post("/v1/load_lora_adapter", json={})).status_code == 403
        assert (await client.get("/v1/models", headers={"host": "evil.example"})).status_code == 403
        assert (
            await client.post(PATH, json=ASK, headers={"origin": "http://evil.example"})
        ).status_code == 403
    assert server.requests == []


async def test_unknown_own_routes_answer_in_the_envelope(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        for method, path, status in (("GET", "/burnish/nothing", 404), ("PUT", "/v1/feedback", 405)):
            answer = await client.request(method, path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}


async def test_a_rating_typed_in_the_chat_is_answered_here_and_leaves_the_history(tmp_path: Path) -> None:
    async with behind(tmp_path, reply(completion("Hi there."))) as (client, server):
        await client.post(PATH, json=ASK)
        history = [*ASK["messages"], {"role": "assistant", "content": "Hi there."}]
        history.append({"role": "user", "content": "/rl bad too short"})
        rated = (await client.post(PATH, json={**ASK, "messages": history})).json()
        said = rated["choices"][0]["message"]["content"]
        ratings = (await client.get("/v1/feedback")).json()
        history += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again?"}]
        await client.post(PATH, json={**ASK, "messages": history})
    assert len(server.requests) == 2
    assert [message["content"] for message in server.requests[1].json()["messages"]] == [
        "Say hello.",
        "Hi there.",
        "Again?",
    ]
    assert [entry["comment"] for entry in ratings["data"]] == ["too short"]
