from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from burnish.proxy.feedback import targets
from burnish.proxy.http.errors import NotFound
from burnish.proxy.log import Log
from burnish.proxy.records import Completion
from tests.support.inprocess import behind, calling, logged
from tests.support.patience import within
from tests.support.upstream import completion, events, reply, stream

ASK = {"model": "mock", "messages": [{"role": "user", "content": "Say hello."}]}
PATH = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("headers", "sub_agent"),
    [
        ({}, False),
        ({"x-claude-code-session-id": "1", "x-session-id": "ses_1"}, False),
        ({"X-Claude-Code-Agent-Id": "a5d7f3b96f80b7fd5", "x-claude-code-session-id": "1"}, True),
        ({"x-parent-session-id": "ses_1", "x-session-id": "ses_2"}, True),
    ],
)
async def test_headers_mark_a_sub_agent(tmp_path: Path, headers: dict[str, str], sub_agent: bool) -> None:
    async with behind(tmp_path, reply(completion())) as (client, server):
        await client.post(PATH, json=ASK, headers=headers)
        (record,) = await logged(client)
        last = await client.post("/v1/feedback", json={"last": True, "rating": "good"})
    assert record["sub_agent"] is sub_agent
    assert last.status_code == (404 if sub_agent else 201)
    assert all(server.requests[-1].header(name) == value for name, value in headers.items())


@pytest.mark.parametrize("named", ["completion_id", "response_id"])
async def test_an_early_rating_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    hold, missed = asyncio.Event(), asyncio.Event()
    resolve = Log.resolve

    async def looked_up(log: Log, **target: Any) -> Completion:
        try:
            return await resolve(log, **target)
        except NotFound:
            missed.set()
            raise

    monkeypatch.setattr(Log, "resolve", looked_up)
    async with behind(tmp_path, stream(events("one two three"), hold=hold)) as (client, _):
        async with client.stream("POST", PATH, json={**ASK, "stream": True}) as answer:
            parts = answer.aiter_raw()
            first = (await anext(parts)).removeprefix(b"data: ").partition(b"\n")[0]
            made = answer.headers["x-burnish-completion-id"]
            meant = made if named == "completion_id" else orjson.loads(first)["id"]
            early = await client.post("/v1/feedback", json={named: meant, "rating": "bad"})
            missed.clear()
            monkeypatch.setattr(targets, "PATIENCE_S", within(60))
            async with asyncio.TaskGroup() as group:
                rating = group.create_task(client.post("/v1/feedback", json={named: meant, "rating": "good"}))
                await missed.wait()
                assert not rating.done()
                hold.set()
                async for _ in parts:
                    pass
    rated = rating.result()
    assert early.status_code == 404
    assert "can be rated once it has ended" in early.json()["error"]["message"]
    assert (rated.status_code, rated.json()["completion_id"]) == (201, made)


async def test_unknown_own_routes_answer_in_the_envelope(tmp_path: Path) -> None:
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as client:
        for method, path, status in (("GET", "/burnish/nothing", 404), ("PUT", "/v1/feedback", 405)):
            answer = await client.request(method, path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}


@pytest.mark.parametrize("count", ["99999999999999999999", "9" * 5000, "²", "-1", "1.5", "", "7"])
async def test_no_header_keeps_a_request_out_of_the_log(tmp_path: Path, count: str) -> None:
    headers = {"x-stainless-retry-count": count.encode("utf-8")}
    async with behind(tmp_path, reply(completion("Tea."))) as (client, _):
        answer = await client.post(PATH, json=ASK, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 200
        (row,) = await logged(client)
        assert (row["id"], row["usable"]) == (answer.headers["x-burnish-completion-id"], True)
        assert (await client.get("/healthz")).json()["status"] == "ok"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
@pytest.mark.parametrize("digits", [10, 5000])
async def test_a_number_of_a_version_has_few_digits(tmp_path: Path, method: str, digits: int) -> None:
    async with behind(tmp_path, reply(completion())) as (client, _):
        for after in ("", "/promote", "/judge", "/export"):
            found = await client.request(method, f"/burnish/adapters/{'9' * digits}{after}")
            assert found.status_code == 404
