"""Requests and answers that are read in a child process are treated as short ones are."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from burnish.proxy.surfaces.deltas import MOST_CALLS
from burnish.system.apart import LARGE_BYTES
from tests.support.chat_wire import called
from tests.support.dialects import DIALECTS, Answer, user
from tests.support.inprocess import behind, logged
from tests.support.sdks import FORMATS, world
from tests.support.sdks import user as says
from tests.support.upstream import reply, stream

LONG = "word " * (LARGE_BYTES // 4)
MARK = "first word"


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_large_request_arrives_as_it_was_and_is_logged(tmp_path: Path, name: str):
    dialect = DIALECTS[name]
    answer = reply(orjson.dumps(dialect.answer(Answer("Rain."))))
    async with behind(tmp_path, answer, model="theirs") as (client, server):
        asked = dialect.body((user(LONG),))
        if named := asked.get("model"):
            asked["model"] = "default"
        body = orjson.dumps(asked)
        answered = await client.post(dialect.path, content=body)
        (record,) = await logged(client)
        await client.post("/v1/feedback", json={"last": True, "rating": "good"})
        (rated,) = await logged(client)
    expected = body.replace(b'"default"', b'"theirs"') if named else body
    assert (server.requests[0].body == expected, dialect.says(answered.json())) == (True, "Rain.")
    assert (record["outcome"], record["messages"][-1]["content"] == LONG) == ("complete", True)
    assert rated["rating"] == 1.0


@pytest.mark.filterwarnings("ignore:Sending a large body")
@pytest.mark.parametrize("name", FORMATS)
async def test_a_large_request_is_translated(tmp_path: Path, name: str):
    async with world(tmp_path, {"content": "Rain."}) as here:
        assert (await here.ask(name, [says(LONG)])).text == "Rain."
        (chat,) = here.asked()
        (record,) = await here.logged()
    assert chat["messages"][-1]["content"] == LONG
    assert record["messages"][-1]["content"] == LONG


async def test_a_large_request_continues_an_answer_that_only_the_log_has(tmp_path: Path):
    async with world(tmp_path, {"content": "Rain."}, {"content": "Snow."}) as here:
        first = await here.ask("responses", [says(MARK)])
        again = await here.ask("responses", [says(LONG)], previous_response_id=first.raw.id)
        assert again.text == "Snow."
        assert [each["content"] for each in here.asked()[-1]["messages"]] == [MARK, "Rain.", LONG]


async def test_instructions_and_commands_reach_large_requests(tmp_path: Path):
    answer = reply(orjson.dumps(DIALECTS["chat"].answer(Answer("Rain."))))
    async with behind(tmp_path, answer, instructions=True, model="theirs") as (client, server):
        chat = DIALECTS["chat"]
        history = (user(LONG), Answer("Rain."), user("/rl bad too long"))
        await client.post(chat.path, json=chat.body(history[:1]))
        rated = await client.post(chat.path, json=chat.body(history))
        assert chat.says(rated.json()).startswith("burnish: rated bad")
        await client.post(chat.path, json=chat.body(history[:1]))
    assert "too long" in server.requests[-1].json()["messages"][0]["content"]


async def test_large_requests_need_no_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    chat = DIALECTS["chat"]
    answer = reply(orjson.dumps(chat.answer(Answer("Rain."))))
    async with behind(tmp_path, answer, instructions=True) as (client, server):
        for _ in range(2):
            answered = await client.post(chat.path, json=chat.body((user(LONG),)))
            assert chat.says(answered.json()) == "Rain."
            await client.post("/v1/feedback", json={"last": True, "rating": "bad", "comment": "too long"})
        assert "too long" in server.requests[-1].json()["messages"][0]["content"]
    async with world(tmp_path / "chat", {"content": "Rain."}) as here:
        assert (await here.ask("messages", [says(LONG)])).text == "Rain."


async def test_the_tokens_of_a_large_request_are_counted_under_the_upstreams_name(tmp_path: Path):
    asked = DIALECTS["messages"].body((user(LONG),)) | {"model": "default"}
    async with behind(tmp_path, reply(b'{"input_tokens": 1}'), model="theirs") as (client, server):
        counted = await client.post("/v1/messages/count_tokens", json=asked)
    assert counted.json() == {"input_tokens": 1}
    assert server.requests[0].json() == asked | {"model": "theirs"}


async def test_what_cannot_be_read_is_the_upstreams_to_judge_however_large(tmp_path: Path):
    body = b'{"messages": [' + b"1," * LARGE_BYTES
    async with behind(tmp_path, reply(b"{}")) as (client, server):
        await client.post("/v1/chat/completions", content=body)
        (passed,) = (await client.get("/burnish/passthrough")).json()["data"]
    assert server.requests[0].body == body
    assert "not valid JSON" in passed["error"]


@pytest.mark.parametrize("name", FORMATS)
async def test_an_answer_that_comes_as_a_whole_is_translated_however_large(tmp_path: Path, name: str):
    whole = reply(orjson.dumps(DIALECTS["chat"].answer(Answer(LONG))))
    async with world(tmp_path, whole, whole) as here:
        for streams in (False, True):
            assert (await here.ask(name, [says("Hi.")], streams)).text == LONG


async def test_calls_that_no_model_makes_end_a_translated_answer_with_the_reason(tmp_path: Path):
    calls = [called("look", {}, f"call_{at}") for at in range(MOST_CALLS + 1)]
    message = {"role": "assistant", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    chunk = {"index": 0, "delta": {"tool_calls": [each | {"index": at} for at, each in enumerate(calls)]}}
    answers = (
        reply(orjson.dumps({"choices": [choice]})),
        stream([b"data: " + orjson.dumps({"choices": [chunk]}) + b"\n\n", b"data: [DONE]\n\n"]),
    )
    async with world(tmp_path, *answers) as here:
        asked = {"model": "mock", "max_tokens": 9, "messages": [says("Hi.")]}
        whole = await here.http.post("/v1/messages", json=asked)
        streamed = await here.http.post("/v1/messages", json=asked | {"stream": True})
    assert whole.status_code == 502
    for answer in (whole, streamed):
        assert f"more than {MOST_CALLS} tool calls in one answer" in answer.text
