"""Answers that Responses makes in the background complete the row of their request when a client fetches them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.support.inprocess import behind, logged
from tests.support.responses import events, message, reasoning, response, sse
from tests.support.upstream import Received, Script, reply, stream

Json = dict[str, Any]
CAPE = "On the north cape."


def made(state: str = "completed", *output: Json, **more: Any) -> Json:
    return response(*output, response_id="resp_b", status=state, background=True, **more)


DONE = made("completed", reasoning("Hm."), message(CAPE))


@dataclass
class Server:
    """Queues what it is asked in the background; ``later`` are the answers to the requests that fetch it."""

    later: list[Script]
    first: Script = field(default_factory=lambda: reply(orjson.dumps(made("queued"))))

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET" or request.target.endswith("/cancel"):
            await self.later.pop(0)(request, writer)
        elif request.json().get("background"):
            await self.first(request, writer)
        else:
            await reply(orjson.dumps(response(message("Sure.", name="msg_2"), response_id="resp_next")))(
                request, writer
            )


@dataclass
class World:
    http: httpx.AsyncClient
    server: Server

    async def ask(self, **more: Any) -> str:
        """Ask in the background, and return the id of the completion."""
        body = {"model": "m", "input": "Where?", "background": True, **more}
        async with self.http.stream("POST", "/v1/responses", json=body) as answer:
            with suppress(httpx.HTTPError):
                await answer.aread()
        return answer.headers["x-burnish-completion-id"]

    async def fetch(self, script: Script, query: str = "", **headers: str) -> httpx.Response:
        self.server.later.append(script)
        return await self.http.get(f"/v1/responses/resp_b{query}", headers=headers)

    async def rated(self, completion_id: str) -> tuple[bool, str | None]:
        said = {"completion_id": completion_id, "rating": "good"}
        answer = (await self.http.post("/v1/feedback", json=said)).json()
        return answer["usable"], answer["reason"]

    async def row(self) -> Json:
        return (await logged(self.http))[0]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    server = Server([])
    async with behind(tmp_path, server) as (http, _):
        yield World(http, server)


def whole(body: Json) -> Script:
    return reply(orjson.dumps(body))


async def test_an_answer_that_is_fetched_later_is_rated_and_gone_on_from(here: World) -> None:
    name = await here.ask()
    assert await here.rated(name) == (False, "the question or the answer has no text")
    await here.fetch(whole(made("in_progress")))
    assert (await here.row())["reply"] is None
    assert (await here.fetch(whole(DONE))).json() == DONE
    row = await here.row()
    assert (row["id"], row["outcome"], row["finish_reason"]) == (name, "complete", "stop")
    assert (row["reply"]["content"], row["reply"]["reasoning_content"]) == (CAPE, "Hm.")
    assert row["prompt_tokens"] == 5
    assert row["rating"] == 1.0, "what was said before counts"
    assert await here.rated(name) == (True, None)
    found = (await here.http.get("/burnish/completions", params={"q": "cape"})).json()["data"]
    assert [each["id"] for each in found] == [name]
    exported = (await here.http.get("/burnish/rated")).json()["data"]
    assert [(each["id"], each["obstacle"]) for each in exported] == [(name, None)]
    for more in ({"previous_response_id": "resp_b"}, {"input": [{"type": "item_reference", "id": "msg_1"}]}):
        question = [*more.pop("input", ()), {"role": "user", "content": "Sure?"}]
        body = {"model": "m", "input": question, **more}
        answer = await here.http.post("/v1/responses", json=body)
        assert await here.rated(answer.headers["x-burnish-completion-id"]) == (True, None)
        assert CAPE in str((await logged(here.http))[-1]["messages"])
    typed = {"model": "m", "input": "/rl bad too long", "previous_response_id": "resp_b"}
    assert CAPE in str((await here.http.post("/v1/responses", json=typed)).json()["output"])


CUT = stream(events(made("completed", message(CAPE)))[:6], cut=True)
PACKED = reply(gzip.compress(orjson.dumps(DONE)), headers="content-encoding: gzip\r\n")
RESUMED = "?stream=true&starting_after=5"
THIN = [*events(DONE)[4:-1], sse("response.completed", {"response": {**DONE, "output": []}})]
FETCHED: dict[str, tuple[Json, Script, Script, str]] = {
    "whole": ({}, whole(made("queued")), whole(DONE), ""),
    "compressed": ({}, whole(made("queued")), PACKED, ""),
    "as a stream": ({}, whole(made("queued")), stream(events(DONE)), "?stream=true"),
    "as a stream whose end is thin": (
        {}, whole(made("queued")),
        stream([*events(DONE)[:-1], sse("response.completed", {"response": {**DONE, "output": []}})]), "?stream=true",
    ),
    "the stream broke and was resumed": ({"stream": True}, CUT, stream(events(DONE)[5:]), RESUMED),
    "the stream broke and was polled": ({"stream": True}, CUT, whole(DONE), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FETCHED)
async def test_it_may_be_fetched_in_any_way(here: World, name: str) -> None:
    more, here.server.first, script, query = FETCHED[name]
    completion = await here.ask(**more)
    assert (await here.rated(completion))[0] is False
    await here.fetch(script, query)
    assert (await here.row())["reply"]["content"] == CAPE
    assert await here.rated(completion) == (True, None)


@pytest.mark.parametrize(
    ("script", "query", "user"),
    [
        (stream(THIN), "?stream=true&starting_after=4", "local"),
        (whole(DONE), "", "eve"),
        (whole(made("in_progress", message("On the"))), "", "local"),
        (stream(events(DONE)[:-1]), "?stream=true", "local"),
        (reply(b'{"error": {"message": "gone"}}', status="404 Not Found"), "", "local"),
        (reply(b"<html>"), "", "local"),
    ],
    ids=["resumed without the beginning", "another caller", "not ready", "cut off", "gone", "no JSON"],
)
async def test_what_is_not_there_whole_completes_nothing(
    here: World, script: Script, query: str, user: str
) -> None:
    completion = await here.ask()
    await here.fetch(script, query, **{"x-burnish-user": user})
    assert (await here.row())["reply"] is None
    assert (await here.rated(completion))[0] is False


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_an_answer_that_came_to_nothing_teaches_nothing(here: World, state: str) -> None:
    completion = await here.ask()
    error = {"code": "server_error", "message": "oops"} if state == "failed" else None
    ended = whole(made(state, error=error))
    if state == "failed":
        await here.fetch(ended)
    else:
        here.server.later.append(ended)
        await here.http.post("/v1/responses/resp_b/cancel")
    assert (await here.rated(completion))[0] is False


async def test_the_turn_after_an_answer_that_nobody_fetched_lacks_it(here: World) -> None:
    await here.ask()
    body = {"model": "m", "input": "Sure?", "previous_response_id": "resp_b"}
    answer = await here.http.post("/v1/responses", json=body)
    assert await here.rated(answer.headers["x-burnish-completion-id"]) == (
        False,
        "the history is with the upstream",
    )
    records = await logged(here.http)
    assert [each["content"] for each in records[1]["messages"]] == ["Where?", "", "Sure?"]


async def test_a_finished_row_stays_as_it_is(here: World) -> None:
    await here.ask()
    await here.fetch(whole(DONE))
    before = await here.row()
    await here.fetch(whole(made("completed", message("Elsewhere."))))
    assert await here.row() == before
