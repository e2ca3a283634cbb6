"""What the log puts together from a stream is what the official client put together from the same bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai
from google.genai import types

from burnish.proxy.surfaces import SURFACES
from tests.support.behind import behind, logged
from tests.support.recorded import RECORDED, Recorded
from tests.support.upstream import stream

# Google's client inherits from a class of aiohttp which does not like that.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

QUESTION: Any = [{"role": "user", "content": "Weather?"}]


async def chat(url: str) -> Any:
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="x", max_retries=0) as client:
        async with client.chat.completions.stream(model="m", messages=QUESTION) as answer:
            return (await answer.get_final_completion()).model_dump(exclude_none=True)


async def completions(url: str) -> Any:
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="x", max_retries=0) as client:
        answer = await client.completions.create(model="m", prompt="Weather?", stream=True)
        choices = [choice async for part in answer for choice in part.choices]
    return {
        "choices": [
            {"text": "".join(each.text for each in choices), "finish_reason": choices[-1].finish_reason}
        ]
    }


async def responses(url: str) -> Any:
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="x", max_retries=0) as client:
        async with client.responses.stream(model="m", input="Weather?") as answer:
            return (await answer.get_final_response()).model_dump(exclude_none=True)


async def messages(url: str) -> Any:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0) as client:
        async with client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as answer:
            return (await answer.get_final_message()).model_dump(exclude_none=True)


async def ollama_chat(url: str) -> Any:
    async with ollama.AsyncClient(host=url, trust_env=False) as client:
        parts = [part async for part in await client.chat("m", messages=QUESTION, stream=True)]
    calls = [call.model_dump() for part in parts for call in part.message.tool_calls or ()]
    said = {
        "content": "".join(part.message.content or "" for part in parts),
        "thinking": "".join(part.message.thinking or "" for part in parts),
        "tool_calls": calls,
    }
    return {"message": {"role": "assistant", **said}, "done": True, "done_reason": parts[-1].done_reason}


async def ollama_generate(url: str) -> Any:
    async with ollama.AsyncClient(host=url, trust_env=False) as client:
        parts = [part async for part in await client.generate("m", "Weather?", stream=True)]
    said = {name: "".join(getattr(part, name) or "" for part in parts) for name in ("response", "thinking")}
    return {**said, "done": True, "done_reason": parts[-1].done_reason}


async def gemini(url: str) -> Any:
    options = types.HttpOptions(base_url=url, api_version="v1beta")
    async with genai.Client(api_key="x", http_options=options).aio as client:
        talk = client.chats.create(model="m")
        async for _ in await talk.send_message_stream("Weather?"):
            pass
    # The client keeps each chunk as a content of its own.
    said = [content.model_dump(mode="json", exclude_none=True) for content in talk.get_history()[1:]]
    parts = [part for content in said for part in content["parts"]]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


ASKING: dict[str, Callable[[str], Awaitable[Any]]] = {
    "chat": chat,
    "completions": completions,
    "responses": responses,
    "messages": messages,
    "ollama_chat": ollama_chat,
    "ollama_generate": ollama_generate,
    "gemini": gemini,
}


@pytest.mark.parametrize("cut", [None, 1, 100], ids=["by event", "by byte", "by 100 bytes"])
@pytest.mark.parametrize("surface", ASKING)
async def test_the_log_has_what_the_official_client_put_together(
    tmp_path: Path, surface: str, cut: int | None
) -> None:
    recorded: Recorded = RECORDED[surface]
    body = recorded.body
    parts = [body[at : at + cut] for at in range(0, len(body), cut)] if cut else list(recorded.parts)
    async with (
        behind(tmp_path, stream(parts, content_type=recorded.content_type)) as (http, _),
        asyncio.timeout(60),
    ):
        assembled = await ASKING[surface](str(http.base_url).rstrip("/"))
        (record,) = await logged(http)
    theirs = SURFACES[surface].reassemble([json.dumps(assembled).encode()], "application/json", "")
    assert record["outcome"] == "complete"
    assert record["reply"] == theirs.message
    assert record["finish_reason"] == theirs.finish_reason
