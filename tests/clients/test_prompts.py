"""Training renders real agents' prompts as the engine reads their requests, id by id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from burnish.adapters.hosts.fetch import file_digest
from burnish.training.rendering import Renderer
from burnish.training.weights import prepared_weights
from tests.clients.agent import Agent
from tests.clients.script import decide, delegated, question, sought
from tests.clients.test_agents import HEADLESS, Headless
from tests.clients.test_sub_agents import DESCRIBED, LOOKER
from tests.support.burnish import running
from tests.support.inprocess import calling
from tests.support.llama_server import LlamaServer
from tests.support.patience import within
from tests.support.prompts import CALLS_TOOLS, Json, Side, logged_as_asked
from tests.support.scripted_model import AGENTS_FORMATS, Asked, ScriptedModel, scripted_model
from tests.support.tiny_gguf import Shape, random_model
from tests.support.wires import CHAT, Says

pytest.importorskip("torch")
pytestmark = pytest.mark.asyncio(loop_scope="module")
WINDOW = 65_536
SMALL = Shape("llama", heads=1, kv_heads=1, head_dim=16, blocks=1)
LENGTHS = {CHAT: "max_tokens", "/v1/messages": "max_tokens", "/v1/responses": "max_output_tokens"}
TOOLS = ("--allowedTools=Bash,ToolSearch", "--disallowedTools=Workflow", "--")
"""llama-server, unlike the embedded engine, makes no grammar of Workflow's parameters and refuses the request."""
CLAUDE_CODE = replace(
    HEADLESS["claude-code"],
    with_tools=("claude", "-p", *TOOLS),
    again=("claude", "-p", "--continue", *TOOLS),
)
ROLE = "message.role + (message.reasoning_content or '')"
"""In a chat template: thoughts are written, too."""
Exchange = tuple[Json, Asked]
"""A completion as logged, and the upstream's request."""


def think(asked: Asked) -> Says:
    return replace(decide(asked), thought="Let me see.")


@pytest.fixture(scope="module", params=[CLAUDE_CODE, HEADLESS["codex"]], ids=lambda agent: agent.name)
def headless(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module", params=[AGENTS_FORMATS, (CHAT,)], ids=["native", "translated"])
def exchanges(
    headless: Headless, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Exchange]]:
    """A session in which the agent runs a tool, looks one up if it can, and has a sub-agent work."""
    folder = tmp_path_factory.mktemp(headless.name)
    # llama-server refuses the summaries of thoughts that our script's Responses give to Codex.
    refused = headless.name == "codex" and request.param == AGENTS_FORMATS
    with (
        scripted_model(decide if refused else think, formats=request.param) as model,
        running(folder / "data", "--no-train", "--upstream", model.url) as burnish,
    ):
        agent = Agent(burnish, model, folder / "home")
        agent.write(DESCRIBED["claude-code"], LOOKER)
        agent.burnish_says("connect", headless.name)
        assert headless.again
        search = [sought()] if headless is CLAUDE_CODE else []
        command = headless.with_tools or headless.ask
        for words, answer in (question(of_tool=True), *search, delegated()[::2]):
            assert answer in agent.run(*command, words)
            command = headless.again
        agent.end()
        logged = [agent.completion(each["id"]) for each in agent.logged()]
        yield [(completion, upstream_request(completion["reply"], model)) for completion in logged]


def upstream_request(reply: Json, model: ScriptedModel) -> Asked:
    """Return the request that got this reply: no two replies are alike."""
    numbered = enumerate(model.asked, 1)
    (request,) = [
        request for number, request in numbered if key(model.decide(request).message(number)) == key(reply)
    ]
    return request


def key(reply: Json) -> tuple[str, list[str]]:
    return reply.get("content") or "", [call["id"] for call in reply.get("tool_calls", ())]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Side]]:
    folder = tmp_path_factory.mktemp("engines")
    template = (
        CALLS_TOOLS.read_text()
        .replace("message.role }}", f"{ROLE} }}}}")
        .replace("message.role + ", f"{ROLE} + ")
    )
    keys = {"tokenizer.chat_template": template, "context_length": WINDOW}
    base = random_model(folder / "base.gguf", SMALL, keys=keys)
    renderer = Renderer(prepared_weights(base, file_digest(base), folder / "weights"))
    flags = {"engine": "auto", "model": str(base), "parallel": 1, "context": WINDOW}
    arguments = f"-m {base} -c {WINDOW} -np 1 --cache-ram 0 --jinja".split()
    async with AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(
            calling(folder / "embedded", **flags, train={"enabled": False})
        )
        server = stack.enter_context(LlamaServer(arguments, folder / "log"))
        engine = await stack.enter_async_context(
            httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=within(60))
        )
        yield {"embedded": Side(embedded, embedded, renderer), "llama-server": Side(engine, engine, renderer)}


async def test_the_prompt_is_the_one_that_the_engine_reads(
    sides: dict[str, Side], exchanges: list[Exchange]
) -> None:
    server, embedded = sides["llama-server"], sides["embedded"]
    for completion, request in exchanges:
        path = request.path
        body = {**request.body, "model": "default", "stream": False, LENGTHS[path]: 1}
        answer = await server.engine.post(path, json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        usage = answer.json()["usage"]
        tokens = usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
        await server.compare(logged_as_asked(completion), tokens)
        if path != CHAT:  # the embedded engine's chat is llama-server's
            await embedded.check(path, body)
