"""What only Responses has: conversations that the server keeps, and answers in several parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from tests.support.behind import behind, logged, ratings
from tests.support.responses import Item, call, events, message, response
from tests.support.upstream import Received, Upstream, reply, stream

ADD = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}


@dataclass
class Model:
    """A server that says one thing after the other, keeps its responses, and refuses to go on from others."""

    says: list[list[Item]]
    kept: set[str] = field(default_factory=set)

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        asked = request.json()
        previous = asked.get("previous_response_id")
        if previous is not None and previous not in self.kept:
            error = (
                b'{"error": {"message": "Previous response with id \'%b\' not found."}}' % previous.encode()
            )
            await reply(error, status="400 Bad Request")(request, writer)
            return
        name = f"resp_{len(self.kept)}"
        self.kept.add(name)
        body = response(*self.says.pop(0), response_id=name)
        answer = stream(events(body)) if asked.get("stream") else reply(orjson.dumps(body))
        await answer(request, writer)


@dataclass
class World:
    model: Model
    server: Upstream
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient

    def received(self) -> list[dict[str, Any]]:
        return [request.json() for request in self.server.requests]


@asynccontextmanager
async def world(tmp_path: Path, *says: list[Item], **flags: Any) -> AsyncIterator[World]:
    model = Model(list(says))
    async with (
        behind(tmp_path, model, **flags) as (http, server),
        openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="x", max_retries=0) as client,
    ):
        yield World(model, server, client, http)


def contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [each.get("content") for each in messages]


async def final(client: openai.AsyncOpenAI, **asked: Any) -> Any:
    async with client.responses.stream(model="m", **asked) as answer:
        return await answer.get_final_response()


async def ask(client: openai.AsyncOpenAI, streamed: bool, **asked: Any) -> Any:
    return await (final(client, **asked) if streamed else client.responses.create(model="m", **asked))


both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both
async def test_a_conversation_held_by_the_server_can_be_rated(tmp_path: Path, streamed: bool) -> None:
    said = [[call("add")], [message("3.")], [message("You're welcome.")]]
    async with world(tmp_path, *said) as here:
        first = await ask(here.client, streamed, input="Add 1 and 2.", instructions="Add.", tools=[ADD])
        result = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
        second = await ask(
            here.client, streamed, input=[result], previous_response_id=first.id, instructions="Add well."
        )
        rated = await ask(here.client, streamed, input="/rl bad too short", previous_response_id=second.id)
        assert "burnish: rated bad" in rated.output_text
        undone = await ask(here.client, streamed, input="/rl undo", previous_response_id=rated.id)
        assert "taken back" in undone.output_text
        again = await ask(here.client, streamed, input="/rl good", previous_response_id=undone.id)
        third = await ask(here.client, streamed, input="Thanks.", previous_response_id=again.id)
        assert third.output_text == "You're welcome."
        records = await logged(here.http)
        rated_as = [(each["completion_id"], each["reward"]) for each in await ratings(here.http)]
    assert [each.get("previous_response_id") for each in here.received()] == [None, first.id, second.id]
    assert here.received()[2]["input"] == "Thanks."
    assert rated_as == [(records[1]["id"], 1.0), (records[1]["id"], -1.0)]
    assert len({each["conversation_id"] for each in records}) == 1
    assert contents(records[1]["messages"]) == ["Add well.", "Add 1 and 2.", None, "3"]
    assert contents(records[2]["messages"]) == ["Add 1 and 2.", None, "3", "3.", "Thanks."]


async def test_after_a_command_that_began_a_conversation_the_next_names_nothing(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, [message("Hello.")]) as here:
        status = await here.client.responses.create(model="m", input="/rl status")
        rated = await here.client.responses.create(
            model="m", input="/rl good", previous_response_id=status.id
        )
        assert "there is no answer in this conversation yet" in rated.output_text
        got = await here.client.responses.create(model="m", input="Hi", previous_response_id=rated.id)
        assert got.output_text == "Hello."
    assert "previous_response_id" not in here.received()[0]


async def test_branches_from_one_response_know_what_they_stand_on(tmp_path: Path) -> None:
    async with world(tmp_path, *([message(text)] for text in ("Hello.", "One.", "Two."))) as here:
        start = [{"role": "system", "content": "Count."}, {"role": "user", "content": "Hi"}]
        first = await here.client.responses.create(model="m", input=start)  # type: ignore[arg-type]
        for text in ("One?", "Two?"):
            await here.client.responses.create(model="m", input=text, previous_response_id=first.id)
        records = await logged(here.http)
    assert [contents(each["messages"]) for each in records[1:]] == [
        ["Count.", "Hi", "Hello.", "One?"],
        ["Count.", "Hi", "Hello.", "Two?"],
    ]
    assert len({each["conversation_id"] for each in records}) == 1


async def test_a_response_that_nobody_knows_is_the_upstreams_to_refuse(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(openai.BadRequestError, match="'resp_x' not found"):
            await here.client.responses.create(model="m", input="Hi", previous_response_id="resp_x")
        rated = await here.client.responses.create(model="m", input="/rl good", previous_response_id="resp_x")
        assert "no completion with response id 'resp_x'" in rated.output_text
        (record,) = await logged(here.http)
        assert contents(record["messages"]) == ["Hi"]
