"""A real litellm between burnish and a scripted provider, which speaks chat completions or Anthropic's Messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import orjson
import psutil
import pytest
import pytest_asyncio
import tomlkit

from burnish.proxy.cloud import PROGRAM, ProviderRoute, litellm
from burnish.proxy.http.errors import ConfigError
from tests.support import bedrock_wire
from tests.support.anthropic_wire import event, message_events, text
from tests.support.burnish import Burnish, in_thread, running
from tests.support.patience import within
from tests.support.real_engines import LITELLM_PYTHON, needs
from tests.support.sdks import FORMATS, FULL, TOOLS, WEATHER, Json, World, status_code, user
from tests.support.upstream import Received, Upstream, completion, events, reply, stream, upstream

pytestmark = [
    pytest.mark.engine,
    needs("litellm"),
    pytest.mark.asyncio(loop_scope="module"),
]

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
ASKED: Json = {"model": "mock", "messages": [user("Hi")]}
KEY = "sk-of-the-provider"
AWS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION_NAME": "eu-west-1"}
HAIKU = "anthropic.claude-3-haiku-20240307-v1:0"
MODELS = {"chat": "mock", "Messages": "claude"}
"""What the provider speaks → the model that speaks it."""

both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_provider = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
every_format = pytest.mark.parametrize("name", FORMATS)


@dataclass
class Cloud(World):
    """A burnish before three upstreams, which are the same provider in three formats."""

    pid: int = 0


def settings(provider: Upstream) -> Json:
    chat = {"url": "litellm:openai/gpt", "api_base": f"{provider.url}/v1", "models": ["mock"]}
    claude = {"url": "litellm:anthropic", "api_base": provider.url, "models": ["claude", "claude-*"]}
    aws = {"url": f"litellm:bedrock/{HAIKU}", "api_base": provider.url, "models": ["aws"]}
    return {
        "upstream": provider.url,
        "engine": "none",
        "litellm": {"python": str(LITELLM_PYTHON)},
        "upstreams": {"chat": chat | {"api_key": KEY}, "claude": claude | {"api_key": KEY}, "aws": aws},
    }


def burnish(folder: Path, given: Json, *flags: str, **more: Any) -> AbstractAsyncContextManager[Burnish]:
    file = folder / "config.toml"
    file.write_text(tomlkit.dumps(given))
    return in_thread(running(folder / "data", "--config", str(file), *flags, **more))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cloud]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await cloud.answer(request)(request, writer)

    async with (
        upstream(script) as server,
        burnish(tmp_path_factory.mktemp("burnish"), settings(server), env=AWS) as up,
        httpx.AsyncClient(base_url=up.url, trust_env=False, timeout=within(60)) as http,
        AsyncExitStack() as clients,
    ):
        cloud = Cloud(server, http, up.url, clients, native=True, pid=up.pid)
        yield cloud


@pytest.fixture
def here(shared: Cloud) -> Cloud:
    shared.says.clear()
    shared.upstream.requests.clear()
    return shared


def children(*, of: int) -> list[psutil.Process]:
    """The processes of litellm that a burnish started."""
    return [each for each in psutil.Process(of).children() if str(PROGRAM) in each.cmdline()]


async def chat(here: Cloud, **more: Any) -> httpx.Response:
    return await here.http.post(CHAT, json=ASKED | more, headers={"authorization": "Bearer sk-of-the-caller"})


async def latest(here: Cloud) -> Json:
    return (await here.logged())[-1]


@both
@every_provider
@every_format
async def test_every_client_is_answered(here: Cloud, name: str, model: str, streamed: bool) -> None:
    here.says.append(FULL)
    got = await here.ask(name, WEATHER, streamed, model=model, **TOOLS[name])
    assert got.text == FULL["content"]
    assert got.thoughts == FULL["reasoning_content"]
    assert got.calls == [("look", {"city": "Köln"}), ("look", {"city": "Bonn"})]
    assert got.finished == FORMATS[name].finished[0]
    # litellm estimates how many tokens were thoughts, and Gemini counts those apart.
    thoughts = got.raw.usage_metadata.thoughts_token_count or 0 if name == "google" else 0
    assert got.counts == (17, 7 - thoughts)
    (sent,) = here.upstream.requests
    assert sent.target.endswith(MESSAGES if model == "claude" else CHAT)
    assert KEY in (sent.header("authorization") or sent.header("x-api-key") or "")


@both
@every_provider
async def test_a_chat_client_gets_it_and_it_can_be_rated(here: Cloud, model: str, streamed: bool) -> None:
    here.says.append({"content": "Rain is likely."})
    asked: Any = {"model": model, "messages": WEATHER}
    if streamed:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    answer: Any = await here.openai.chat.completions.create(**asked)
    if streamed:
        chunks = [chunk async for chunk in answer]
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        usage = chunks[-1].usage
    else:
        said, usage = answer.choices[0].message.content, answer.usage
    assert said == "Rain is likely."
    assert (usage.prompt_tokens, usage.completion_tokens) == (17, 7)
    record = await latest(here)
    assert record["outcome"] == "complete"
    assert record["upstream"] == {"mock": "litellm:openai/gpt", "claude": "litellm:anthropic"}[model]
    rated = await here.http.post("/v1/feedback", json={"completion_id": record["id"], "rating": "good"})
    assert rated.status_code == 201, rated.text


async def test_an_answer_may_repeat_itself(here: Cloud) -> None:
    here.says.append(stream(events("0 " + "0 " * 200)))
    answer = await chat(here, stream=True)
    assert answer.text.count('" 0"') == 200
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_bedrock_is_asked_with_a_signature(here: Cloud) -> None:
    here.unknown = reply(orjson.dumps(bedrock_wire.message("Rain is likely.")))
    whole = await here.ask("messages", WEATHER, model="aws")
    parts = bedrock_wire.message_events("Rain is", " likely.")
    here.unknown = stream(parts, content_type=bedrock_wire.EVENTS)
    streamed = await here.ask("messages", WEATHER, True, model="aws")
    for got in (whole, streamed):
        assert (got.text, got.finished, got.counts) == ("Rain is likely.", "end_turn", (17, 7))
    for sent, path in zip(here.upstream.requests, ("converse", "converse-stream"), strict=True):
        assert unquote(sent.target) == f"/model/{HAIKU}/{path}"
        assert "Credential=AKIAEXAMPLE/" in str(sent.header("authorization"))
        assert sent.json()["messages"][0]["content"] == [{"text": "Weather?"}]
    assert (await latest(here))["upstream_table"] == "aws"


WRONG_KEY = {"type": "authentication_error", "message": "invalid x-api-key"}
REFUSED: dict[str, tuple[str, Json, int]] = {
    "mock": ("429 Too Many Requests", {"error": {"message": "slow down", "type": "rate_limit"}}, 429),
    "claude": ("401 Unauthorized", {"type": "error", "error": WRONG_KEY}, 401),
}


@both
@every_provider
async def test_errors_keep_status_and_words(here: Cloud, model: str, streamed: bool) -> None:
    line, told, status = REFUSED[model]
    head = "content-type: application/json\r\nretry-after: 7\r\n"
    for _ in ("chat", *FORMATS):
        here.says.append(reply(orjson.dumps(told), status=line, headers=head))
    answer = await chat(here, model=model, stream=streamed)
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "7"
    error = answer.json()["error"]
    assert told["error"]["message"] in error["message"]
    assert error["type"] == "invalid_request_error"
    for name, each in FORMATS.items():
        with pytest.raises(each.refused, match=told["error"]["message"]) as refused:
            await here.ask(name, WEATHER, streamed, model=model)
        assert status_code(refused.value) == status
    assert len(here.upstream.requests) == 5, "clients retry, litellm doesn't"


OVERLOADED = {
    "mock": [*events("Rain is", done=False), b'data: {"error":{"message":"overloaded","code":529}}\n\n'],
    "claude": [
        *message_events(text("Rain is"))[:4],
        event("error", error={"type": "overloaded_error", "message": "overloaded"}),
    ],
}


@every_provider
async def test_an_error_within_a_stream_is_told_there(here: Cloud, model: str) -> None:
    here.says.append(stream(OVERLOADED[model]))
    answer = await chat(here, model=model, stream=True)
    assert answer.status_code == 200
    last = orjson.loads(answer.text.strip().rpartition("data: ")[2])
    assert "overloaded" in last["error"]["message"]
    record = await latest(here)
    assert record["outcome"] == "cut"
    assert "overloaded" in record["error"]


async def test_members_that_would_be_dropped_or_steer_litellm_are_refused(here: Cloud) -> None:
    unsupported = await chat(here, model="claude", logit_bias={"1": 2})
    assert (unsupported.status_code, unsupported.json()["error"]["code"]) == (400, "UnsupportedParamsError")
    assert "logit_bias" in unsupported.json()["error"]["message"]
    for name in ("api_base", "mock_response", "extra_headers", "metadata"):
        steering = await chat(here, **{name: here.upstream.url})
        assert steering.status_code == 400
        assert steering.json()["error"]["param"] == name
    assert not here.upstream.requests


async def test_a_client_that_leaves_ends_the_providers_work(here: Cloud) -> None:
    for model in MODELS.values():
        left = here.upstream.disconnects
        parts = message_events(text("Rain is likely.")) if model == "claude" else events("Rain is likely.")
        here.says.append(stream(parts, hold=asyncio.Event()))
        body = ASKED | {"model": model, "stream": True}
        async with here.http.stream("POST", CHAT, json=body) as answer:
            async for line in answer.aiter_lines():
                if "likely" in line:
                    break
        async with asyncio.timeout(within(20)):
            while here.upstream.disconnects == left:
                await asyncio.sleep(0.01)


async def test_its_models_are_those_that_the_tables_name(here: Cloud) -> None:
    here.models.append({"id": "local", "object": "model"})
    listed = (await here.http.get("/v1/models")).json()
    here.models.clear()
    assert [each["id"] for each in listed["data"]] == ["default", "local", "mock", "claude", "aws"]
    status = (await here.http.get("/burnish/status")).json()["upstreams"]
    assert [(each["url"], each["trouble"]) for each in status] == [
        ("litellm:openai/gpt", None),
        ("litellm:anthropic", None),
        (f"litellm:bedrock/{HAIKU}", None),
    ]


async def test_a_killed_process_cuts_its_answers_and_is_back_for_the_next(here: Cloud) -> None:
    here.says += [stream(events("Rain is likely."), hold=asyncio.Event()), {"content": "Rain."}]
    (killed,) = children(of=here.pid)
    async with here.http.stream("POST", CHAT, json=ASKED | {"stream": True}) as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            async for line in answer.aiter_lines():
                if "Rain" in line:
                    killed.kill()
    # Its sockets close one after the other: until it is gone, a kept connection may still look alive.
    await asyncio.to_thread(killed.wait, within(30))
    answer = await chat(here)
    assert answer.json()["choices"][0]["message"]["content"] == "Rain."
    assert killed not in children(of=here.pid)


async def test_only_burnish_may_ask(here: Cloud, tmp_path: Path) -> None:
    route = ProviderRoute("openai", "gpt", ["*"], KEY, here.upstream.url)
    async with (
        litellm([route], LITELLM_PYTHON, tmp_path / "log") as url,
        httpx.AsyncClient(timeout=within(60)) as client,
    ):
        for key in ("", "Bearer x", f"Bearer {KEY}", "Bearer ü"):
            headers = {b"authorization": key.encode()}
            answer = await client.post(url + CHAT, json=ASKED, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        ours = {"authorization": f"Bearer {route.token}"}
        other = await client.post(url + "/v1/embeddings", json=ASKED, headers=ours)
        assert other.status_code == 404
    assert not here.upstream.requests
    assert not children(of=os.getpid())


async def test_an_unknown_provider_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"litellm .* knows no provider .bedrok."):
        async with litellm([ProviderRoute("bedrok", "x", ["*"])], LITELLM_PYTHON, tmp_path / "log"):
            pass


async def test_one_provider_is_the_only_upstream_in_burnishs_own_environment(tmp_path: Path) -> None:
    """As `burnish up --upstream litellm:openai/gpt` with the extra, and the provider's usual variables."""
    said = reply(completion("Rain."))
    async with upstream(said) as server:
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}
        variables["BURNISH_UPSTREAM"] = "litellm:openai/gpt"
        program = (str(LITELLM_PYTHON), "-m", "burnish")
        up = running(tmp_path, env=variables, program=program)
        async with (
            in_thread(up) as burnish,
            httpx.AsyncClient(base_url=burnish.url, timeout=within(60)) as http,
        ):
            for named in ({"model": "default"}, {"model": "openai/gpt"}, {}):
                answer = await http.post(CHAT, json={"messages": ASKED["messages"]} | named)
                assert answer.json()["choices"][0]["message"]["content"] == "Rain."
            other = await http.post(CHAT, json=ASKED | {"model": "gpt-9"})
            assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
            status = (await http.get("/burnish/status")).json()
            assert status["upstream"] == "litellm:openai/gpt"
            assert "a provider's model" in status["learner"]["reason"]
            (child,) = children(of=burnish.pid)
            burnish.kill()
        assert all(KEY in str(each.header("authorization")) for each in server.requests)
    _, alive = psutil.wait_procs([child], timeout=within(20))
    assert not alive
