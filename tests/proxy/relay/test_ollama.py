"""Ollama's own client through the whole of burnish, before a scripted Ollama."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import ollama
import orjson
import pytest

from tests.support.behind import behind, logged, ratings
from tests.support.inprocess import serving
from tests.support.upstream import Received, Script, Upstream, in_turn, reply, stream

END = {"done": True, "done_reason": "stop", "total_duration": 9, "prompt_eval_count": 5, "eval_count": 2}
NDJSON = "application/x-ndjson"
QUESTION = {"role": "user", "content": "Say hello."}


def answer(**members: Any) -> bytes:
    return orjson.dumps({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False, **members})


def says(text: str, **members: Any) -> bytes:
    return answer(message={"role": "assistant", "content": text, **members}, **END)


def lines(*messages: dict[str, Any]) -> list[bytes]:
    parts = [answer(message={"role": "assistant", "content": "", **message}) for message in messages]
    return [part + b"\n" for part in (*parts, says(""))]


@dataclass
class Talk:
    sdk: ollama.AsyncClient
    server: Upstream
    own: httpx.AsyncClient

    async def logged(self) -> list[dict[str, Any]]:
        return await logged(self.own)


@asynccontextmanager
async def talk(tmp_path: Path, *scripts: Script, **flags: Any) -> AsyncIterator[Talk]:
    async with (
        behind(tmp_path, in_turn(*scripts), **flags) as (own, server),
        ollama.AsyncClient(host=str(own.base_url), trust_env=False) as sdk,
    ):
        yield Talk(sdk, server, own)


async def test_a_whole_answer(tmp_path: Path) -> None:
    async with talk(tmp_path, reply(says("Hello!", thinking="hm"))) as chat:
        got = await chat.sdk.chat("m", messages=[QUESTION], options={"temperature": 0.5})
        (record,) = await chat.logged()
    assert got.message.content == record["reply"]["content"] == "Hello!"
    assert got.message.thinking == record["reply"]["reasoning_content"] == "hm"
    assert record["surface"] == "ollama_chat"
    assert record["messages"] == [QUESTION]
    assert record["params"]["temperature"] == 0.5
    assert (record["outcome"], record["finish_reason"], record["model_asked"]) == ("complete", "stop", "m")
    assert (record["prompt_tokens"], record["completion_tokens"]) == (5, 2)


async def test_a_stream(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    parts = lines({"thinking": "hm"}, {"content": "Hel"}, {"content": "lo"}, {"tool_calls": [call]})
    async with talk(tmp_path, stream(parts, content_type=NDJSON)) as chat:
        got = [part async for part in await chat.sdk.chat("m", messages=[QUESTION], stream=True)]
        (record,) = await chat.logged()
    assert "".join(part.message.content or "" for part in got) == record["reply"]["content"] == "Hello"
    assert "".join(part.message.thinking or "" for part in got) == record["reply"]["reasoning_content"]
    (made,) = (each for part in got for each in part.message.tool_calls or ())
    assert record["reply"]["tool_calls"] == [
        {"type": "function", "function": {"name": made.function.name, "arguments": '{"a":1}'}}
    ]
    assert got[-1].done
    assert (record["outcome"], record["finish_reason"]) == ("complete", "tool_calls")


async def test_a_prompt(tmp_path: Path) -> None:
    parts = [
        answer(response="Hel") + b"\n",
        answer(response="lo") + b"\n",
        answer(response="", **END) + b"\n",
    ]
    async with talk(
        tmp_path, stream(parts, content_type=NDJSON), reply(answer(response="Hi", **END))
    ) as chat:
        streamed = [
            part async for part in await chat.sdk.generate("m", "Say hello.", system="Be kind.", stream=True)
        ]
        whole = await chat.sdk.generate("m", "Say hi.")
        first, second = await chat.logged()
    assert "".join(part.response or "" for part in streamed) == first["reply"]["content"] == "Hello"
    assert first["messages"] == [{"role": "system", "content": "Be kind."}, QUESTION]
    assert whole.response == second["reply"]["content"] == "Hi"
    assert first["surface"] == "ollama_generate"


async def test_turns_with_tools_are_one_conversation_and_a_typed_rating_rates_the_last(
    tmp_path: Path,
) -> None:
    call = {"function": {"name": "look", "arguments": {"at": "ü", "n": 1}}}
    scripts = (
        reply(says("", thinking="I must look.", tool_calls=[call])),
        stream(lines({"content": "A c"}, {"content": "at."}), content_type=NDJSON),
        reply(says("A black one.")),
    )
    async with talk(tmp_path, *scripts) as chat:
        history: list[Any] = [QUESTION]

        async def say(text: str | None = None, **more: Any) -> str:
            history.extend([{"role": "user", "content": text}] if text else [])
            got = await chat.sdk.chat("m", messages=history, **more)
            history.append(got.message)
            return got.message.content or ""

        await say()
        history.append({"role": "tool", "content": "a cat", "tool_name": "look"})
        parts = [part async for part in await chat.sdk.chat("m", messages=history, stream=True)]
        history.append(
            {"role": "assistant", "content": "".join(part.message.content or "" for part in parts)}
        )
        assert (await say("/rl good")).startswith("burnish: rated good – “A cat.”")
        assert await say("Which colour?") == "A black one."
        completions = await chat.logged()
        (rating,) = await ratings(chat.own)
    assert len({each["conversation_id"] for each in completions}) == 1
    assert rating["completion_id"] == completions[1]["id"]
    seen = chat.server.requests[-1].json()["messages"]
    assert [message["role"] for message in seen] == ["user", "assistant", "tool", "assistant", "user"]
    assert b"/rl" not in chat.server.requests[-1].body
    assert len(chat.server.requests) == 3


async def test_a_instruction_stands_in_the_system_prompt(tmp_path: Path) -> None:
    scripts = (
        reply(says("Hello, my dear friend!")),
        reply(says("Hello.")),
        reply(answer(response="Hi.", **END)),
    )
    async with talk(tmp_path, *scripts, instructions=True) as chat:
        got = await chat.sdk.chat("m", messages=[QUESTION])
        history = [QUESTION, got.message, {"role": "user", "content": "/rl bad be brief"}]
        await chat.sdk.chat("m", messages=history)
        await chat.sdk.chat("m", messages=[QUESTION])
        await chat.sdk.generate("m", "Hi", system="Be kind.")
        asked, prompted = (request.json() for request in chat.server.requests[1:])
        *_, record = await chat.logged()
    assert asked["messages"][0]["role"] == "system"
    assert "be brief" in asked["messages"][0]["content"]
    assert asked["messages"][1] == QUESTION
    assert prompted["system"].startswith("Be kind.\n\n")
    assert "be brief" in prompted["system"]
    assert record["messages"][0] == {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize("streamed", [True, False])
async def test_our_answer_to_a_command_is_taken_by_the_client(tmp_path: Path, streamed: bool) -> None:
    async with talk(tmp_path) as chat:
        got = await chat.sdk.chat("m", messages=[{"role": "user", "content": "/rl help"}], stream=streamed)
        said = "".join([part.message.content async for part in got]) if streamed else got.message.content
        got = await chat.sdk.generate("m", "/rl help", stream=streamed)
        generated = "".join([part.response async for part in got]) if streamed else got.response
    assert said == generated
    assert said.startswith("burnish: rate the last answer")
    assert chat.server.requests == []


async def test_a_model_is_loaded_and_freed(tmp_path: Path) -> None:
    load = answer(message={"role": "assistant", "content": ""}, done=True, done_reason="load")
    unload = answer(response="", done=True, done_reason="unload")
    async with talk(tmp_path, reply(load), reply(unload)) as chat:
        assert (await chat.sdk.chat("m", messages=[])).done_reason == "load"
        assert (await chat.sdk.generate("m", keep_alive=0)).done_reason == "unload"
        for record in await chat.logged():
            assert (record["outcome"], record["reply"], record["error"]) == ("complete", None, None)


async def test_errors_reach_the_client_as_its_own(tmp_path: Path) -> None:
    missing = reply(b'{"error":"model \'m\' not found"}', status="404 Not Found")
    # As it takes a body that is no object: so burnish knows that it is the model that is not there, and not the path.
    probed = reply(b'{"error":"json: cannot unmarshal array"}', status="400 Bad Request")
    midway = stream([*lines({"content": "Hel"})[:1], b'{"error":"out of memory"}\n'], content_type=NDJSON)
    async with talk(tmp_path, missing, probed, midway) as chat:
        with pytest.raises(ollama.ResponseError, match="model 'm' not found") as caught:
            await chat.sdk.chat("m", messages=[QUESTION])
        assert caught.value.status_code == 404
        with pytest.raises(ollama.ResponseError, match="out of memory"):
            [part async for part in await chat.sdk.chat("m", messages=[QUESTION], stream=True)]
        first, second = await chat.logged()
        assert (first["status"], first["error"]) == (404, "model 'm' not found")
        assert (second["outcome"], second["error"]) == ("cut", "out of memory")
        with pytest.raises(ollama.ResponseError, match=r"^messages\[0\].role must be a string") as caught:
            # What the client would not send by itself.
            await chat.sdk._request_raw(
                "POST", "/api/chat", json={"model": "m", "messages": [{"content": "Hi"}]}
            )
        assert caught.value.status_code == 400


async def test_nobody_listening_is_an_error_of_the_client(tmp_path: Path) -> None:
    async with serving(tmp_path, upstream="http://127.0.0.1:9") as (url, _):
        async with ollama.AsyncClient(host=url, trust_env=False) as sdk:
            with pytest.raises(ollama.ResponseError, match=r"^cannot connect.*Is it running\?") as caught:
                await sdk.generate("m", "Hi")
    assert caught.value.status_code == 502


async def test_default_is_the_upstreams_own_model(tmp_path: Path) -> None:
    async with talk(tmp_path, reply(says("Hello!")), model="smollm2:135m") as chat:
        await chat.sdk.chat("default", messages=[QUESTION])
    assert chat.server.requests[0].json()["model"] == "smollm2:135m"


async def test_its_other_routes_pass_and_those_that_manage_do_not(tmp_path: Path) -> None:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        said = {"models": [], "model_info": {}, "embeddings": [], "version": "0.33.0"}
        await reply(orjson.dumps(said))(request, writer)

    async with talk(tmp_path, *[script] * 5) as chat:
        assert (await chat.sdk.list()).models == []
        assert (await chat.sdk.ps()).models == []
        await chat.sdk.show("m")
        assert (await chat.sdk.embed("m", "Hi")).embeddings == []
        assert (await chat.own.get("/api/version")).json()["version"] == "0.33.0"
        for manage in (chat.sdk.pull, chat.sdk.delete):
            with pytest.raises(ollama.ResponseError) as caught:
                await manage("m")
            assert caught.value.status_code == 403
            assert caught.value.error.startswith("/api/")
        assert await chat.logged() == []
    paths = ["/api/tags", "/api/ps", "/api/show", "/api/embed", "/api/version"]
    assert [request.target for request in chat.server.requests] == paths
