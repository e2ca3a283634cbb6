"""Talking to an engine as the relay does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from burnish.adapters.hosts.base import Endpoint

OPENINGS = (
    "The capital of France is",
    "Water boils at",
    "My favourite colour is",
    "Once upon a time there was a",
    "To cook rice, first",
    "The opposite of hot is",
    "A dog is a kind of",
    "Monday, Tuesday,",
    "def add(a, b):",
    "Dear Sir or Madam,",
)
"""Texts that any base model goes on with, and does not end at once."""


def body(prompt: str, tokens: int = 24, **more: Any) -> dict[str, Any]:
    """A greedy chat completion."""
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0} | more


def headers(endpoint: Endpoint) -> dict[str, str]:
    return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


@asynccontextmanager
async def _asked(
    endpoint: Endpoint, prompt: str, tokens: int, **more: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    asked = body(prompt, tokens, **{"model": endpoint.model} | dict(endpoint.fields) | more)
    url = f"{endpoint.url}/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=asked, headers=headers(endpoint)) as response,
    ):
        response.raise_for_status()
        yield response


async def answer(endpoint: Endpoint, prompt: str, tokens: int = 24) -> str:
    async with _asked(endpoint, prompt, tokens) as response:
        return str((await response.json())["choices"][0]["message"]["content"])


class Delta(NamedTuple):
    """A piece of a streamed answer, and who says that it said it."""

    model: str
    text: str


async def deltas(
    endpoint: Endpoint, prompt: str, tokens: int = 24, **more: Any
) -> AsyncGenerator[Delta, None]:
    """The answer as it streams; ends with AssertionError when the stream is cut."""
    whole = False
    async with _asked(endpoint, prompt, tokens, stream=True, **more) as response:
        async for line in response.content:
            if line.startswith(b"data: [DONE]"):
                whole = True
            elif line.startswith(b"data: "):
                chunk = json.loads(line[6:])
                for choice in chunk["choices"]:
                    yield Delta(chunk["model"], choice["delta"].get("content") or "")
    assert whole, "the stream was cut"


async def answers_during(
    work: Coroutine[Any, Any, object], endpoint: Endpoint, prompt: str, tokens: int = 60
) -> list[str]:
    """The whole streamed answers of one model, asked again and again until some work is done."""
    working = asyncio.ensure_future(work)
    answers = []
    while not working.done():
        answers.append("".join([delta.text async for delta in deltas(endpoint, prompt, tokens)]))
    await working
    return answers
