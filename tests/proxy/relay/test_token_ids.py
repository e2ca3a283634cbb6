"""Captured token ids are those that llama.cpp saw and made, and the client gets the answer that it would get anyway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from burnish.adapters.hosts.fetch import ensure_small_model
from tests.support.inprocess import calling
from tests.support.llama_server import LlamaServer
from tests.support.patience import within
from tests.support.token_ids import CALLING, CHAT, captured, held, told

TEMPLATE = Path(__file__).parents[2] / "support" / "calls_tools.jinja"
QUESTION = [{"role": "user", "content": "Repeat: 😀🫠 häß 你好"}]
BRIEF: dict[str, Any] = {"messages": QUESTION, "max_tokens": 12, "temperature": 0}
SPLIT: dict[str, Any] = {"messages": QUESTION, "max_tokens": 20, "grammar": 'root ::= "🫠 ok"'}
ENDS = (0, 2)
"""The ids with which the small model may end a turn."""
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Side:
    """One engine, and burnish before it."""

    burnish: httpx.AsyncClient
    engine: httpx.AsyncClient
    """Answers ``/completion``."""
    plain: httpx.AsyncClient | None = None
    """A burnish that captures nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    folder = tmp_path_factory.mktemp("server")
    template = f"--jinja --chat-template-file {TEMPLATE}"
    arguments = f"-m {ensure_small_model()} --alias small -c 2048 -np 1 --cache-ram 0 {template}".split()
    async with AsyncExitStack() as stack:
        engine = stack.enter_context(LlamaServer(arguments, folder / "log"))
        own = {"upstream": engine.url, "capture": {"tokens": True}}
        yield Side(
            await stack.enter_async_context(calling(folder, **own)),
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=within(60))
            ),
            await stack.enter_async_context(calling(folder / "plain", upstream=engine.url)),
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    folder = tmp_path_factory.mktemp("embedded")
    own = {"engine": "auto", "parallel": 1, "context": 2048, "train": {"enabled": False}}
    async with calling(folder, **own, capture={"tokens": True}) as http:
        yield Side(http, http)


@pytest.fixture(params=["embedded", "server"])
def side(request: pytest.FixtureRequest) -> Side:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Side)
    return found


async def ask(http: httpx.AsyncClient, path: str = CHAT, **body: Any) -> httpx.Response:
    answer = await http.post(path, json={"model": "default", **body})
    assert answer.status_code == 200, answer.text
    return answer


async def check(side: Side, answer: httpx.Response) -> dict[str, Any]:
    """The captured tokens, which are those in the engine's cache."""
    tokens = await captured(side.burnish, answer)
    assert tokens["missing"] is None, tokens
    assert await held(side.engine, tokens) == len(tokens["prompt"]) + len(tokens["reply"]) - 1
    assert len(tokens["logprobs"]) == len(tokens["reply"])
    return tokens


@both
async def test_all_ids_are_those_of_the_engine(side: Side, streamed: bool) -> None:
    tokens = await check(side, await ask(side.burnish, **BRIEF, stream=streamed))
    assert len(tokens["reply"]) == 12
    assert all(each is None or each < 0 for each in tokens["logprobs"])


@both
async def test_tokens_of_split_characters_and_the_end_of_the_turn_are_there(side: Side, streamed: bool):
    tokens = await check(side, await ask(side.burnish, **SPLIT, stream=streamed))
    assert tokens["reply"][-1] in ENDS
    assert tokens["logprobs"][0] is None, "llama.cpp tells no log-probability of half a character"
    assert tokens["logprobs"][-1] is not None


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/responses", "/api/chat", "/v1beta/models/default:generateContent"]
)
@both
async def test_every_format_that_can_be_translated_is_captured(embedded: Side, path: str, streamed: bool):
    bodies: dict[str, dict[str, Any]] = {
        "/v1/messages": {"messages": QUESTION, "max_tokens": 6},
        "/v1/responses": {"input": QUESTION, "max_output_tokens": 6},
        "/api/chat": {"messages": QUESTION, "options": {"num_predict": 6}},
    }
    contents = [{"role": "user", "parts": [{"text": "Say hi"}]}]
    gemini = {"contents": contents, "generationConfig": {"maxOutputTokens": 6}}
    if streamed and path not in bodies:
        path = path.replace(":generateContent", ":streamGenerateContent")
    answer = await ask(embedded.burnish, path, **bodies.get(path, gemini), stream=streamed)
    assert "logprob" not in answer.text.replace('"logprobs":[]', "")
    assert 1 <= len((await check(embedded, answer))["reply"]) <= 6


@both
async def test_calls_of_tools_are_captured(server: Side, streamed: bool) -> None:
    assert server.plain
    body = CALLING | {"max_tokens": 60, "temperature": 0, "stream": streamed}
    expected, answer = await ask(server.plain, **body), await ask(server.burnish, **body)
    said = told(answer)
    assert said == told(expected)
    assert said["finish_reason"] == "tool_calls"
    assert said["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
    tokens = await check(server, answer)
    text = (await server.engine.post("/detokenize", json={"tokens": tokens["reply"]})).json()["content"]
    assert text.startswith('<tool_call>\n{"name": "weather"'), "as the model wrote it"


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "counts": {"stream_options": {"include_usage": True}},
    "own log-probabilities": {"logprobs": True, "top_logprobs": 2},
    "stop words": {"stop": ["😀"]},
}


@both
@pytest.mark.parametrize("name", OPTIONS)
async def test_the_client_sees_the_same_answer(server: Side, name: str, streamed: bool) -> None:
    assert server.plain
    body = BRIEF | OPTIONS[name] | {"stream": streamed}
    answers = [await ask(http, **body) for http in (server.plain, server.burnish)]
    expected, found = map(told, answers)
    if streamed and found["logprobs"]:
        # A stream of llama.cpp itself lacks some.
        assert all(each in found["logprobs"]["content"] for each in expected["logprobs"]["content"])
        del expected["logprobs"], found["logprobs"]
    assert found == expected
    assert await captured(server.plain, answers[0]) is None
    assert (await captured(server.burnish, answers[1]))["missing"] is None


async def test_what_cannot_be_captured_is_answered_and_says_why(side: Side) -> None:
    text = await ask(side.burnish, "/v1/completions", prompt="Once", max_tokens=2)
    assert "can't be translated into chat" in (await captured(side.burnish, text))["missing"]
    refused = await side.burnish.post(CHAT, json=BRIEF | {"model": "default", "grammar": "root ::= ("})
    assert refused.status_code == 400
    assert (await captured(side.burnish, refused))["missing"] == "the engine answered 400"
