"""Anthropic's threads: the server holds the history, and a request has only the new turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from anthropic import beta_async_tool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from burnish.adapters.hosts.detect import weights_digest
from tests.learner.test_foreign_engine import world as engine_world
from tests.proxy.relay.test_responses import contents
from tests.support import anthropic_wire
from tests.support.chat_wire import called
from tests.support.inprocess import logged, ratings
from tests.support.sdks import Json, World, user, world
from tests.support.upstream import Received, reply, stream
from tests.support.vllm_double import Engine, live_version

ASK: dict[str, Any] = {"model": "mock", "max_tokens": 50, "system": "Be brief."}
BRIEF = {"role": "system", "content": "Be brief."}
SAYS: list[Json] = [
    {"tool_calls": [called("look", {"city": "Bonn"}, "call_a")]},
    {"content": "Rain in Bonn, all day long."},
    {"content": "Take an umbrella."},
]


@beta_async_tool
async def look(city: str) -> str:
    """Look.

    Args:
        city: Where.
    """
    return f"wet in {city}"


@dataclass
class Threads:
    """A server that holds threads, each of which goes on from its latest message only."""

    texts: list[str]
    latest: set[str] = field(default_factory=set)
    asked: list[Json] = field(default_factory=list)

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        asked = request.json()
        self.asked.append(asked)
        thread = asked["thread"]
        if thread["type"] == "continue":
            if thread["previous_message_id"] not in self.latest:
                details = {"error_code": "thread_not_found"}
                error = {"type": "invalid_request_error", "message": "No such thread.", "details": details}
                body = orjson.dumps({"type": "error", "error": error})
                await reply(body, status="400 Bad Request")(request, writer)
                return
            self.latest.remove(thread["previous_message_id"])
        name, block = f"msg_{len(self.asked)}", anthropic_wire.text(self.texts.pop(0))
        self.latest.add(name)
        whole = reply(orjson.dumps(anthropic_wire.message(block, id=name)))
        answer = stream(anthropic_wire.message_events(block, id=name)) if asked.get("stream") else whole
        await answer(request, writer)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_chat_only_upstream_is_asked_with_the_whole_history(tmp_path: Path, streamed: bool) -> None:
    async with world(tmp_path, *SAYS) as here:
        thread = here.anthropic.beta.messages.thread(**ASK, tools=[look], messages=[user("Bonn?")])
        runner = thread.tool_runner(stream=True) if streamed else thread.tool_runner()
        await runner.until_done()
        rated = await thread.send(user("/rl bad too long"))
        assert rated.content[0].text.startswith("burnish: rated bad")
        await thread.send(user("And now?"))
        records = await here.logged()
        given = await ratings(here.http)
    told = [BRIEF, user("Bonn?"), {"role": "assistant", **SAYS[0], "content": None}]
    told += [{"role": "tool", "tool_call_id": "call_a", "content": "wet in Bonn"}]
    last = [*told, {"role": "assistant", **SAYS[1]}, user("And now?")]
    assert [each["messages"] for each in here.asked()] == [told[:2], told, last]
    assert {each["tools"][0]["function"]["name"] for each in here.asked()} == {"look"}
    assert [each["messages"] for each in records] == [each["messages"] for each in here.asked()]
    assert [each["params"]["tools"] for each in records] == [records[0]["params"]["tools"]] * 3
    assert [each["continues"] for each in records] == [None, records[0]["id"], records[1]["id"]]
    assert [each["completion_id"] for each in given] == [records[1]["id"]]


async def test_a_server_that_holds_threads_is_asked_as_the_client_asks(tmp_path: Path) -> None:
    server = Threads(["Rain.", "All day.", "Yes."])
    async with world(tmp_path, *[server] * 3, native=True) as here:
        thread = here.anthropic.beta.messages.thread(**ASK)
        for said in ("Bonn?", "Long?", "/rl good", "/rl status", "Sure?"):
            await thread.send(user(said))
        records = await here.logged()
        given = await ratings(here.http)
    assert [each["thread"].get("previous_message_id") for each in server.asked] == [None, "msg_1", "msg_2"]
    assert [contents(each["messages"]) for each in server.asked] == [["Bonn?"], ["Long?"], ["Sure?"]]
    assert contents(records[2]["messages"]) == ["Be brief.", "Bonn?", "Rain.", "Long?", "All day.", "Sure?"]
    assert len({each["conversation_id"] for each in records}) == 1
    assert [each["completion_id"] for each in given] == [records[1]["id"]]


async def sent_again(here: World, thread: Any) -> list[Json]:
    """Say something whose thread is lost; the messages that the upstream gets for it."""
    assert (await thread.send(user("Long?"))).content[0].text == "All day."
    return list(here.upstream.requests[-1].json()["messages"])


async def test_the_client_sends_all_again_if_nobody_holds_the_thread(tmp_path: Path) -> None:
    async with world(tmp_path, {"content": "Rain."}, {"content": "All day."}) as here:
        thread = here.anthropic.beta.messages.thread(**ASK)
        await thread.send(user("Bonn?"))
        thread.update(extra_headers={"x-burnish-user": "eve"})
        assert await sent_again(here, thread) == [
            BRIEF, user("Bonn?"), {"role": "assistant", "content": "Rain."}, user("Long?"),
        ]  # fmt: skip
        unknown = {"type": "continue", "previous_message_id": "msg_x"}
        body = ASK | {"messages": [user("Hi")], "thread": unknown}
        refused = await here.http.post("/v1/messages", json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["details"]) == (400, {"error_code": "thread_not_found"})
    assert "msg_x" in error["message"]


async def test_a_thread_that_began_with_a_command_is_begun_again_without_it(tmp_path: Path) -> None:
    server = Threads(["All day."])
    async with world(tmp_path, server, native=True) as here:
        thread = here.anthropic.beta.messages.thread(**ASK)
        thread.append(user("Bonn?"), {"role": "assistant", "content": "Rain."})
        await thread.send(user("/rl status"))
        assert contents(await sent_again(here, thread)) == ["Bonn?", "Rain.", "Long?"]
    assert server.asked[0]["thread"] == {"type": "create"}


class SpeaksMessages(Engine):
    """An engine that answers Messages too, and ignores what it doesn't know."""

    def app(self) -> Any:
        app = super().app()
        app.router.routes.insert(0, Route("/v1/messages", self.message, methods=["POST"]))
        return app

    async def message(self, request: Request) -> Response:
        body = await self.asked_for(request)
        answer = anthropic_wire.message(anthropic_wire.text("Rain."), id="msg_native", model=body["model"])
        return JSONResponse(answer)


@pytest.mark.parametrize("model", ["default", "smollm2@base", "other"])
async def test_an_engine_gets_the_history_in_chat(tmp_path: Path, weights: Path, model: str) -> None:
    """Engines hold no threads: they would answer the new turn alone."""
    engine, _ = SpeaksMessages(), live_version(tmp_path, weights_digest(weights))
    async with engine_world(tmp_path, engine, weights) as http:
        body = {"model": model, "max_tokens": 9, "thread": {"type": "create"}, "messages": [user("Bonn?")]}
        first = (await http.post("/v1/messages", json=body)).json()
        body |= {"thread": {"type": "continue", "previous_message_id": first["id"]}}
        body |= {"messages": [user("Long?")]}
        assert (await http.post("/v1/messages", json=body)).status_code == 200
        records = await logged(http)
    assert [contents(each["messages"]) for each in records] == [["Bonn?"], ["Bonn?", "Rain.", "Long?"]]
    path, asked = next(each for each in reversed(engine.asked) if "messages" in each[1])
    assert (path, contents(asked["messages"])) == ("/v1/chat/completions", ["Bonn?", "Rain.", "Long?"])
