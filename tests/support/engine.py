"""Talking to an engine as the relay does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from burnish.adapters.hosts.base import Endpoint


def body(prompt: str, tokens: int = 24, **more: Any) -> dict[str, Any]:
    """A greedy chat completion."""
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0} | more


def headers(endpoint: Endpoint) -> dict[str, str]:
    return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


async def answer(endpoint: Endpoint, prompt: str, tokens: int = 24) -> str:
    """The whole greedy answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{endpoint.url}/v1/chat/completions",
            json=body(prompt, tokens, model=endpoint.model, **dict(endpoint.fields)),
            headers=headers(endpoint),
        ) as response,
    ):
        response.raise_for_status()
        return str((await response.json())["choices"][0]["message"]["content"])


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed answer, and who says that it said it."""

    model: str
    text: str


async def deltas(endpoint: Endpoint, prompt: str, tokens: int = 24, **more: Any) -> AsyncIterator[Delta]:
    """The answer as it streams; ends with AssertionError when the stream is cut."""
    whole = False
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{endpoint.url}/v1/chat/completions",
            json=body(
                prompt, tokens, stream=True, **({"model": endpoint.model} | dict(endpoint.fields) | more)
            ),
            headers=headers(endpoint),
        ) as response,
    ):
        response.raise_for_status()
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
