"""Anthropic Messages through the whole proxy: Anthropic's own client on one side, a scripted server on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import orjson
import pytest
from anthropic import AsyncAnthropic

from tests.support.anthropic_wire import Block, message, message_events, text, thinking, tool_use
from tests.support.behind import logged, ratings
from tests.support.inprocess import serving
from tests.support.upstream import Received, Upstream, reply, stream, upstream

ASK = {"model": "mock", "max_tokens": 50}
TOOLS = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}]
REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@dataclass
class World:
    """A burnish before a server that says one thing after the other."""

    url: str
    sdk: AsyncAnthropic
    http: httpx.AsyncClient
    upstream: Upstream
    says: list[tuple[Block, ...]] = field(default_factory=list)
    models: tuple[str, ...] = ("their-model",)

    async def answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if request.target == "/v1/models":
            await reply(orjson.dumps({"data": [{"id": name} for name in self.models]}))(request, writer)
            return
        if request.target.startswith("/v1/messages/count_tokens"):
            await reply(b'{"input_tokens":3}')(request, writer)
            return
        content = self.says.pop(0)
        why = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
        said: dict[str, Any] = {"id": f"msg_{len(self.upstream.requests)}", "stop_reason": why}
        if request.json().get("stream"):
            await stream(message_events(*content, **said))(request, writer)
        else:
            await reply(message(*content, **said))(request, writer)

    async def ask(
        self, messages: list[dict[str, Any]], streamed: bool, **more: Any
    ) -> anthropic.types.Message:
        if not streamed:
            return await self.sdk.messages.create(messages=messages, **ASK | more)  # type: ignore[call-overload]
        async with self.sdk.messages.stream(messages=messages, **ASK | more) as stream:  # type: ignore[arg-type]
            return await stream.get_final_message()

    async def logged(self) -> list[dict[str, Any]]:
        return await logged(self.http)

    def sent(self) -> list[list[dict[str, Any]]]:
        """The messages of each completion that the server was asked for."""
        return [request.json()["messages"] for request in self.upstream.requests if request.method == "POST"]


@asynccontextmanager
async def world(tmp_path: Path, *says: tuple[Block, ...], **flags: Any) -> AsyncIterator[World]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await here.answer(request, writer)

    async with (
        upstream(script) as server,
        serving(tmp_path, **{"upstream": server.url} | flags) as (url, _),
        AsyncAnthropic(base_url=url, api_key="sk-caller", max_retries=0) as sdk,
        httpx.AsyncClient(base_url=url, headers={"x-burnish-key": flags.get("api_key", "")}) as client,
    ):
        here = World(url, sdk, client, server, list(says))
        yield here


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_the_client_gets_is_what_the_log_has(tmp_path: Path, streamed: bool) -> None:
    said = (
        thinking("They want rain."),
        text("Let me look – 😀."),
        tool_use("look", {"city": "Köln", "days": [1, 2]}),
    )
    async with world(tmp_path, said) as here:
        got = await here.ask([user("Weather?")], streamed, system="Be brief.", tools=TOOLS)
        (record,) = await here.logged()
    assert [block.type for block in got.content] == ["thinking", "text", "tool_use"]
    assert (record["surface"], record["outcome"], record["finish_reason"]) == (
        "messages",
        "complete",
        "tool_calls",
    )
    assert record["messages"] == [{"role": "system", "content": "Be brief."}, user("Weather?")]
    assert record["reply"]["content"] == got.content[1].text
    assert record["reply"]["reasoning_content"] == got.content[0].thinking
    (call,) = record["reply"]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == (got.content[2].id, got.content[2].name)
    assert json.loads(call["function"]["arguments"]) == got.content[2].input
    assert record["response_id"] == got.id
    used = got.usage
    asked = used.input_tokens + (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
    assert (record["prompt_tokens"], record["completion_tokens"]) == (asked, used.output_tokens) == (17, 7)
    assert record["params"]["tools"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_are_used_over_several_turns_of_one_conversation(tmp_path: Path, streamed: bool) -> None:
    says = [
        (thinking("Hm."), text("Let me look."), tool_use("look", {"city": "Köln"})),
        (tool_use("look", {"city": "Bonn", "at": {"day": 1}}, "toolu_2"),),
        (text("Rain in "), text("both.")),
        (text("Take an umbrella."),),
    ]
    history: list[dict[str, Any]] = [user("Weather in Köln and Bonn?")]
    async with world(tmp_path, *says) as here:
        for nudge in ("rain", "rain", "And now?", None):
            got = await here.ask(history, streamed, tools=TOOLS)
            history.append({"role": "assistant", "content": [block.to_dict() for block in got.content]})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": nudge}
                for block in got.content
                if block.type == "tool_use"
            ]
            history.append(user(results or nudge or "Bye."))
        records = await here.logged()
    assert len({record["conversation_id"] for record in records}) == 1
    assert [message["role"] for message in records[-1]["messages"]] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user"
    ]  # fmt: skip
    # Each turn's history holds the reply before it just as it was logged.
    for record in records[:-1]:
        assert record["reply"] in records[-1]["messages"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "typed", ["/rl good", [text("/rl good")], [text(REMINDER), text("/rl good")], [text("/rl good"), text(REMINDER)]]
)  # fmt: skip
async def test_a_rating_typed_in_the_chat_is_answered_here_and_leaves_the_history(
    tmp_path: Path, streamed: bool, typed: Any
) -> None:
    async with world(tmp_path, (text("One."),), (text("Two."),), (text("Three."),)) as here:
        history = [user("First?")]
        for question in ("Second?", typed):
            got = await here.ask(history, streamed)
            history += [{"role": "assistant", "content": got.content}, user(question)]
        rated = await here.ask(history, streamed)
        assert rated.content[0].text.startswith("burnish: rated good – “Two.”")
        assert (rated.stop_reason, rated.role, rated.id[:4]) == ("end_turn", "assistant", "msg_")
        history += [{"role": "assistant", "content": rated.content}, user("Third?")]
        await here.ask(history, streamed)
        given = await ratings(here.http)
        records = await here.logged()
    assert [rating["completion_id"] for rating in given] == [records[1]["id"]]
    assert [len(messages) for messages in here.sent()] == [1, 3, 5]
    assert "/rl" not in str(here.sent())
    assert here.sent()[-1][-1] == user("Third?")
    assert len({record["conversation_id"] for record in records}) == 1


async def test_an_answer_is_rated_by_the_id_that_the_client_shows(tmp_path: Path) -> None:
    async with world(tmp_path, (text("One."),), (text("Two."),)) as here:
        await here.ask([user("First?")], streamed=True)
        second = await here.ask([user("Second?")], streamed=True)
        rated = await here.http.post("/v1/feedback", json={"response_id": second.id, "rating": "good"})
        assert rated.status_code == 201, rated.text
        assert rated.json()["completion_id"] == (await here.logged())[1]["id"]


async def test_what_a_user_asked_for_stands_in_the_system_prompt(tmp_path: Path) -> None:
    async with world(tmp_path, (text("One."),), (text("Two."),), instructions=True) as here:
        first = await here.ask([user("First?")], streamed=False)
        rating = {"response_id": first.id, "rating": "bad", "comment": "answer in Latin"}
        assert (await here.http.post("/v1/feedback", json=rating)).status_code == 201
        await here.ask([user("Second?")], streamed=False, system=[text("Be brief.")])
    told = here.upstream.requests[-1].json()["system"]
    assert told[0] == text("Be brief.")
    assert "answer in Latin" in told[1]["text"]


async def test_default_means_the_upstreams_own_model_also_where_tokens_are_counted(tmp_path: Path) -> None:
    async with world(tmp_path, (text("One."),)) as here:
        count = await here.sdk.messages.count_tokens(model="default", messages=[user("How long is this?")])
        assert count.input_tokens == 3
        assert await here.logged() == []
        beta = await here.sdk.beta.messages.create(
            **ASK | {"model": "default"}, messages=[user("Hi.")], extra_query={"beta": "true"}
        )
        assert beta.content[0].text == "One."
        assert [record["model_served"] for record in await here.logged()] == ["their-model"]
    asked = [request for request in here.upstream.requests if request.method == "POST"]
    assert [request.json()["model"] for request in asked] == ["their-model", "their-model"]
    assert [request.target for request in asked] == ["/v1/messages/count_tokens", "/v1/messages?beta=true"]


async def test_errors_are_the_clients_own(tmp_path: Path) -> None:
    async with world(tmp_path, max_body_bytes=4096) as here:
        here.models = ()
        for call in (here.sdk.messages.count_tokens, here.sdk.messages.create):
            more = {} if call == here.sdk.messages.count_tokens else {"max_tokens": 5}
            with pytest.raises(anthropic.NotFoundError) as missing:
                await call(model="default", messages=[user("Hi.")], **more)
            assert missing.value.body["error"]["type"] == "not_found_error"
            with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content"):
                await call(model="mock", messages=[user(5)], **more)
            with pytest.raises(anthropic.RequestTooLargeError):
                await call(model="mock", messages=[user("x" * 5000)], **more)


async def test_nobody_listening_is_the_clients_own_error(tmp_path: Path) -> None:
    async with world(tmp_path, upstream="http://127.0.0.1:9") as here:
        for streamed in (False, True):
            with pytest.raises(anthropic.InternalServerError, match="Is it running") as failed:
                await here.ask([user("Hi.")], streamed)
            assert failed.value.status_code == 502
            assert failed.value.type == "api_error"


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
async def test_a_key_of_burnish_is_taken_where_clients_put_it_and_goes_no_further(
    tmp_path: Path, header: str
) -> None:
    async with world(tmp_path, (text("One."),), api_key="geheim", upstream_api_key="sk-ours") as here:
        for key in ("wrong", "geheim"):
            headers = {header: key if header == "x-api-key" else f"Bearer {key}"}
            async with AsyncAnthropic(base_url=here.url, default_headers=headers, max_retries=0) as sdk:
                asking = sdk.messages.create(**ASK, messages=[user("Hi.")])
                if key == "geheim":
                    assert (await asking).content[0].text == "One."
                    continue
                with pytest.raises(anthropic.AuthenticationError) as refused:
                    await asking
                assert refused.value.type == "authentication_error"
    (request,) = here.upstream.requests
    assert (request.header("x-api-key"), request.header("authorization")) == ("sk-ours", "Bearer sk-ours")
    assert "geheim" not in str(request)


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
async def test_a_callers_own_key_goes_first(tmp_path: Path, header: str) -> None:
    async with world(tmp_path, (text("One."),), upstream_api_key="sk-ours") as here:
        answer = await here.http.post(
            "/v1/messages", json=ASK | {"messages": [user("Hi.")]}, headers={header: "sk-caller"}
        )
        assert answer.status_code == 200
    (request,) = here.upstream.requests
    assert request.header(header) == "sk-caller"
    assert "sk-ours" not in str(request)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_embedded_engine_answers(tmp_path: Path, streamed: bool) -> None:
    async with serving(tmp_path) as (url, _), AsyncAnthropic(base_url=url, api_key="none") as sdk:
        here = World(url, sdk, httpx.AsyncClient(base_url=url), Upstream("", reply(b"")))
        got = await here.ask(
            [user("Say hello.")], streamed, model="default", max_tokens=8, system="Be brief."
        )
        count = await sdk.messages.count_tokens(model="default", messages=[user("Say hello.")])
        (record,) = await here.logged()
        await here.http.aclose()
    assert got.content[0].text == record["reply"]["content"] != ""
    assert (record["response_id"], record["model_served"]) == (got.id, "smollm2")
    assert got.usage.output_tokens == record["completion_tokens"] in range(1, 9)
    assert got.stop_reason == ("max_tokens" if record["finish_reason"] == "length" else "end_turn")
    assert count.input_tokens > 3
