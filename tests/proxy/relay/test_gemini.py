"""What only Google's format has: models in paths, keys in queries, a client that runs tools by itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.genai import types

from tests.proxy.relay.test_passthrough import stored
from tests.support.chat_wire import called
from tests.support.inprocess import calling
from tests.support.sdks import user, world
from tests.support.upstream import reply

PATH = "/v1beta/models/m:generateContent"
SECRET = "AIza-nobody-may-know"
ASK = {"contents": [{"parts": [{"text": "Hi"}]}]}
HELLO = {"content": "Hello!"}


@pytest.mark.parametrize("native", [True, False], ids=["native", "chat only"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_googles_client_runs_tools_in_one_conversation(tmp_path: Path, stream: bool, native: bool):
    """In a chat of the client a streamed reply comes back as one content for each of its chunks."""

    def look(city: str) -> str:
        """Look at the sky."""
        return f"wet in {city}"

    async def send(text: str) -> str:
        if not stream:
            return str((await chat.send_message(text)).text)
        return "".join([part.text or "" async for part in await chat.send_message_stream(text)])

    call = {"reasoning_content": "I must look.", "tool_calls": [called("look", {"city": "Köln"}, "call_a")]}
    async with world(tmp_path, call, {"content": "It rains."}, HELLO, native=native) as here:
        chat = here.google.chats.create(model="mock", config=types.GenerateContentConfig(tools=[look]))
        assert await send("Weather in Köln?") == "It rains."
        assert (await send("/rl good")).startswith("burnish: rated good – “It rains.”")
        assert (await send("/rl bad too short")).startswith("burnish: rated bad with your comment")
        assert await send("Hello?") == "Hello!"
        records = await here.logged()
        asked = here.asked()
    assert [record["rating"] for record in records] == [-1.0, -1.0, None]
    assert len({record["conversation_id"] for record in records}) == 1
    assert (len(asked), "/rl" in str(asked)) == (3, False)
    if not native:
        result = asked[2]["messages"].pop(2)
        assert (result["role"], result["tool_call_id"], result["name"]) == ("tool", "call_a", "look")
        assert orjson.loads(result["content"]) == {"result": "wet in Köln"}
        assert asked[2]["messages"] == [
            user("Weather in Köln?"),
            {"role": "assistant", "content": None, **call},
            {"role": "assistant", "content": "It rains."},
            user("Hello?"),
        ]


async def test_counts_of_tokens_and_other_routes_are_no_completions(tmp_path: Path) -> None:
    embedding = b'{"totalTokens": 3, "models": [], "embeddings": [{"values": [1]}]}'
    async with world(tmp_path, model="smollm2") as here:
        here.unknown = reply(embedding)
        models = here.google.models
        assert (await models.count_tokens(model="default", contents="Hi")).total_tokens == 3
        assert [model async for model in await models.list()] == []
        assert (await models.embed_content(model="m", contents="Hi")).embeddings[0].values == [1]
        assert await here.logged() == []
    assert here.upstream.requests[0].target == "/v1beta/models/smollm2:countTokens"


@pytest.mark.parametrize("path", [PATH, PATH.replace("generateContent", "embedContent"), "/v1beta/files"])
@pytest.mark.parametrize("query", ["?key=callers&alt=sse&keys=1", "?alt=sse&key=callers&keys=1"])
async def test_the_upstreams_key_replaces_one_in_the_query(tmp_path: Path, path: str, query: str) -> None:
    async with world(tmp_path, HELLO, HELLO, native=True, upstream_api_key=SECRET) as here:
        here.unknown = reply(b"{}")
        await here.http.post(path + query, json=ASK)
        await here.http.post(path + query, json=ASK, headers={"x-goog-api-key": "callers"})
    ours, theirs = here.upstream.requests
    assert (ours.target, ours.header("x-goog-api-key")) == (f"{path}?alt=sse&keys=1", SECRET)
    assert (theirs.target, theirs.header("x-goog-api-key")) == (path + query, "callers")


async def test_a_query_key_only_goes_upstream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    target = f"{PATH}?alt=sse&key={SECRET}"
    async with world(tmp_path, HELLO, HELLO, native=True) as here:
        for asked in (ASK, {"contents": "Hi"}):
            assert (await here.http.post(target, json=asked)).status_code == 200
        records = await here.logged()
    async with calling(tmp_path, upstream="http://127.0.0.1:9") as own:
        unreachable = await own.post(target, json=ASK)
    assert [request.target for request in here.upstream.requests] == [target] * 2
    files = stored(tmp_path)
    assert len(records) == 1 and files
    theirs: Any = ("httpx", "httpcore")
    ours = [each.getMessage() for each in caplog.records if each.name.partition(".")[0] not in theirs]
    assert SECRET not in "".join([unreachable.text, str(records), *ours])
    assert SECRET.encode() not in files
