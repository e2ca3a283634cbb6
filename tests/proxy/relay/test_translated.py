"""Clients of other formats in front of an upstream that only knows chat completions."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import orjson
import pytest

from tests.support.chat_wire import called, chunk
from tests.support.dialects import DIALECTS
from tests.support.dialects import user as asks
from tests.support.inprocess import serving
from tests.support.patience import within
from tests.support.sdks import (
    FORMATS,
    FULL,
    GEMINI,
    OUT_OF_MEMORY,
    RAIN_STREAM,
    TOOLS,
    WEATHER,
    Json,
    user,
    world,
)
from tests.support.upstream import Received, reply, stream, upstream
from tests.support.wires import CHAT

TURNS: list[Json] = [
    {"reasoning_content": "Hm.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]},
    {"content": "Rain."},
    {"content": "Take an umbrella."},
]
LOOKED = {"type": "function_call_output", "call_id": "call_a", "output": "wet"}
HISTORY = [
    user("Weather in Köln?"),
    {"role": "assistant", "content": None, **TURNS[0]},
    {"role": "tool", "tool_call_id": "call_a", "content": "wet"},
]
IMAGE = "iVBORw0KGgo="
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
SCHEMA = {"type": "object", "properties": {"rain": {"type": "boolean"}}}
both = pytest.mark.parametrize("stream", [False, True])
every_format = pytest.mark.parametrize("name", FORMATS)


@both
@every_format
async def test_an_answer_has_ids_of_burnish(tmp_path: Path, stream: bool, name: str) -> None:
    async with world(tmp_path, FULL) as here:
        brief = {"instructions": "Be brief."} if name == "responses" else {}
        got = (await here.ask(name, WEATHER, stream, **brief)).raw
        (record,) = await here.logged()
    ended = record["id"].removeprefix("cmpl_")
    assert ended not in str(record["response_id"]), "it opens what came before, and the other is no secret"
    if name == "messages":
        assert got.id == record["response_id"]
        assert got.id.startswith("msg_")
        assert [block.id for block in got.content[2:]] == ["call_a", "call_b"]
        assert (got.usage.input_tokens, got.usage.cache_read_input_tokens) == (7, 10)
    elif name == "responses":
        assert got.id == record["response_id"]
        assert got.id.startswith("resp_")
        assert [item.call_id for item in got.output[2:]] == ["call_a", "call_b"]
        assert (got.instructions, got.usage.input_tokens_details.cached_tokens) == ("Be brief.", 10)
    elif name == "ollama":
        assert got.total_duration > 0
    else:
        header = got.sdk_http_response.headers["x-burnish-completion-id"]
        assert got.response_id == record["response_id"]
        assert header == record["id"]
        assert (got.model_version, got.usage_metadata.cached_content_token_count) == ("mock", 10)


@both
async def test_responses_continue_by_history_and_by_id(tmp_path: Path, stream: bool) -> None:
    brief = {"instructions": "Be brief.", **TOOLS["responses"]}
    async with world(tmp_path, *TURNS) as here:
        history: list[Any] = [user("Weather in Köln?")]
        first = await here.ask("responses", history, stream, **brief)
        history += [*(item.to_dict(mode="json") for item in first.raw.output), LOOKED]
        second = await here.ask("responses", history, stream, **brief)
        after = {"instructions": "Be kind.", "previous_response_id": second.raw.id}
        third = await here.ask("responses", "And now?", stream, **after)
        records = await here.logged()
        asked = [each["messages"] for each in here.asked()]
        with pytest.raises(openai.BadRequestError, match="'resp_x' not found"):
            await here.ask("responses", "And now?", stream, previous_response_id="resp_x")
    kind = {"role": "system", "content": "Be kind."}
    assert asked[1] == [{"role": "system", "content": "Be brief."}, *HISTORY]
    assert asked[2] == [kind, *HISTORY, {"role": "assistant", "content": "Rain."}, user("And now?")]
    assert third.raw.previous_response_id == second.raw.id
    assert len({record["conversation_id"] for record in records}) == 1


def references(items: Any) -> list[Json]:
    """References to items, as the AI SDK sends them instead of the items."""
    return [{"type": "item_reference", "id": item.id} for item in items]


@both
async def test_references_stand_for_answers(tmp_path: Path, stream: bool) -> None:
    async with world(tmp_path, *TURNS) as here:
        history: list[Any] = [user("Weather in Köln?")]
        for said in (LOOKED, user("/rl good"), user("And now?"), user("/rl bad")):
            got = await here.ask("responses", history, stream, **TOOLS["responses"])
            history += [*references(got.raw.output), said]
        rated = await here.ask("responses", history, stream, **TOOLS["responses"])
        records = await here.logged()
        asked = [each["messages"] for each in here.asked()]
        for name in ("msg_x", got.raw.output[0].id[:-4] + "ZZ_0"):
            with pytest.raises(openai.BadRequestError, match=f"'{name}' not found"):
                await here.ask("responses", [{"type": "item_reference", "id": name}, user("Hi.")], stream)
        eve = here.openai.with_options(default_headers={"x-burnish-user": "eve"})
        with pytest.raises(openai.BadRequestError, match="not found"):
            question: Any = [*references(got.raw.output), user("What was it?")]
            await eve.responses.create(model="mock", input=question)
    assert rated.text.startswith("burnish: rated bad")
    told = [*HISTORY, {"role": "assistant", "content": "Rain."}, user("And now?")]
    assert asked[2] == records[2]["messages"] == told
    assert [record["rating"] for record in records] == [1.0, 1.0, -1.0]
    assert len({record["conversation_id"] for record in records}) == 1


@both
async def test_a_prompt_is_a_users_turn(tmp_path: Path, stream: bool) -> None:
    async with world(tmp_path, {"reasoning_content": "Hm.", "content": "A cat."}) as here:
        more: Any = {"system": "Be kind.", "images": [IMAGE], "format": SCHEMA}
        generate: Any = here.ollama.generate
        given = await generate("mock", "What is it?", stream=stream, **more)
        parts = [part async for part in given] if stream else [given]
        with pytest.raises(ollama.ResponseError, match="suffix needs an upstream") as caught:
            await anext(await generate("mock", "def f(", suffix="return", stream=stream))
        first, second = await here.logged()
        (asked,) = here.asked()
    assert "".join(part.response for part in parts) == first["reply"]["content"] == "A cat."
    assert "".join(part.thinking or "" for part in parts) == first["reply"]["reasoning_content"] == "Hm."
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("stop", 7)
    assert asked["messages"] == first["messages"] == [
        {"role": "system", "content": "Be kind."},
        user([{"type": "text", "text": "What is it?"}, SHOWN]),
    ]  # fmt: skip
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert first["surface"] == "ollama_generate"
    assert (caught.value.status_code, second["outcome"]) == (400, "failed")


@both
async def test_other_kinds_of_tools_are_called_as_their_kind(tmp_path: Path, stream: bool) -> None:
    patch = {"type": "custom", "name": "patch", "description": "Patches."}
    agents = {"type": "namespace", "name": "agents", "description": "A.", **TOOLS["responses"]}
    calls = [called("patch", {"input": "*** Köln"}, "a"), called("agents__look", {"city": "Bonn"}, "b")]
    async with world(tmp_path, {"tool_calls": calls}) as here:
        asked: Any = {"model": "mock", "input": "Go.", "tools": [patch, agents]}
        got = await here.openai.responses.create(**asked, stream=stream)
        if stream:
            events = [event async for event in got]
            done = [each.input for each in events if each.type == "response.custom_tool_call_input.done"]
            assert done == ["*** Köln"]
            got = events[-1].response
    first, second = got.output
    assert (first.type, first.call_id) == ("custom_tool_call", "a")
    assert (first.name, first.input) == ("patch", "*** Köln")
    assert (second.type, second.name, second.namespace) == ("function_call", "look", "agents")


MESSAGE: Any = {"model": "mock", "max_tokens": 9, "messages": WEATHER}
CONTENTS = {"contents": [{"parts": [{"text": "Weather?"}]}]}


@pytest.mark.parametrize(
    ("path", "sent", "ours", "arrives"),
    [
        ("/v1/messages", {"x-api-key": "theirs"}, None, "Bearer theirs"),
        ("/v1/messages", {"x-api-key": "theirs"}, "ours", "Bearer theirs"),
        ("/v1/messages", {"authorization": "Bearer login"}, None, "Bearer login"),
        ("/v1/messages", {}, "ours", "Bearer ours"),
        ("/v1/messages", {"x-api-key": "burnish"}, "ours", "Bearer ours"),
        ("/v1/messages", {"authorization": "Bearer burnish", "x-api-key": "theirs"}, None, "Bearer theirs"),
        (GEMINI + "generateContent", {"x-goog-api-key": "theirs"}, None, "Bearer theirs"),
        (GEMINI + "generateContent", {"x-goog-api-key": "theirs"}, "ours", "Bearer theirs"),
        (GEMINI + "generateContent?key=th%65irs&alt=json", {}, None, "Bearer theirs"),
        (GEMINI + "generateContent?key=theirs", {}, "ours", "Bearer ours"),
        (GEMINI + "generateContent", {}, None, None),
    ],
)
async def test_keys_arrive_where_chat_has_them(
    tmp_path: Path, path: str, sent: dict[str, str], ours: str | None, arrives: str | None
) -> None:
    # As curl sends it: chat's servers only take JSON that is declared.
    headers = {"x-burnish-key": "burnish", "content-type": "application/x-www-form-urlencoded", **sent}
    body = orjson.dumps(MESSAGE if path == "/v1/messages" else CONTENTS)
    async with world(tmp_path, {"content": "Rain."}, upstream_api_key=ours, api_key="burnish") as here:
        assert (await here.http.post(path, content=body, headers=headers)).status_code == 200
        last = here.upstream.requests[-1]
    keys = [last.header(name) for name in ("authorization", "x-api-key", "x-goog-api-key")]
    assert (keys, last.target) == ([arrives, None, None], CHAT)
    assert last.header("content-type") == "application/json"


async def test_the_model_in_the_path_is_the_one_that_the_upstream_knows(tmp_path: Path) -> None:
    """The probe of the path names it too, because an unknown model would be a 404 on some upstreams."""
    async with world(tmp_path, {"content": "Rain."}, {"content": "Sun."}, model="org/theirs") as here:
        for path in ("default", "org%2Fother"):
            got = await here.http.post(f"/v1beta/models/{path}:generateContent", json=CONTENTS)
            assert got.status_code == 200
        targets = [each.target for each in here.upstream.requests[:2]]
        asked = [each["model"] for each in here.asked()]
        records = await here.logged()
    assert targets == ["/v1beta/models/org/theirs:generateContent"] * 2
    assert asked == ["org/theirs", "org/other"]
    assert [record["model_asked"] for record in records] == ["default", "org/other"]


async def test_what_an_upstream_lacks_is_found_out_once_a_format(tmp_path: Path) -> None:
    async with world(tmp_path, *[{"content": "Rain."}] * 7) as here:
        for name, stream in (("ollama", False), ("google", False), ("google", True), ("messages", False)) * 2:
            if len(here.asked()) < 7:
                await here.ask(name, WEATHER, stream)
        asked = [(each.target, each.body == b"[]") for each in here.upstream.requests]
    google = FORMATS["google"].path
    assert asked == [
        ("/api/chat", False), ("/api/chat", True), (CHAT, True), (CHAT, False),
        (google, False), (google, True), (CHAT, True), (CHAT, False), (CHAT, False),
        ("/v1/messages", False), ("/v1/messages", True), (CHAT, True),
        *[(CHAT, False)] * 4,
    ]  # fmt: skip


@every_format
@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"])
async def test_an_upstream_that_has_the_path_is_believed(tmp_path: Path, name: str, status: str) -> None:
    missing = b'{"error":{"code":404,"message":"no model mock","status":"NOT_FOUND"}}'

    async def native(request: Received, writer: asyncio.StreamWriter) -> None:
        probed = request.body == b"[]"
        answer = reply(b"{}", status="400 Bad Request") if probed else reply(missing, status=status)
        await answer(request, writer)

    async with world(tmp_path) as here:
        here.unknown = native
        for _ in range(2):
            with pytest.raises(FORMATS[name].refused, match="no model mock") as caught:
                await here.ask(name, WEATHER)
        assert here.asked() == []
    if name == "messages":
        assert caught.value.response.content == missing  # type: ignore[attr-defined]


async def test_an_upstream_without_chat_answers_for_itself(tmp_path: Path) -> None:
    nothing = reply(b"404 page not found", status="404 Not Found", headers="content-type: text/plain\r\n")
    async with upstream(nothing) as server, serving(tmp_path, upstream=server.url) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=within(60)) as client:
            got = await client.post("/v1/messages", json={"messages": WEATHER})
    assert (got.status_code, got.content) == (404, b"404 page not found")


@pytest.mark.parametrize("name", ["ollama", "google"])
async def test_pieces_arrive_at_once(tmp_path: Path, name: str) -> None:
    held = asyncio.Event()
    async with world(tmp_path, stream(RAIN_STREAM, hold=held)) as here:
        if name == "ollama":
            given: Any = await here.ollama.chat("mock", WEATHER, stream=True)
            first = (await anext(given)).message.content
        else:
            given = await here.google.models.generate_content_stream(model="mock", contents="Weather?")
            first = (await anext(given)).text
        assert first
        assert not held.is_set()
        held.set()
        async for _ in given:
            pass


async def test_without_events_googles_stream_is_an_array_that_grows(tmp_path: Path) -> None:
    held = asyncio.Event()
    broken = stream([*RAIN_STREAM[:2], OUT_OF_MEMORY])
    path = GEMINI + "streamGenerateContent"
    async with world(tmp_path, stream(RAIN_STREAM, hold=held), broken) as here:
        async with here.http.stream("POST", path, json=CONTENTS) as got:
            assert got.headers["content-type"].startswith("application/json")
            arrived = ""
            async for text in got.aiter_text():
                arrived += text
                held.set()
        parts = orjson.loads(arrived)
        failed = (await here.http.post(path, json=CONTENTS)).json()
        first, second = await here.logged()
    said = [part["candidates"][0]["content"]["parts"][0]["text"] for part in parts]
    assert said == ["Rain ", "is", ""]
    assert parts[-1]["candidates"][0]["finishReason"] == "STOP"
    assert failed[-1]["error"] == {"code": 500, "message": "out of memory", "status": "INTERNAL"}
    assert (first["outcome"], first["reply"]["content"]) == ("complete", "Rain is")
    assert (second["outcome"], second["error"]) == ("cut", "out of memory")


async def test_a_client_that_leaves_cancels_the_answer(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with world(tmp_path, stream(RAIN_STREAM, hold=held)) as here:
        async with here.anthropic.messages.stream(**MESSAGE) as events:
            await anext(events.text_stream)
        while not here.upstream.disconnects:
            await asyncio.sleep(0.01)
        (record,) = await here.logged()
    assert record["outcome"] == "cancelled"


async def test_a_200_without_an_answer_is_a_bad_gateway(tmp_path: Path) -> None:
    async with world(tmp_path, reply(b'{"error":"no GPU"}'), reply(b"<html>")) as here:
        for _ in range(2):
            with pytest.raises(anthropic.InternalServerError) as caught:
                await here.ask("messages", WEATHER)
            assert caught.value.status_code == 502


SAID = "out of memory"
ERROR_BODIES: dict[str, bytes] = {
    "OpenAI's": b'{"error":{"message":"out of memory","type":"server_error","code":"oom"}}',
    "Ollama's": b'{"error":"out of memory"}',
    "FastAPI's": b'{"detail":"out of memory"}',
    "vLLM's": b'{"object":"error","message":"out of memory","type":"x","param":null,"code":500}',
    "Google's": b'[{"error":{"code":500,"message":"out of memory","status":"INTERNAL"}}]',
    "plain": b"out of memory",
    "none": b"",
}


@pytest.mark.parametrize("name", ["messages", "responses", "ollama_chat", "ollama_generate", "gemini"])
async def test_an_error_in_any_form_reaches_the_client_in_its_own(tmp_path: Path, name: str) -> None:
    dialect, head = DIALECTS[name], "content-type: text/plain\r\n"
    async with world(tmp_path) as here:
        for whose, body in ERROR_BODIES.items():
            packed = reply(gzip.compress(body), status="500 Oh", headers=head + "content-encoding: gzip\r\n")
            for says in (reply(body, status="500 Oh", headers=head), packed):
                here.says = [says]
                answer = await here.http.post(dialect.path, json=dialect.body((asks("Weather?"),)))
                assert answer.status_code == 500
                error = answer.json()["error"]
                if name.startswith("ollama"):
                    error = {"message": error}
                assert error["message"] == (SAID if body else "the upstream answered with 500"), whose
                assert error.get("type") == {"messages": "api_error", "responses": "server_error"}.get(name)
                codes = {"gemini": 500, "responses": "oom" if whose == "OpenAI's" else None}
                assert error.get("code") == codes.get(name)


async def test_an_error_of_the_embedded_engine_reaches_the_client_in_its_form(tmp_path: Path) -> None:
    async with world(tmp_path, upstream=None, context=1024, parallel=1) as here:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await here.ask("messages", [{"role": "user", "content": "word " * 5000}], model="default")
        error: Any = caught.value.body
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        assert "1024" in error["error"]["message"]


@every_format
async def test_an_answer_whose_end_comes_while_its_beginning_is_translated_is_whole(
    tmp_path: Path, name: str
) -> None:
    end = chunk({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1000})
    many, steps = chunk({"content": "word "}) * 1000, iter(range(12))

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        writer.write(b"%x\r\n%b\r\n" % (len(many), many))
        for _ in range(next(steps)):  # of the event loop, in which burnish translates
            await asyncio.sleep(0)
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
        await writer.drain()

    async with world(tmp_path, *[answer] * 12) as here:
        for _ in range(12):
            assert (await here.ask(name, WEATHER, stream=True)).text == "word " * 1000


ENDS: dict[str, dict[str, Any]] = {
    "an error in the choice": {
        "finish_reason": "stop",
        "error": {"code": 502, "message": "the worker is gone"},
    },
    "a reason that says so": {"finish_reason": "network_error"},
    "an abort": {"finish_reason": "abort"},
    "what the provider said": {"finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"},
}


@both
@pytest.mark.parametrize("name", ["messages", "responses", "ollama_chat", "gemini"])
async def test_an_answer_that_failed_is_an_error_to_the_client_too(
    tmp_path: Path, name: str, stream: bool
) -> None:
    dialect = DIALECTS[name]
    async with world(tmp_path) as here:
        for what, end in ENDS.items():
            half: Json = {"index": 0, "delta": {"content": "On the nor"}, "finish_reason": None}
            events = [{**half}, {"index": 0, "delta": {}, **end}]
            streamed = b"".join(b"data: %b\n\n" % orjson.dumps({"choices": [event]}) for event in events)
            whole = orjson.dumps({"choices": [{**half, "message": half["delta"], **end}]})
            here.says = [
                reply(streamed, headers="content-type: text/event-stream\r\n") if stream else reply(whole)
            ]
            path = dialect.path.replace(":generate", ":streamGenerate") if stream else dialect.path
            body = {**dialect.body((asks("Weather?"),)), "stream": stream}
            answer = await here.http.post(path, json=body)
            assert answer.status_code == (200 if stream else 502), what
            assert (
                "error" in answer.text and "end_turn" not in answer.text and '"completed"' not in answer.text
            )
            (*_, row) = await here.logged()
            said = {"completion_id": row["id"], "rating": "good"}
            rated = (await here.http.post("/v1/feedback", json=said)).json()
            assert (rated["usable"], row["error"] is not None) == (False, True), (what, rated)
