"""Clients of Messages and of Responses before an upstream that knows chat completions only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import orjson
import pytest

from tests.support.inprocess import serving
from tests.support.upstream import Received, Script, Upstream, reply, stream, upstream

Said = dict[str, Any]
"""A message of the assistant's, in chat's form."""

CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 17, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}}
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK = {"name": "look", "description": "Looks.", "input_schema": TOOL}
LOOK_UP = {"type": "function", "name": "look", "description": "Looks.", "parameters": TOOL, "strict": False}


def called(name: str, arguments: Any, name_of_call: str) -> Said:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": name_of_call, "type": "function", "function": function}


def whole(said: Said, finish_reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "theirs"}
    return orjson.dumps(head | {"choices": [choice], "usage": USAGE})


def streamed(said: Said, finish_reason: str, size: int = 5) -> list[bytes]:
    """The same as a stream, ``size`` characters to a chunk."""
    deltas: list[Said] = [{"role": "assistant", "content": ""}]
    for field_ in ("reasoning_content", "content"):
        deltas += [{field_: piece} for piece in pieces(said.get(field_) or "", size)]
    for index, call in enumerate(said.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for piece in pieces(arguments, size):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(chunk([{"index": 0, "delta": {}, "finish_reason": finish_reason}]))
    return [*chunks, chunk([], usage=USAGE), b"data: [DONE]\n\n"]


def chunk(choices: list[Said], **more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs"}
    return b"data: " + orjson.dumps(head | {"choices": choices} | more) + b"\n\n"


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass
class World:
    """A burnish before a server that says one thing after the other, to chat completions only."""

    url: str
    upstream: Upstream
    anthropic: anthropic.AsyncAnthropic
    openai: openai.AsyncOpenAI
    http: httpx.AsyncClient
    says: list[Said | Script] = field(default_factory=list)
    unknown: Script = field(default_factory=lambda: reply(b'{"detail":"Not Found"}', status="404 Not Found"))
    """How it answers on paths that it does not have."""
    models: list[Said] = field(default_factory=list)
    """What it lists."""

    async def answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if self.models and request.target == "/v1/models":
            await reply(orjson.dumps({"object": "list", "data": self.models}))(request, writer)
            return
        if request.target != CHAT:
            await self.unknown(request, writer)
            return
        if request.body == b"[]":
            await reply(b'{"detail":"messages: Field required"}', status="422 Unprocessable")(request, writer)
            return
        said = self.says.pop(0)
        if not isinstance(said, dict):
            await said(request, writer)
            return
        said = dict(said)
        why = said.pop("finish_reason", "tool_calls" if said.get("tool_calls") else "stop")
        answer = stream(streamed(said, why)) if request.json().get("stream") else reply(whole(said, why))
        await answer(request, writer)

    async def message(self, messages: list[Said], stream: bool, **more: Any) -> anthropic.types.Message:
        asked: Any = {"model": "mock", "max_tokens": 50, "messages": messages} | more
        if not stream:
            return await self.anthropic.messages.create(**asked)
        async with self.anthropic.messages.stream(**asked) as events:
            return await events.get_final_message()

    async def response(self, input: Any, stream: bool, **more: Any) -> Any:
        asked: Any = {"model": "mock", "input": input} | more
        if not stream:
            return await self.openai.responses.create(**asked)
        async with self.openai.responses.stream(**asked) as events:
            return await events.get_final_response()

    async def logged(self) -> list[Said]:
        """All completions that the log has, first one first."""
        listed = (await self.http.get("/burnish/completions")).json()["data"]
        return [
            (await self.http.get(f"/burnish/completions/{each['id']}")).json() for each in reversed(listed)
        ]

    def asked(self) -> list[Said]:
        """What the server was asked in chat."""
        sent = [request for request in self.upstream.requests if request.target == CHAT]
        return [request.json() for request in sent if request.body != b"[]"]


@asynccontextmanager
async def world(tmp_path: Path, *says: Said | Script, **flags: Any) -> AsyncIterator[World]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await here.answer(request, writer)

    async with (
        upstream(script) as server,
        serving(tmp_path, **{"upstream": server.url} | flags) as (url, _),
        anthropic.AsyncAnthropic(base_url=url, api_key="sk-caller", max_retries=0) as claude,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-caller", max_retries=0) as gpt,
        httpx.AsyncClient(base_url=url) as client,
    ):
        here = World(url, server, claude, gpt, client, list(says))
        yield here


def user(content: Any) -> Said:
    return {"role": "user", "content": content}


FULL: Said = {
    "reasoning_content": "They want rain.",
    "content": "Let me look – 😀.",
    "tool_calls": [called("look", {"city": "Köln"}, "call_a"), called("look", {"city": "Bonn"}, "call_b")],
}
both = pytest.mark.parametrize("stream", [False, True])


@both
async def test_a_message_is_what_chat_said_and_what_the_log_has(tmp_path: Path, stream: bool) -> None:
    async with world(tmp_path, FULL) as here:
        got = await here.message([user("Weather?")], stream, system="Be brief.", tools=[LOOK])
        (record,) = await here.logged()
    thought, text, first, second = got.content
    assert (thought.thinking, text.text) == ("They want rain.", "Let me look – 😀.")
    assert [(call.id, call.name, call.input) for call in (first, second)] == [
        ("call_a", "look", {"city": "Köln"}),
        ("call_b", "look", {"city": "Bonn"}),
    ]
    assert got.stop_reason == "tool_use"
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens, got.usage.output_tokens) == (7, 10, 7)
    assert got.id == "msg_" + record["id"].removeprefix("cmpl_") == record["response_id"]
    assert (record["surface"], record["outcome"], record["finish_reason"]) == (
        "messages", "complete", "tool_calls",
    )  # fmt: skip
    assert record["messages"] == [{"role": "system", "content": "Be brief."}, user("Weather?")]
    assert record["reply"] == {"role": "assistant", **FULL}
    assert (record["prompt_tokens"], record["completion_tokens"]) == (17, 7)


@both
async def test_a_response_is_what_chat_said_and_what_the_log_has(tmp_path: Path, stream: bool) -> None:
    async with world(tmp_path, FULL) as here:
        got = await here.response("Weather?", stream, instructions="Be brief.", tools=[LOOK_UP])
        (record,) = await here.logged()
    thought, text, first, second = got.output
    assert thought.content[0].text == "They want rain."
    assert got.output_text == text.content[0].text == "Let me look – 😀."
    assert [(call.call_id, call.name, call.arguments) for call in (first, second)] == [
        ("call_a", "look", '{"city":"Köln"}'),
        ("call_b", "look", '{"city":"Bonn"}'),
    ]
    assert (got.status, got.instructions, got.usage.input_tokens) == ("completed", "Be brief.", 17)
    assert (got.usage.input_tokens_details.cached_tokens, got.usage.output_tokens) == (10, 7)
    assert got.id == "resp_" + record["id"].removeprefix("cmpl_") == record["response_id"]
    assert (record["surface"], record["outcome"], record["finish_reason"]) == (
        "responses", "complete", "tool_calls",
    )  # fmt: skip
    assert record["reply"] == {"role": "assistant", **FULL}
    assert (record["prompt_tokens"], record["completion_tokens"]) == (17, 7)


@both
async def test_tools_are_used_over_several_turns_of_one_conversation(tmp_path: Path, stream: bool) -> None:
    says: list[Said] = [
        {"content": "Let me look.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
        {"content": "Rain."},
        {"content": "Take an umbrella."},
    ]
    history = [user("Weather in Köln?")]
    async with world(tmp_path, *says) as here:
        for answer in (None, "And now?", None):
            got = await here.message(history, stream, tools=[LOOK])
            history.append({"role": "assistant", "content": [block.to_dict() for block in got.content]})
            calls = [block for block in got.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "wet"} for call in calls]
            history.append(user(results or answer))
        records = await here.logged()
        asked = here.asked()[-1]
    assert asked["messages"] == [
        user("Weather in Köln?"),
        {"role": "assistant", **says[0]},
        {"role": "tool", "tool_call_id": "call_a", "content": "wet"},
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]
    assert asked["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": TOOL}}
    ]
    assert len({record["conversation_id"] for record in records}) == 1


@both
async def test_responses_are_gone_on_from_by_history_and_by_name(tmp_path: Path, stream: bool) -> None:
    says: list[Said] = [
        {"reasoning_content": "Hm.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
        {"content": "Rain."},
        {"content": "Take an umbrella."},
    ]
    looked = {"type": "function_call_output", "call_id": "call_a", "output": "wet"}
    async with world(tmp_path, *says) as here:
        history: list[Any] = [user("Weather in Köln?")]
        first = await here.response(history, stream, instructions="Be brief.", tools=[LOOK_UP])
        history += [item.to_dict(mode="json") for item in first.output]
        second = await here.response([*history, looked], stream, instructions="Be brief.", tools=[LOOK_UP])
        third = await here.response(
            "And now?", stream, instructions="Be kind.", previous_response_id=second.id
        )
        records = await here.logged()
        asked = [each["messages"] for each in here.asked()]
        with pytest.raises(openai.BadRequestError, match="'resp_x' not found"):
            await here.response("And now?", stream, previous_response_id="resp_x")
    said = [
        user("Weather in Köln?"),
        {"role": "assistant", "content": None, **says[0]},
        {"role": "tool", "tool_call_id": "call_a", "content": "wet"},
    ]
    assert asked[1] == [{"role": "system", "content": "Be brief."}, *said]
    assert asked[2] == [
        {"role": "system", "content": "Be kind."},
        *said,
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]
    assert third.previous_response_id == second.id
    assert len({record["conversation_id"] for record in records}) == 1


def names(items: Any) -> list[Said]:
    """The names of items, as the AI SDK sends them in the items' place."""
    return [{"type": "item_reference", "id": item.id} for item in items]


@both
async def test_answers_that_a_client_names_are_what_they_said(tmp_path: Path, stream: bool) -> None:
    says: list[Said] = [
        {"reasoning_content": "Hm.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
        {"content": "Rain."},
        {"content": "Take an umbrella."},
    ]
    looked = {"type": "function_call_output", "call_id": "call_a", "output": "wet"}
    async with world(tmp_path, *says) as here:
        history: list[Any] = [user("Weather in Köln?")]
        for said in (looked, user("/rl good"), user("And now?"), user("/rl bad")):
            got = await here.response(history, stream, tools=[LOOK_UP])
            history += [*names(got.output), said]
        assert (await here.response(history, stream, tools=[LOOK_UP])).output_text.startswith(
            "burnish: rated bad"
        )
        records = await here.logged()
        asked = [each["messages"] for each in here.asked()]
        for name in ("msg_x", got.output[0].id[:-4] + "ZZ_0"):
            with pytest.raises(openai.BadRequestError, match=f"'{name}' not found"):
                await here.response([{"type": "item_reference", "id": name}, user("Hi.")], stream)
    assert asked[2] == [
        user("Weather in Köln?"),
        {"role": "assistant", "content": None, **says[0]},
        {"role": "tool", "tool_call_id": "call_a", "content": "wet"},
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]
    assert [record["rating"] for record in records] == [1.0, 1.0, -1.0]
    assert len({record["conversation_id"] for record in records}) == 1
    assert records[2]["messages"] == asked[2]


async def test_nobody_gets_an_answer_to_another_by_its_name(tmp_path: Path) -> None:
    async with world(tmp_path, {"content": "Rain."}) as here:
        got = await here.response([user("Weather?")], False)
        eve = here.openai.with_options(default_headers={"x-burnish-user": "eve"})
        with pytest.raises(openai.BadRequestError, match="not found"):
            await eve.responses.create(model="mock", input=[*names(got.output), user("What was said?")])


@both
@pytest.mark.parametrize("format", ["messages", "responses"])
async def test_rl_rates_the_answer_before_and_is_never_asked(
    tmp_path: Path, stream: bool, format: str
) -> None:
    async with world(tmp_path, {"content": "Rain."}, {"content": "Sun."}) as here:
        history = [user("Weather?")]
        for said in ("/rl good", "And now?", None):
            if format == "messages":
                got = (await here.message(history, stream)).content[0].text
            else:
                got = (await here.response(history, stream)).output_text
            history += [{"role": "assistant", "content": got}, user(said)]
        first, second = await here.logged()
        asked = here.asked()
    assert (first["rating"], second["rating"]) == (1.0, None)
    assert asked[1]["messages"] == [
        user("Weather?"),
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]
    assert first["conversation_id"] == second["conversation_id"]


async def test_what_an_upstream_lacks_is_found_out_once(tmp_path: Path) -> None:
    async with world(tmp_path, *[{"content": "Rain."}] * 3) as here:
        for _ in range(3):
            await here.message([user("Weather?")], False)
        assert [(each.target, each.body == b"[]") for each in here.upstream.requests] == [
            ("/v1/messages", False),
            ("/v1/messages", True),
            (CHAT, True),
            *[(CHAT, False)] * 3,
        ]


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"])
async def test_an_upstream_that_has_the_path_is_believed(tmp_path: Path, status: str) -> None:
    missing = orjson.dumps({"error": {"message": "no model mock", "type": "not_found_error"}})

    async def native(request: Received, writer: asyncio.StreamWriter) -> None:
        probed = request.body == b"[]"
        answer = reply(b"{}", status="400 Bad Request") if probed else reply(missing, status=status)
        await answer(request, writer)

    async with world(tmp_path) as here:
        here.unknown = native
        for _ in range(2):
            with pytest.raises(anthropic.APIStatusError, match="no model mock") as caught:
                await here.message([user("Weather?")], False)
            assert caught.value.status_code == int(status[:3])
            assert caught.value.response.content == missing
        assert len(here.upstream.requests) == 3
        assert here.asked() == []


async def test_an_upstream_without_chat_answers_for_itself(tmp_path: Path) -> None:
    nothing = reply(b"404 page not found", status="404 Not Found", headers="content-type: text/plain\r\n")
    async with upstream(nothing) as server, serving(tmp_path, upstream=server.url) as (url, _):
        async with httpx.AsyncClient(base_url=url) as client:
            got = await client.post("/v1/messages", json={"messages": [user("Weather?")]})
    assert (got.status_code, got.content) == (404, b"404 page not found")


@both
@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error")])
async def test_errors_are_told_in_the_words_of_the_format(
    tmp_path: Path, stream: bool, status: int, kind: str
) -> None:
    error = orjson.dumps({"error": {"message": "too long", "type": "x", "code": "y"}})
    head = "content-type: application/json\r\nretry-after: 7\r\n"
    refused = reply(error, status=f"{status} No", headers=head)
    async with world(tmp_path, refused, refused) as here:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await here.message([user("Weather?")], stream)
        assert caught.value.status_code == status
        assert caught.value.body["error"] == {"type": kind, "message": "too long"}  # type: ignore[index]
        assert caught.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.APIStatusError, match="too long") as told:
            await here.response("Weather?", stream)
        assert (told.value.status_code, told.value.code) == (status, "y")
        records = await here.logged()
    assert [record["status"] for record in records] == [status] * 2
    assert all("too long" in record["error"] for record in records)


async def test_an_error_in_the_middle_of_a_stream_is_told_there(tmp_path: Path) -> None:
    begun = streamed({"content": "Rain is"}, "stop")[:2]
    broken = stream([*begun, b'data: {"error":{"message":"out of memory"}}\n\n', b"data: [DONE]\n\n"])
    async with world(tmp_path, broken, broken) as here:
        with pytest.raises(anthropic.APIStatusError, match="out of memory"):
            await here.message([user("Weather?")], True)
        answer = await here.openai.responses.create(model="mock", input="Weather?", stream=True)
        last = [event async for event in answer][-1]
        assert (last.type, last.response.error.message) == ("response.failed", "out of memory")
        assert last.response.output[0].content[0].text == "Rain "
        records = await here.logged()
    assert all("out of memory" in record["error"] for record in records)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_too_early_is_a_cut_one(tmp_path: Path, cut: bool) -> None:
    half = stream(streamed({"content": "Rain is"}, "stop")[:2], cut=cut)
    async with world(tmp_path, half) as here:
        with pytest.raises(Exception, match="without sending complete message"):
            await here.message([user("Weather?")], True)
        (record,) = await here.logged()
    assert (record["outcome"], record["reply"]["content"]) == ("cut", "Rain ")


async def test_an_answer_that_nobody_waits_for_is_not_generated(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with world(tmp_path, stream(streamed({"content": "Rain is"}, "stop"), hold=held)) as here:
        async with here.anthropic.messages.stream(
            model="mock", max_tokens=9, messages=[user("Weather?")]
        ) as events:
            async for event in events:
                if event.type == "text":
                    break
        while not here.upstream.disconnects:
            await asyncio.sleep(0.01)
        (record,) = await here.logged()
    assert record["outcome"] == "cancelled"


async def test_what_a_server_says_that_does_not_stream_is_streamed_all_the_same(tmp_path: Path) -> None:
    async with world(tmp_path, reply(whole(FULL, "tool_calls"))) as here:
        got = await here.message([user("Weather?")], True)
    assert [block.type for block in got.content] == ["thinking", "text", "tool_use", "tool_use"]


async def test_a_200_that_is_no_answer_is_a_bad_gateway(tmp_path: Path) -> None:
    async with world(tmp_path, reply(b'{"error":"no GPU"}'), reply(b"<html>")) as here:
        for _ in range(2):
            with pytest.raises(anthropic.InternalServerError) as caught:
                await here.message([user("Weather?")], False)
            assert caught.value.status_code == 502


@both
async def test_tools_of_other_kinds_are_called_as_their_kind(tmp_path: Path, stream: bool) -> None:
    patch = {"type": "custom", "name": "patch", "description": "Patches."}
    agents = {"type": "namespace", "name": "agents", "description": "A.", "tools": [LOOK_UP]}
    said = [called("patch", {"input": "*** Köln"}, "a"), called("agents__look", {"city": "Bonn"}, "b")]
    async with world(tmp_path, {"tool_calls": said}) as here:
        asked: Any = {"model": "mock", "input": "Go.", "tools": [patch, agents]}
        if stream:
            events = [event async for event in await here.openai.responses.create(**asked, stream=True)]
            assert [each.input for each in events if each.type == "response.custom_tool_call_input.done"] == [
                "*** Köln"
            ]
            got = events[-1].response
        else:
            got = await here.openai.responses.create(**asked)
    first, second = got.output
    assert (first.type, first.call_id, first.name, first.input) == (
        "custom_tool_call",
        "a",
        "patch",
        "*** Köln",
    )
    assert (second.type, second.name, second.namespace) == ("function_call", "look", "agents")


async def test_an_answer_that_is_too_long_says_so(tmp_path: Path) -> None:
    long = {"content": "Rain and", "finish_reason": "length"}
    async with world(tmp_path, long, long) as here:
        assert (await here.message([user("Weather?")], True)).stop_reason == "max_tokens"
        got = await here.response("Weather?", False)
        assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert [record["finish_reason"] for record in await here.logged()] == ["length"] * 2


@pytest.mark.parametrize(
    ("sent", "ours", "arrives"),
    [
        ({"x-api-key": "theirs"}, None, "Bearer theirs"),
        ({"x-api-key": "theirs"}, "ours", "Bearer theirs"),
        ({"authorization": "Bearer login"}, None, "Bearer login"),
        ({}, "ours", "Bearer ours"),
        ({"x-api-key": "burnish"}, "ours", "Bearer ours"),
        ({"authorization": "Bearer burnish", "x-api-key": "theirs"}, None, "Bearer theirs"),
    ],
)
async def test_keys_arrive_where_chat_has_them(
    tmp_path: Path, sent: dict[str, str], ours: str | None, arrives: str
) -> None:
    flags = {"upstream_api_key": ours, "api_key": "burnish"}
    async with world(tmp_path, {"content": "Rain."}, **flags) as here:
        headers = {"x-burnish-key": "burnish", **sent}
        body = {"model": "mock", "max_tokens": 9, "messages": [user("Weather?")]}
        assert (await here.http.post("/v1/messages", json=body, headers=headers)).status_code == 200
        last = here.upstream.requests[-1]
    assert (last.target, last.header("authorization"), last.header("x-api-key")) == (CHAT, arrives, None)
