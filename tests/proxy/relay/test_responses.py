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

from tests.support.inprocess import behind, logged, ratings
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
            error = orjson.dumps({"error": {"message": f"Previous response with id '{previous}' not found."}})
            await reply(error, status="400 Bad Request")(request, writer)
            return
        name = f"resp_{len(self.kept)}"
        self.kept.add(name)
        body = response(*self.says.pop(0), response_id=name)
        answer = stream(events(body)) if asked.get("stream") else reply(orjson.dumps(body))
        await answer(request, writer)


@dataclass
class World:
    server: Upstream
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient

    def received(self) -> list[dict[str, Any]]:
        return [request.json() for request in self.server.requests]

    async def ask(self, said: Any, previous: str | None = None, streamed: bool = False, **more: Any) -> Any:
        asked: Any = {"model": "m", "input": said, **more}
        if previous:
            asked["previous_response_id"] = previous
        if not streamed:
            return await self.client.responses.create(**asked)
        async with self.client.responses.stream(**asked) as answer:
            return await answer.get_final_response()


@asynccontextmanager
async def world(tmp_path: Path, *says: list[Item], **flags: Any) -> AsyncIterator[World]:
    async with (
        behind(tmp_path, Model(list(says)), **flags) as (http, server),
        openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="x", max_retries=0) as client,
    ):
        yield World(server, client, http)


def contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [each.get("content") for each in messages]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_held_by_the_server_can_be_rated(tmp_path: Path, streamed: bool) -> None:
    said = [[call("add")], [message("3.")], [message("You're welcome.")]]
    async with world(tmp_path, *said) as here:
        first = await here.ask("Add 1 and 2.", None, streamed, instructions="Add.", tools=[ADD])
        result = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
        second = await here.ask([result], first.id, streamed, instructions="Add well.")
        rated = await here.ask("/rl bad too short", second.id, streamed)
        assert "burnish: rated bad" in rated.output_text
        undone = await here.ask("/rl undo", rated.id, streamed)
        assert "taken back" in undone.output_text
        again = await here.ask("/rl good", undone.id, streamed)
        third = await here.ask("Thanks.", again.id, streamed)
        assert third.output_text == "You're welcome."
        records = await logged(here.http)
        rated_as = [(each["completion_id"], each["reward"]) for each in await ratings(here.http)]
    assert [each.get("previous_response_id") for each in here.received()] == [None, first.id, second.id]
    assert here.received()[2]["input"] == "Thanks."
    assert rated_as == [(records[1]["id"], 1.0), (records[1]["id"], -1.0)]
    assert len({each["conversation_id"] for each in records}) == 1
    assert contents(records[1]["messages"]) == ["Add well.", "Add 1 and 2.", None, "3"]
    assert contents(records[2]["messages"]) == ["Add 1 and 2.", None, "3", "3.", "Thanks."]


async def test_after_a_command_that_began_a_conversation_the_next_names_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, [message("Hello.")]) as here:
        status = await here.ask("/rl status")
        rated = await here.ask("/rl good", status.id)
        assert "there is no answer in this conversation yet" in rated.output_text
        assert (await here.ask("Hi", rated.id)).output_text == "Hello."
    assert "previous_response_id" not in here.received()[0]


async def test_a_response_that_nobody_knows_is_the_upstreams_to_refuse(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(openai.BadRequestError, match="'resp_x' not found"):
            await here.ask("Hi", "resp_x")
        rated = await here.ask("/rl good", "resp_x")
        assert "no completion with response id 'resp_x'" in rated.output_text
        (record,) = await logged(here.http)
        assert contents(record["messages"]) == ["", "Hi"]
