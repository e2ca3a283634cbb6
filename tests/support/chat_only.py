"""A burnish before an upstream that only knows chat completions, and the official client of each other format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import orjson
from google import genai
from google.genai import errors, types

from tests.support.inprocess import serving
from tests.support.upstream import Received, Script, Upstream, reply, stream, upstream

Json = dict[str, Any]

CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 17, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}}


class Failed(Exception):
    """A streamed response failed, which OpenAI's client reports in an event."""

    status_code = 500


@dataclass(frozen=True)
class Format:
    """What differs between the formats' clients."""

    surface: str
    path: str
    refused: type[Exception]
    status: Callable[[Any], int]
    """Of such an error."""
    finished: tuple[str, str]
    """Finish reasons of an answer that calls tools, and of one that is too long."""


def status_code(error: Any) -> int:
    return int(error.status_code)


GEMINI = "/v1beta/models/mock:"
FORMATS = {
    "messages": Format(
        "messages", "/v1/messages", anthropic.APIStatusError, status_code, ("tool_use", "max_tokens")
    ),
    "responses": Format(
        "responses", "/v1/responses", openai.APIStatusError, status_code, ("completed", "max_output_tokens")
    ),
    "ollama": Format("ollama_chat", "/api/chat", ollama.ResponseError, status_code, ("stop", "length")),
    "google": Format(
        "gemini",
        GEMINI + "generateContent",
        errors.APIError,
        lambda error: int(error.code),
        ("STOP", "MAX_TOKENS"),
    ),
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


def called(name: str, arguments: Any, call_id: str) -> Json:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": call_id, "type": "function", "function": function}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def whole(message: Json, finish_reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "theirs"}
    return orjson.dumps(head | {"choices": [choice], "usage": USAGE})


def streamed(message: Json, finish_reason: str, size: int = 5) -> list[bytes]:
    """The same as a stream, ``size`` characters to a chunk."""

    def pieces(text: str) -> list[str]:
        return [text[start : start + size] for start in range(0, len(text), size)]

    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in pieces(message.get(name) or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in pieces(function["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(chunk([{"index": 0, "delta": {}, "finish_reason": finish_reason}]))
    return [*chunks, chunk([], usage=USAGE), b"data: [DONE]\n\n"]


def chunk(choices: list[Json], **more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs"}
    return b"data: " + orjson.dumps(head | {"choices": choices} | more) + b"\n\n"


@dataclass
class World:
    """The upstream's answers, one after the other, and the clients."""

    upstream: Upstream
    http: httpx.AsyncClient
    anthropic: anthropic.AsyncAnthropic
    openai: openai.AsyncOpenAI
    ollama: ollama.AsyncClient
    google: Any
    says: list[Json | Script] = field(default_factory=list)
    unknown: Script = field(default_factory=lambda: reply(b'{"detail":"Not Found"}', status="404 Not Found"))
    """Answers on the paths that it does not have."""
    models: list[Json] = field(default_factory=list)
    """Its list of models."""

    async def answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if self.models and request.target == "/v1/models":
            await reply(orjson.dumps({"object": "list", "data": self.models}))(request, writer)
        elif request.target != CHAT:
            await self.unknown(request, writer)
        elif request.body == b"[]":
            await reply(b'{"detail":"messages: Field required"}', status="422 Unprocessable")(request, writer)
        else:
            message = self.says.pop(0)
            script = message if not isinstance(message, dict) else self._script(dict(message), request)
            await script(request, writer)

    @staticmethod
    def _script(message: Json, request: Received) -> Script:
        why = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        return stream(streamed(message, why)) if request.json().get("stream") else reply(whole(message, why))

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
        return Answer(
            got,
            "".join(block.text for block in blocks if block.type == "text"),
            "".join(block.thinking for block in blocks if block.type == "thinking"),
            [(block.name, block.input) for block in blocks if block.type == "tool_use"],
            str(got.stop_reason),
            (got.usage.input_tokens + (got.usage.cache_read_input_tokens or 0), got.usage.output_tokens),
        )

    async def _responses(self, history: Any, stream: bool, more: Json) -> Answer:
        asked: Any = {"model": "mock", "input": history} | more
        if stream:
            async with self.openai.responses.stream(**asked) as events:
                async for event in events:
                    if event.type == "response.failed":
                        raise Failed(event.response.error.message if event.response.error else "")
                    if event.type == "response.incomplete":
                        break
                got: Any = (
                    event.response
                    if event.type == "response.incomplete"
                    else await events.get_final_response()
                )
        else:
            got = await self.openai.responses.create(**asked)
        items: list[Any] = list(got.output)
        calls = [(item.name, orjson.loads(item.arguments)) for item in items if item.type == "function_call"]
        thoughts = "".join(item.content[0].text for item in items if item.type == "reasoning")
        why = got.incomplete_details.reason if got.incomplete_details else got.status
        return Answer(
            got, got.output_text, thoughts, calls, why, (got.usage.input_tokens, got.usage.output_tokens)
        )

    async def _ollama(self, history: list[Json], stream: bool, more: Json) -> Answer:
        messages = [{**each, "content": each.get("content") or ""} for each in history]
        asked: Any = {"model": "mock", "messages": messages, "stream": stream} | more
        given: Any = await self.ollama.chat(**asked)
        parts = [part async for part in given] if stream else [given]
        said, last = [part.message for part in parts], parts[-1]
        calls = [call.function for each in said for call in each.tool_calls or ()]
        return Answer(
            last,
            "".join(each.content or "" for each in said),
            "".join(each.thinking or "" for each in said),
            [(call.name, call.arguments) for call in calls],
            last.done_reason,
            (last.prompt_eval_count, last.eval_count),
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
        """All completions in the log, oldest first."""
        listed = (await self.http.get("/burnish/completions")).json()["data"]
        return [
            (await self.http.get(f"/burnish/completions/{each['id']}")).json() for each in reversed(listed)
        ]

    def asked(self) -> list[Json]:
        """The chat requests that the upstream got."""
        sent = [request for request in self.upstream.requests if request.target == CHAT]
        return [request.json() for request in sent if request.body != b"[]"]


@asynccontextmanager
async def world(tmp_path: Path, *says: Json | Script, **flags: Any) -> AsyncIterator[World]:
    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        await here.answer(request, writer)

    async with upstream(script) as server, serving(tmp_path, **{"upstream": server.url} | flags) as (url, _):
        options = types.HttpOptions(base_url=url, api_version="v1beta")
        async with (
            httpx.AsyncClient(base_url=url) as client,
            anthropic.AsyncAnthropic(base_url=url, api_key="sk-caller", max_retries=0) as claude,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-caller", max_retries=0) as gpt,
            ollama.AsyncClient(host=url, trust_env=False) as llama,
            genai.Client(api_key="sk-caller", http_options=options).aio as google,
        ):
            here = World(server, client, claude, gpt, llama, google, list(says))
            yield here
