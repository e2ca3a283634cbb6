"""Clients of Ollama's formats and of Google's before an upstream that knows chat completions only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import ollama
import orjson
import pytest
from google import genai
from google.genai import errors, types

from tests.proxy.relay.test_translated import (
    CHAT,
    FULL,
    TOOL,
    Said,
    World,
    both,
    called,
    streamed,
    user,
    whole,
    world,
)
from tests.support.upstream import Received, Script, reply, stream

# Google's client inherits from a class of aiohttp which does not like that.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

LOOK = {"name": "look", "description": "Looks.", "parameters": TOOL}
LOOK_UP = {"type": "function", "function": LOOK}
IMAGE = "iVBORw0KGgo="
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
SCHEMA = {"type": "object", "properties": {"rain": {"type": "boolean"}}}
GEMINI = "/v1beta/models/mock:"
REFUSED = {
    "ollama": (ollama.ResponseError, lambda error: error.status_code),
    "google": (errors.APIError, lambda error: error.code),
}


@dataclass
class Natives:
    """The two clients, each asked alike."""

    world: World
    ollama: ollama.AsyncClient
    google: Any

    async def ask(self, client: str, history: list[Said], stream: bool, **more: Any) -> Said:
        """Ask with a history of chat's messages; return the answer as one of chat's, without its ids."""
        return await (self._ollama if client == "ollama" else self._google)(history, stream, more)

    async def _ollama(self, history: list[Said], stream: bool, more: Any) -> Said:
        messages = [{**each, "content": each.get("content") or ""} for each in history]
        asked: Any = {"model": "mock", "messages": messages, "stream": stream} | more
        given: Any = await self.ollama.chat(**asked)
        parts = [part async for part in given] if stream else [given]
        self.last = parts[-1]
        said = [part.message for part in parts]
        calls = [call.function for each in said for call in each.tool_calls or ()]
        return {
            "thoughts": "".join(each.thinking or "" for each in said),
            "text": "".join(each.content or "" for each in said),
            "calls": [(call.name, call.arguments) for call in calls],
            "why": parts[-1].done_reason,
            "counts": (parts[-1].prompt_eval_count, parts[-1].eval_count),
        }

    async def _google(self, history: list[Said], stream: bool, more: Any) -> Said:
        contents = [
            {"role": "model" if each["role"] == "assistant" else "user", "parts": [{"text": each["content"]}]}
            for each in history
        ]
        asked: Any = {"model": "mock", "contents": contents} | more
        models = self.google.models
        if stream:
            parts = [part async for part in await models.generate_content_stream(**asked)]
        else:
            parts = [await models.generate_content(**asked)]
        self.last = parts[-1]
        said = [part for each in parts for part in each.candidates[0].content.parts]
        usage = parts[-1].usage_metadata
        return {
            "thoughts": "".join(part.text for part in said if part.text and part.thought),
            "text": "".join(part.text for part in said if part.text and not part.thought),
            "calls": [
                (part.function_call.name, part.function_call.args) for part in said if part.function_call
            ],
            "why": parts[-1].candidates[0].finish_reason.value,
            "counts": (usage.prompt_token_count, usage.candidates_token_count),
        }


@asynccontextmanager
async def natives(tmp_path: Path, *says: Said | Script, **flags: Any) -> AsyncIterator[Natives]:
    async with world(tmp_path, *says, **flags) as here:
        options = types.HttpOptions(base_url=here.url, api_version="v1beta")
        async with (
            ollama.AsyncClient(host=here.url, trust_env=False) as llama,
            genai.Client(api_key="sk-caller", http_options=options).aio as google,
        ):
            yield Natives(here, llama, google)


formats = pytest.mark.parametrize("format", ["ollama", "google"])


@both
@formats
async def test_an_answer_is_what_chat_said_and_what_the_log_has(
    tmp_path: Path, stream: bool, format: str
) -> None:
    more: Any = {"tools": [LOOK_UP]}
    if format == "google":
        tool = {"function_declarations": [{"name": "look", "parameters_json_schema": TOOL}]}
        more = {"config": {"tools": [tool], "system_instruction": "Be brief."}}
    async with natives(tmp_path, FULL) as here:
        got = await here.ask(format, [user("Weather?")], stream, **more)
        (record,) = await here.world.logged()
        asked = here.world.asked()[0]
    assert got == {
        "thoughts": "They want rain.",
        "text": "Let me look – 😀.",
        "calls": [("look", {"city": "Köln"}), ("look", {"city": "Bonn"})],
        "why": "stop" if format == "ollama" else "STOP",
        "counts": (17, 7),
    }
    assert asked["model"] == "mock"
    assert asked["tools"][0]["function"]["parameters"] == TOOL
    assert (record["outcome"], record["finish_reason"], record["model_asked"]) == (
        "complete", "tool_calls", "mock",
    )  # fmt: skip
    assert (record["prompt_tokens"], record["completion_tokens"]) == (17, 7)
    logged = record["reply"]
    if format == "ollama":
        assert (record["surface"], record["response_id"]) == ("ollama_chat", None)
        assert here.last.total_duration > 0
        calls = [{"type": "function", "function": call["function"]} for call in FULL["tool_calls"]]
        assert logged == {"role": "assistant", **FULL, "tool_calls": calls}
    else:
        assert (record["surface"], record["response_id"]) == ("gemini", record["id"])
        assert (
            here.last.response_id
            == here.last.sdk_http_response.headers["x-burnish-completion-id"]
            == record["id"]
        )
        assert (here.last.model_version, here.last.usage_metadata.cached_content_token_count) == ("mock", 10)
        assert logged == {"role": "assistant", **FULL}
        assert record["messages"][0] == {"role": "system", "content": "Be brief."}
    assert record["messages"][-1] == user("Weather?")


@both
async def test_ollamas_tools_are_used_over_several_turns_of_one_conversation(
    tmp_path: Path, stream: bool
) -> None:
    says: list[Said] = [
        {"content": "Let me look.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
        {"content": "Rain."},
        {"content": "Take an umbrella."},
    ]
    history: list[Any] = [user("Weather in Köln?")]
    async with natives(tmp_path, *says) as here:
        for answer in (None, "And now?", None):
            got = await here.ask("ollama", history, stream, tools=[LOOK_UP])
            calls = [{"function": {"name": name, "arguments": given}} for name, given in got["calls"]]
            history.append({"role": "assistant", "content": got["text"], "tool_calls": calls})
            results = [{"role": "tool", "tool_name": "look", "content": "wet"} for _ in calls]
            history += results or [user(answer)]
        records = await here.world.logged()
        asked = here.world.asked()[-1]
    made = {"type": "function", "function": says[0]["tool_calls"][0]["function"], "id": "call00000"}
    assert asked["messages"] == [
        user("Weather in Köln?"),
        {"role": "assistant", "content": "Let me look.", "tool_calls": [made]},
        {"role": "tool", "name": "look", "content": "wet", "tool_call_id": "call00000"},
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]
    assert asked["tools"] == [LOOK_UP]
    assert len({record["conversation_id"] for record in records}) == 1


@both
async def test_googles_client_runs_tools_and_rates_what_came_of_it(tmp_path: Path, stream: bool) -> None:
    def look(city: str) -> str:
        """Look at the sky."""
        return f"wet in {city}"

    says: list[Said] = [
        {"reasoning_content": "Hm.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
        {"content": "Rain."},
        {"content": "Take an umbrella."},
    ]

    async def send(chat: Any, text: str) -> str:
        if not stream:
            return str((await chat.send_message(text)).text)
        return "".join([part.text or "" async for part in await chat.send_message_stream(text)])

    async with natives(tmp_path, *says) as here:
        chat = here.google.chats.create(model="mock", config=types.GenerateContentConfig(tools=[look]))
        assert await send(chat, "Weather in Köln?") == "Rain."
        assert (await send(chat, "/rl good")).startswith("burnish: rated good – “Rain.”")
        assert await send(chat, "And now?") == "Take an umbrella."
        first, second, third = await here.world.logged()
        asked = here.world.asked()[-1]["messages"]
    call = {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": '{"city":"Köln"}'}}
    assert asked[:2] == [
        user("Weather in Köln?"),
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
    ]
    result = asked[2]
    assert (result["role"], result["tool_call_id"], result["name"]) == ("tool", "call_a", "look")
    assert orjson.loads(result["content"]) == {"result": "wet in Köln"}
    assert asked[3:] == [{"role": "assistant", "content": "Rain."}, user("And now?")]
    assert (second["rating"], third["rating"]) == (1.0, None)
    assert first["conversation_id"] == second["conversation_id"] == third["conversation_id"]


@both
async def test_rl_rates_ollamas_answer_before_and_is_never_asked(tmp_path: Path, stream: bool) -> None:
    async with natives(tmp_path, {"content": "Rain."}, {"content": "Sun."}) as here:
        history = [user("Weather?")]
        for said in ("/rl bad too short", "And now?", None):
            got = await here.ask("ollama", history, stream)
            history += [{"role": "assistant", "content": got["text"]}, user(said)]
        first, second = await here.world.logged()
        asked = here.world.asked()
    assert (first["rating"], second["rating"]) == (-1.0, None)
    assert asked[1]["messages"] == [
        user("Weather?"),
        {"role": "assistant", "content": "Rain."},
        user("And now?"),
    ]


@both
async def test_a_prompt_is_a_turn_of_the_users(tmp_path: Path, stream: bool) -> None:
    said = {"reasoning_content": "Hm.", "content": "A cat."}
    async with natives(tmp_path, said) as here:
        given: Any = await here.ollama.generate(
            "mock", "What is it?", system="Be kind.", images=[IMAGE], format=SCHEMA, stream=stream
        )
        parts = [part async for part in given] if stream else [given]
        with pytest.raises(ollama.ResponseError, match="suffix needs an upstream") as caught:
            refused: Any = await here.ollama.generate("mock", "def f(", suffix="return", stream=stream)
            await anext(refused)
        first, second = await here.world.logged()
        (asked,) = here.world.asked()
    assert "".join(part.response for part in parts) == first["reply"]["content"] == "A cat."
    assert "".join(part.thinking or "" for part in parts) == first["reply"]["reasoning_content"] == "Hm."
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("stop", 7)
    assert asked["messages"] == [
        {"role": "system", "content": "Be kind."},
        user([{"type": "text", "text": "What is it?"}, SHOWN]),
    ]
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (first["surface"], first["messages"]) == ("ollama_generate", asked["messages"])
    assert (caught.value.status_code, second["outcome"]) == (400, "failed")


@both
async def test_images_are_shown_and_schemas_asked_for(tmp_path: Path, stream: bool) -> None:
    async with natives(tmp_path, {"content": "{}"}, {"content": "{}"}) as here:
        message = {"role": "user", "content": "Look!", "images": [IMAGE]}
        options = {"num_predict": 9, "temperature": 0.5}
        await here.ask("ollama", [message], stream, format=SCHEMA, options=options)
        picture = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
        config = types.GenerateContentConfig(
            max_output_tokens=9,
            temperature=0.5,
            response_mime_type="application/json",
            response_json_schema=SCHEMA,
            thinking_config=types.ThinkingConfig(thinking_budget=0),
        )
        await here.ask("google", [], stream, contents=["Look!", picture], config=config)
        for asked in here.world.asked():
            assert asked["messages"] == [user([{"type": "text", "text": "Look!"}, SHOWN])]
            assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
            assert (asked["max_tokens"], asked["temperature"]) == (9, 0.5)
            assert asked.get("stream", False) == stream


async def test_without_events_googles_stream_is_an_array_that_grows(tmp_path: Path) -> None:
    held = asyncio.Event()
    begun = streamed({"content": "Rain is"}, "stop")
    broken = stream([*begun[:2], b'data: {"error":{"message":"out of memory"}}\n\n'])
    async with natives(tmp_path, stream(begun, hold=held), broken) as here:
        body = {"contents": [{"parts": [{"text": "Weather?"}]}]}
        path = GEMINI + "streamGenerateContent"
        async with here.world.http.stream("POST", path, json=body) as got:
            assert got.headers["content-type"].startswith("application/json")
            arrived = ""
            async for text in got.aiter_text():
                arrived += text
                held.set()
        parts = orjson.loads(arrived)
        failed = (await here.world.http.post(path, json=body)).json()
        first, second = await here.world.logged()
    said = [part["candidates"][0]["content"]["parts"][0]["text"] for part in parts]
    assert said == ["Rain ", "is", ""]
    assert parts[-1]["candidates"][0]["finishReason"] == "STOP"
    assert failed[-1]["error"] == {"code": 500, "message": "out of memory", "status": "INTERNAL"}
    assert (first["outcome"], first["reply"]["content"]) == ("complete", "Rain is")
    assert (second["outcome"], second["error"]) == ("cut", "out of memory")


@formats
async def test_what_is_said_arrives_while_the_rest_is_not_there_yet(tmp_path: Path, format: str) -> None:
    held = asyncio.Event()
    async with natives(tmp_path, stream(streamed({"content": "Rain is"}, "stop"), hold=held)) as here:
        if format == "ollama":
            given: Any = await here.ollama.chat("mock", [user("Weather?")], stream=True)
            first = (await anext(given)).message.content
        else:
            given = await here.google.models.generate_content_stream(model="mock", contents="Weather?")
            first = (await anext(given)).text
        assert first
        assert not held.is_set()
        held.set()
        async for _ in given:
            pass


async def test_what_an_upstream_lacks_is_found_out_once_a_format(tmp_path: Path) -> None:
    async with natives(tmp_path, *[{"content": "Rain."}] * 6) as here:
        for _ in range(2):
            await here.ask("ollama", [user("Weather?")], False)
            await here.ask("google", [user("Weather?")], False)
            await here.ask("google", [user("Weather?")], True)
        asked = [(each.target, each.body == b"[]") for each in here.world.upstream.requests]
    path = GEMINI + "generateContent"
    assert asked == [
        ("/api/chat", False), ("/api/chat", True), (CHAT, True), (CHAT, False),
        (path, False), (path, True), (CHAT, True),
        *[(CHAT, False)] * 5,
    ]  # fmt: skip


async def test_the_model_in_the_path_is_the_one_that_the_upstream_knows(tmp_path: Path) -> None:
    """It is also asked for by that name whether it has the path: of another one, some would know neither."""
    async with natives(tmp_path, {"content": "Rain."}, {"content": "Sun."}, model="org/theirs") as here:
        for path in ("default", "org%2Fother"):
            body = {"contents": [{"parts": [{"text": "Weather?"}]}]}
            got = await here.world.http.post(f"/v1beta/models/{path}:generateContent", json=body)
            assert got.status_code == 200
        targets = [each.target for each in here.world.upstream.requests[:2]]
        asked = [each["model"] for each in here.world.asked()]
        records = await here.world.logged()
    assert targets == ["/v1beta/models/org/theirs:generateContent"] * 2
    assert asked == ["org/theirs", "org/other"]
    assert [record["model_asked"] for record in records] == ["default", "org/other"]


@formats
async def test_a_model_that_is_missing_is_not_a_path_that_is(tmp_path: Path, format: str) -> None:
    missing = orjson.dumps({"error": {"code": 404, "message": "no model mock", "status": "NOT_FOUND"}})

    async def native(request: Received, writer: asyncio.StreamWriter) -> None:
        probed = request.body == b"[]"
        answer = reply(b"{}", status="400 Bad Request") if probed else reply(missing, status="404 Not Found")
        await answer(request, writer)

    kind, code = REFUSED[format]
    async with natives(tmp_path) as here:
        here.world.unknown = native
        for _ in range(2):
            with pytest.raises(kind, match="no model mock") as caught:
                await here.ask(format, [user("Weather?")], False)
            assert code(caught.value) == 404
        assert len(here.world.upstream.requests) == 3
        assert here.world.asked() == []


@both
@formats
@pytest.mark.parametrize(
    ("status", "name"), [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED")]
)
async def test_errors_are_told_in_the_words_of_the_format(
    tmp_path: Path, stream: bool, format: str, status: int, name: str
) -> None:
    error = orjson.dumps({"error": {"message": "no model mock", "type": "x", "code": "y"}})
    head = "content-type: application/json\r\nretry-after: 7\r\n"
    kind, code = REFUSED[format]
    async with natives(tmp_path, reply(error, status=f"{status} No", headers=head)) as here:
        with pytest.raises(kind, match="no model mock") as caught:
            await here.ask(format, [user("Weather?")], stream)
        assert code(caught.value) == status
        if format == "google":
            assert (caught.value.status, caught.value.response.headers["retry-after"]) == (name, "7")
        else:
            assert caught.value.error == "no model mock"
        (record,) = await here.world.logged()
    assert (record["status"], record["error"]) == (status, "no model mock")


@formats
async def test_an_error_in_the_middle_of_a_stream_is_told_there(tmp_path: Path, format: str) -> None:
    begun = streamed({"content": "Rain is"}, "stop")[:2]
    broken = stream([*begun, b'data: {"error":{"message":"out of memory"}}\n\n', b"data: [DONE]\n\n"])
    async with natives(tmp_path, broken) as here:
        with pytest.raises(REFUSED[format][0], match="out of memory"):
            await here.ask(format, [user("Weather?")], True)
        (record,) = await here.world.logged()
    assert (record["outcome"], record["error"]) == ("cut", "out of memory")
    assert record["reply"]["content"] == "Rain "


@formats
@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_too_early_is_a_cut_one(tmp_path: Path, format: str, cut: bool) -> None:
    half = stream(streamed({"content": "Rain is"}, "stop")[:2], cut=cut)
    async with natives(tmp_path, half) as here:
        with pytest.raises((httpx.RemoteProtocolError, aiohttp.ClientPayloadError)):
            await here.ask(format, [user("Weather?")], True)
        (record,) = await here.world.logged()
    assert (record["outcome"], record["reply"]["content"]) == ("cut", "Rain ")


@both
@formats
async def test_an_answer_that_is_too_long_says_so(tmp_path: Path, stream: bool, format: str) -> None:
    async with natives(tmp_path, {"content": "Rain and", "finish_reason": "length"}) as here:
        got = await here.ask(format, [user("Weather?")], stream)
        (record,) = await here.world.logged()
    assert got["why"] == ("length" if format == "ollama" else "MAX_TOKENS")
    assert record["finish_reason"] == "length"


@formats
async def test_what_a_server_says_that_does_not_stream_is_streamed_all_the_same(
    tmp_path: Path, format: str
) -> None:
    async with natives(tmp_path, reply(whole(FULL, "tool_calls"))) as here:
        got = await here.ask(format, [user("Weather?")], True)
    assert (got["text"], len(got["calls"])) == (FULL["content"], 2)


@pytest.mark.parametrize(
    ("sent", "query", "ours", "arrives"),
    [
        ({"x-goog-api-key": "theirs"}, "", None, "Bearer theirs"),
        ({"x-goog-api-key": "theirs"}, "", "ours", "Bearer theirs"),
        ({}, "?key=th%65irs&alt=json", None, "Bearer theirs"),
        ({}, "?key=theirs", "ours", "Bearer ours"),
        ({}, "", None, None),
    ],
)
async def test_googles_keys_arrive_where_chat_has_them(
    tmp_path: Path, sent: dict[str, str], query: str, ours: str | None, arrives: str | None
) -> None:
    body = orjson.dumps({"contents": [{"parts": [{"text": "Weather?"}]}]})
    async with world(tmp_path, {"content": "Rain."}, upstream_api_key=ours) as here:
        # As curl sends it: chat's servers take nothing but JSON for JSON.
        headers = {"content-type": "application/x-www-form-urlencoded", **sent}
        got = await here.http.post(f"{GEMINI}generateContent{query}", content=body, headers=headers)
        last = here.upstream.requests[-1]
    assert got.status_code == 200
    assert (last.target, last.header("authorization"), last.header("x-goog-api-key")) == (CHAT, arrives, None)
    assert last.header("content-type") == "application/json"
