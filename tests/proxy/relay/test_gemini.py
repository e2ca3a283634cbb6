"""Google's own client through the whole of burnish, before a scripted upstream that speaks its format."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from google import genai
from google.genai import errors, types

from tests.support.behind import behind, logged, ratings
from tests.support.inprocess import serving
from tests.support.upstream import Script, Upstream, in_turn, reply, stream

# The client inherits from a class of aiohttp which does not like that.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

PATH = "/v1beta/models/m:generateContent"
USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
SECRET = "AIza-nobody-may-know"


def answer(*parts: Any, finish: str | None = "STOP", response_id: str = "r1") -> dict[str, Any]:
    content = {
        "role": "model",
        "parts": [{"text": part} if isinstance(part, str) else part for part in parts],
    }
    candidate = {"content": content, "index": 0} | ({"finishReason": finish} if finish else {})
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "m", "responseId": response_id}


def says(*parts: Any, **more: Any) -> Script:
    return reply(orjson.dumps(answer(*parts, **more)))


def streams(*said: dict[str, Any]) -> Script:
    return stream([b"data: " + orjson.dumps(each) + b"\r\n\r\n" for each in said])


@dataclass
class Talk:
    sdk: Any
    server: Upstream
    own: httpx.AsyncClient

    async def logged(self) -> list[dict[str, Any]]:
        return await logged(self.own)


def client(url: str) -> Any:
    return genai.Client(api_key="x", http_options=types.HttpOptions(base_url=url, api_version="v1beta"))


@asynccontextmanager
async def talk(tmp_path: Path, *scripts: Script, **flags: Any) -> AsyncIterator[Talk]:
    async with (
        behind(tmp_path, in_turn(*scripts), **flags) as (own, server),
        client(str(own.base_url)).aio as sdk,
    ):
        yield Talk(sdk, server, own)


async def test_a_whole_answer(tmp_path: Path) -> None:
    async with talk(tmp_path, says({"text": "hm", "thought": True}, "Hello!")) as chat:
        got = await chat.sdk.models.generate_content(
            model="gemini-2.5-pro",
            contents="Say hello.",
            config=types.GenerateContentConfig(
                system_instruction="Be kind.", temperature=0.5, max_output_tokens=9
            ),
        )
        (record,) = await chat.logged()
    assert got.text == record["reply"]["content"] == "Hello!"
    assert got.response_id == record["response_id"] == "r1"
    assert record["reply"]["reasoning_content"] == "hm"
    assert record["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Say hello."},
    ]
    assert record["params"].items() >= {"temperature": 0.5, "max_tokens": 9}.items()
    assert (record["surface"], record["model_asked"]) == ("gemini", "gemini-2.5-pro")
    assert (record["outcome"], record["finish_reason"]) == ("complete", "stop")
    assert (record["prompt_tokens"], record["completion_tokens"]) == (5, 2)
    assert chat.server.requests[0].header("x-goog-api-key") == "x"


async def test_a_stream(tmp_path: Path) -> None:
    call = {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}
    said = (answer("Hel", finish=None), answer("lo", finish=None), answer(call))
    async with talk(tmp_path, streams(*said)) as chat:
        got = [
            part
            async for part in await chat.sdk.models.generate_content_stream(model="m", contents="Say hello.")
        ]
        (record,) = await chat.logged()
    parts = [part for each in got for part in each.candidates[0].content.parts]
    assert "".join(part.text or "" for part in parts) == record["reply"]["content"] == "Hello"
    (made,) = (part.function_call for part in parts if part.function_call)
    assert record["reply"]["tool_calls"] == [
        {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": '{"a":1}'}}
    ]
    assert (record["outcome"], record["finish_reason"]) == ("complete", "tool_calls")
    assert chat.server.requests[0].target == "/v1beta/models/m:streamGenerateContent?alt=sse"


async def test_turns_with_tools_are_one_conversation_and_a_typed_rating_rates_the_last(
    tmp_path: Path,
) -> None:
    """In a chat of the client a streamed reply comes back as one content for each of its chunks."""
    looked: list[str] = []

    def look(at: str) -> str:
        """Look at something."""
        looked.append(at)
        return "a cat"

    call = {"functionCall": {"id": "c1", "name": "look", "args": {"at": "ü"}}, "thoughtSignature": "c2ln"}
    scripts = (
        says({"text": "I must look.", "thought": True}, call),
        says("A cat."),
        streams(answer("A black", finish=None), answer(" one.")),
        says("Bye."),
    )
    async with talk(tmp_path, *scripts) as chat:
        talking = chat.sdk.chats.create(model="m", config=types.GenerateContentConfig(tools=[look]))
        assert (await talking.send_message("What is there?")).text == "A cat."
        parts = [part.text async for part in await talking.send_message_stream("Which colour?")]
        assert parts == ["A black", " one."]
        assert (await talking.send_message("/rl good")).text.startswith(
            "burnish: rated good – “A black one.”"
        )
        parts = [part.text async for part in await talking.send_message_stream("/rl bad too short")]
        assert "".join(parts).startswith("burnish: rated bad with your comment – “A black one.”")
        assert (await talking.send_message("Bye!")).text == "Bye."
        completions = await chat.logged()
        given = await ratings(chat.own)
    assert looked == ["ü"]
    assert len(completions) == len(chat.server.requests) == 4
    assert len({each["conversation_id"] for each in completions}) == 1
    assert {each["completion_id"] for each in given} == {completions[2]["id"]}
    assert completions[0]["params"]["tools"][0]["function"]["name"] == "look"
    last = chat.server.requests[-1].json()["contents"]
    assert [part.get("text") for content in last for part in content["parts"] if not part.get("thought")] == [
        "What is there?", None, None, "A cat.", "Which colour?", "A black", " one.", "Bye!",
    ]  # fmt: skip


async def test_a_instruction_stands_in_the_system_prompt(tmp_path: Path) -> None:
    async with talk(tmp_path, says("Hello, my dear friend!"), says("Hello."), instructions=True) as chat:
        talking = chat.sdk.chats.create(
            model="m", config=types.GenerateContentConfig(system_instruction="Be kind.")
        )
        await talking.send_message("Say hello.")
        await talking.send_message("/rl bad be brief")
        await talking.send_message("Again.")
        *_, record = await chat.logged()
    first, second = (request.json()["systemInstruction"]["parts"] for request in chat.server.requests)
    assert [part["text"] for part in first] == ["Be kind."]
    assert second[0] == first[0]
    assert "be brief" in second[1]["text"]
    assert record["messages"][0] == {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize("streamed", [True, False])
async def test_our_answer_to_a_command_is_taken_by_the_client(tmp_path: Path, streamed: bool) -> None:
    async with talk(tmp_path) as chat:
        if streamed:
            got = await chat.sdk.models.generate_content_stream(model="m", contents="/rl help")
            said, last = [part async for part in got]
            assert last.candidates[0].finish_reason == "STOP"
        else:
            said = await chat.sdk.models.generate_content(model="m", contents="/rl help")
    assert said.text.startswith("burnish: rate the last answer")
    assert said.model_version == "m"
    assert said.response_id.startswith("cmpl_")
    assert chat.server.requests == []


async def test_without_events_our_answer_is_an_array(tmp_path: Path) -> None:
    async with talk(tmp_path) as chat:
        got = await chat.own.post(
            "/v1beta/models/m:streamGenerateContent", json={"contents": [{"parts": [{"text": "/rl help"}]}]}
        )
    said, last = got.json()
    assert said["candidates"][0]["content"]["parts"][0]["text"].startswith("burnish: rate the last answer")
    assert last["candidates"][0]["finishReason"] == "STOP"


async def test_errors_reach_the_client_as_its_own(tmp_path: Path) -> None:
    slow = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}
    scripts = (
        reply(orjson.dumps(slow, option=orjson.OPT_INDENT_2), status="429 Too Many Requests"),
        streams(answer("Hel", finish=None)),
        reply(orjson.dumps(blocked)),
    )
    async with talk(tmp_path, *scripts) as chat:
        with pytest.raises(errors.ClientError, match="slow down") as caught:
            await chat.sdk.models.generate_content(model="m", contents="Hi")
        assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
        [part async for part in await chat.sdk.models.generate_content_stream(model="m", contents="Hi")]
        got = await chat.sdk.models.generate_content(model="m", contents="Hi")
        assert got.prompt_feedback.block_reason == types.BlockedReason.SAFETY
        first, second, third = await chat.logged()
        assert (first["status"], first["error"]) == (429, "slow down")
        assert (second["outcome"], second["reply"]["content"]) == ("cut", "Hel")
        assert (third["outcome"], third["reply"], third["finish_reason"]) == (
            "complete",
            None,
            "content_filter",
        )
        got = await chat.own.post(PATH, json={"contents": "Hi"})
        assert got.status_code == 400
        assert got.json()["error"] == {
            "code": 400,
            "message": "contents must be a list of contents, not str",
            "status": "INVALID_ARGUMENT",
        }


async def test_nobody_listening_is_an_error_of_the_client(tmp_path: Path) -> None:
    async with serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _), client(url).aio as sdk:
        with pytest.raises(errors.ServerError, match="Is it running") as caught:
            await sdk.models.generate_content(model="m", contents="Hi")
    assert (caught.value.code, caught.value.status) == (502, "UNAVAILABLE")


async def test_default_is_the_upstreams_own_model(tmp_path: Path) -> None:
    async with talk(tmp_path, says("Hello!"), streams(answer("Hello!")), model="smollm2@v3 ü") as chat:
        await chat.sdk.models.generate_content(model="default", contents="Hi")
        [part async for part in await chat.sdk.models.generate_content_stream(model="default", contents="Hi")]
        records = await chat.logged()
    assert [request.target for request in chat.server.requests] == [
        "/v1beta/models/smollm2@v3%20%C3%BC:generateContent",
        "/v1beta/models/smollm2@v3%20%C3%BC:streamGenerateContent?alt=sse",
    ]
    assert {each["model_asked"] for each in records} == {"default"}
    assert {each["model_served"] for each in records} == {"smollm2@v3 ü"}


async def test_a_count_of_tokens_asks_for_the_right_model_and_is_no_completion(tmp_path: Path) -> None:
    async with talk(tmp_path, reply(b'{"totalTokens":3}'), model="smollm2") as chat:
        assert (await chat.sdk.models.count_tokens(model="default", contents="Hi")).total_tokens == 3
        assert await chat.logged() == []
    assert chat.server.requests[0].target == "/v1beta/models/smollm2:countTokens"


async def test_other_routes_pass(tmp_path: Path) -> None:
    embedding = b'{"embeddings":[{"values":[1]}]}'
    async with talk(tmp_path, reply(b'{"models":[]}'), reply(embedding)) as chat:
        assert [model async for model in await chat.sdk.models.list()] == []
        got = await chat.sdk.models.embed_content(model="m", contents="Hi")
        assert got.embeddings[0].values == [1]
        assert await chat.logged() == []


async def test_the_key_of_an_upstream_is_sent_as_it_wants_it(tmp_path: Path) -> None:
    asked = {"contents": [{"parts": [{"text": "Hi"}]}]}
    async with talk(tmp_path, says("Hello!"), upstream_api_key=SECRET) as chat:
        await chat.own.post(PATH, json=asked)
    assert chat.server.requests[0].header("x-goog-api-key") == SECRET


@pytest.mark.parametrize("path", [PATH, PATH.replace("generateContent", "embedContent"), "/v1beta/files"])
@pytest.mark.parametrize("query", ["?key=callers&alt=sse&keys=1", "?alt=sse&key=callers&keys=1"])
async def test_the_key_of_an_upstream_takes_the_place_of_one_in_the_query(
    tmp_path: Path, path: str, query: str
) -> None:
    asked = {"contents": [{"parts": [{"text": "Hi"}]}]}
    async with talk(tmp_path, says("Hello!"), says("Hello!"), upstream_api_key=SECRET) as chat:
        await chat.own.post(path + query, json=asked)
        await chat.own.post(path + query, json=asked, headers={"x-goog-api-key": "callers"})
    ours, theirs = chat.server.requests
    assert (ours.target, ours.header("x-goog-api-key")) == (f"{path}?alt=sse&keys=1", SECRET)
    assert (theirs.target, theirs.header("x-goog-api-key")) == (path + query, "callers")


async def test_a_key_in_the_query_goes_upstream_and_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked = {"contents": [{"parts": [{"text": "Hi"}]}]}
    query = f"?alt=sse&key={SECRET}"
    target = f"{PATH}{query}"
    async with talk(tmp_path, says("Hello!")) as chat:
        got = await chat.own.post(target, json=asked)
        assert got.status_code == 200
        refused = await chat.own.post(target, json={"contents": "Hi"})
        assert SECRET not in refused.text
        (record,) = await chat.logged()
        assert SECRET not in str(record)
    async with serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _):
        async with httpx.AsyncClient(base_url=url, trust_env=False) as own:
            unreachable = await own.post(target, json=asked)
            assert SECRET not in unreachable.text
    assert [request.target for request in chat.server.requests] == [target]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    ours = [
        each.getMessage()
        for each in caplog.records
        if each.name.partition(".")[0] not in ("httpx", "httpcore")
    ]
    assert SECRET not in "".join(ours)
