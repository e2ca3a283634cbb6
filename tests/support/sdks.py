"""The official client of each format but chat, before burnish and an upstream that speaks the format, or only chat.

An answer is written as a message of chat, and said in whichever format the upstream is asked in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import orjson
from google import genai
from google.genai import errors, types

from tests.support import wires
from tests.support.chat_wire import called
from tests.support.inprocess import behind, logged
from tests.support.upstream import Received, Script, Upstream, reply
from tests.support.wires import CHAT

Json = dict[str, Any]


class Failed(Exception):
    """A streamed response failed, which OpenAI's client reports in an event."""

    status_code = 500


@dataclass(frozen=True)
class Format:
    """What differs between the formats' clients."""

    surface: str
    path: str
    refused: type[Exception]
    finished: tuple[str, str]
    """Finish reasons of an answer that calls tools, and of one that is too long."""


def status_code(error: Any) -> int:
    return int(error.code if isinstance(error, errors.APIError) else error.status_code)


GEMINI = "/v1beta/models/mock:"
FORMATS = {
    "messages": Format("messages", "/v1/messages", anthropic.APIStatusError, ("tool_use", "max_tokens")),
    "responses": Format(
        "responses", "/v1/responses", openai.APIStatusError, ("completed", "max_output_tokens")
    ),
    "ollama": Format("ollama_chat", "/api/chat", ollama.ResponseError, ("stop", "length")),
    "google": Format("gemini", GEMINI + "generateContent", errors.APIError, ("STOP", "MAX_TOKENS")),
}


@dataclass
class Answer:
    """An answer as a client sees it."""

    raw: Any
    """The client's object; of a stream that doesn't assemble one, the last part."""
    text: str
    thoughts: str
    calls: list[tuple[str, Any]]
    finished: str
    counts: tuple[int, int]
    entries: list[Any] = field(default_factory=list)
    """What the client keeps of it in its history."""


def user(content: Any) -> Any:
    """A user's turn, for which each client has a type of its own."""
    return {"role": "user", "content": content}


# What tests ask for and let the upstream say

TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK = {"name": "look", "description": "Looks.", "parameters": TOOL}
TOOLS: dict[str, Any] = {
    "messages": {"tools": [{"name": "look", "description": "Looks.", "input_schema": TOOL}]},
    "responses": {"tools": [{"type": "function", **LOOK, "strict": False}]},
    "ollama": {"tools": [{"type": "function", "function": LOOK}]},
    "google": {
        "config": {"tools": [{"function_declarations": [{"name": "look", "parameters_json_schema": TOOL}]}]}
    },
}
FULL: Json = {
    "reasoning_content": "They want rain.",
    "content": "Let me look – 😀.",
    "tool_calls": [called("look", {"city": "Köln"}, "call_a"), called("look", {"city": "Bonn"}, "call_b")],
}
WEATHER = [user("Weather?")]
RAIN_IS: Json = {"content": "Rain is"}
RAIN_STREAM = wires.write(CHAT, RAIN_IS)[1]
OUT_OF_MEMORY = b'data: {"error":{"message":"out of memory"}}\n\n'
"""An event of a chat stream."""


@dataclass
class World:
    """The upstream's answers, one after the other, and the clients, each made when it is first used."""

    upstream: Upstream
    http: httpx.AsyncClient
    url: str
    clients: AsyncExitStack
    says: list[Json | Script] = field(default_factory=list)
    unknown: Script = field(default_factory=lambda: reply(b'{"detail":"Not Found"}', status="404 Not Found"))
    """Answers on the paths that it does not have."""
    models: list[Json] = field(default_factory=list)
    native: bool = False
    """Whether it speaks every format, and not only chat."""

    @cached_property
    def anthropic(self) -> anthropic.AsyncAnthropic:
        return self._opened(anthropic.AsyncAnthropic(base_url=self.url, api_key="sk-caller", max_retries=0))

    @cached_property
    def openai(self) -> openai.AsyncOpenAI:
        return self._opened(openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk-caller", max_retries=0))

    @cached_property
    def ollama(self) -> ollama.AsyncClient:
        return self._opened(ollama.AsyncClient(host=self.url, trust_env=False))

    @cached_property
    def google(self) -> Any:
        options = types.HttpOptions(base_url=self.url, api_version="v1beta")
        return self._opened(genai.Client(api_key="sk-caller", http_options=options).aio)

    def _opened(self, client: Any) -> Any:
        self.clients.push_async_exit(client)
        return client

    def answer(self, request: Received) -> Script:
        if self.models and request.target == "/v1/models":
            return reply(orjson.dumps({"object": "list", "data": self.models}))
        if not self._known(request):
            return self.unknown
        if request.body == b"[]":
            return reply(b'{"detail":"messages: Field required"}', status="422 Unprocessable")
        says = self.says.pop(0)
        if not isinstance(says, dict):
            return says
        said = dict(says)
        finish = said.pop("finish_reason", "")
        return wires.answering(wires.format_at(request.target), request.json(), said, finish)

    def _known(self, request: Received) -> bool:
        return request.target == CHAT or (self.native and wires.format_at(request.target) != "")

    async def ask(self, name: str, history: Any, stream: bool = False, **more: Any) -> Answer:
        """Ask by a format's client. ``history``: messages with texts only, or in the client's own form."""
        return await getattr(self, f"_{name}")(history, stream, more)

    async def _messages(self, history: list[Any], stream: bool, more: Json) -> Answer:
        asked: Any = {"model": "mock", "max_tokens": 50, "messages": history} | more
        if stream:
            async with self.anthropic.messages.stream(**asked) as events:
                got = await events.get_final_message()
        else:
            got = await self.anthropic.messages.create(**asked)
        blocks: list[Any] = list(got.content)
        usage = got.usage
        cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        return Answer(
            got,
            "".join(block.text for block in blocks if block.type == "text"),
            "".join(block.thinking for block in blocks if block.type == "thinking"),
            [(block.name, block.input) for block in blocks if block.type == "tool_use"],
            str(got.stop_reason),
            (usage.input_tokens + cached, usage.output_tokens),
            [{"role": "assistant", "content": [block.to_dict() for block in blocks]}],
        )

    async def _responses(self, history: Any, stream: bool, more: Json) -> Answer:
        asked: Any = {"model": "mock", "input": history} | more
        got: Any
        if stream:
            async with self.openai.responses.stream(**asked) as events:
                async for event in events:
                    if event.type == "response.failed":
                        raise Failed(event.response.error.message if event.response.error else "")
                    if event.type == "response.incomplete":
                        got = event.response
                        break
                else:
                    got = await events.get_final_response()
        else:
            got = await self.openai.responses.create(**asked)
        items: list[Any] = list(got.output)
        calls = [(item.name, orjson.loads(item.arguments)) for item in items if item.type == "function_call"]
        thoughts = "".join(
            part.text for item in items if item.type == "reasoning" for part in item.content or item.summary
        )
        why = got.incomplete_details.reason if got.incomplete_details else got.status
        return Answer(
            got,
            got.output_text,
            thoughts,
            calls,
            why,
            (got.usage.input_tokens, got.usage.output_tokens),
            [item.to_dict(mode="json") for item in items],
        )

    async def _ollama(self, history: list[Json], stream: bool, more: Json) -> Answer:
        messages = [{**each, "content": each.get("content") or ""} for each in history]
        asked: Any = {"model": "mock", "messages": messages, "stream": stream} | more
        given: Any = await self.ollama.chat(**asked)
        parts = [part async for part in given] if stream else [given]
        said, last = [part.message for part in parts], parts[-1]
        calls = [call.function for each in said for call in each.tool_calls or ()]
        text = "".join(each.content or "" for each in said)
        thoughts = "".join(each.thinking or "" for each in said)
        kept: Json = {"role": "assistant", "content": text}
        kept |= {"thinking": thoughts} if thoughts else {}
        kept |= {"tool_calls": [{"function": call.model_dump()} for call in calls]} if calls else {}
        return Answer(
            last,
            text,
            thoughts,
            [(call.name, call.arguments) for call in calls],
            last.done_reason,
            (last.prompt_eval_count, last.eval_count),
            [kept],
        )

    async def _google(self, history: list[Json], stream: bool, more: Json) -> Answer:
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
        said, last = [part for each in parts for part in each.candidates[0].content.parts], parts[-1]
        calls = [part.function_call for part in said if part.function_call]
        return Answer(
            last,
            "".join(part.text for part in said if part.text and not part.thought),
            "".join(part.text for part in said if part.text and part.thought),
            [(call.name, call.args) for call in calls],
            last.candidates[0].finish_reason.value,
            (last.usage_metadata.prompt_token_count, last.usage_metadata.candidates_token_count),
        )

    async def logged(self) -> list[Json]:
        return await logged(self.http)

    def asked(self) -> list[Json]:
        """The bodies that the upstream was asked with in a format that it knows."""
        sent = [request for request in self.upstream.requests if self._known(request)]
        return [request.json() for request in sent if request.body != b"[]"]


@asynccontextmanager
async def world(
    tmp_path: Path, *says: Json | Script, native: bool = False, **flags: Any
) -> AsyncIterator[World]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await here.answer(request)(request, writer)

    async with behind(tmp_path, script, **flags) as (client, server), AsyncExitStack() as clients:
        here = World(server, client, str(client.base_url).rstrip("/"), clients, list(says), native=native)
        yield here
