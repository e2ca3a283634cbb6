"""What the log puts together from a stream is what the official client put together from the same bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.patience import within
from tests.support.recorded import RECORDED
from tests.support.sdks import WEATHER, World, world
from tests.support.upstream import stream

Said = tuple[str, str, list[tuple[str, Any]]]
"""Text, thoughts and calls."""


def asking(name: str) -> Callable[[World], Awaitable[Said]]:
    async def ask(here: World) -> Said:
        got = await here.ask(name, WEATHER, stream=True)
        return got.text, got.thoughts, got.calls

    return ask


async def chat(here: World) -> Said:
    messages: Any = WEATHER
    async with here.openai.chat.completions.stream(model="m", messages=messages) as answer:
        said: Any = (await answer.get_final_completion()).choices[0].message
    calls = [(call.function.name, orjson.loads(call.function.arguments)) for call in said.tool_calls or ()]
    return said.content or "", getattr(said, "reasoning_content", ""), calls


async def completions(here: World) -> Said:
    answer = await here.openai.completions.create(model="m", prompt="Weather?", stream=True)
    return "".join([choice.text async for part in answer for choice in part.choices]), "", []


async def ollama_generate(here: World) -> Said:
    parts = [part async for part in await here.ollama.generate("m", "Weather?", stream=True)]
    texts, thoughts = ([getattr(part, name) or "" for part in parts] for name in ("response", "thinking"))
    return "".join(texts), "".join(thoughts), []


ASKING: dict[str, Callable[[World], Awaitable[Said]]] = {
    "chat": chat,
    "completions": completions,
    "responses": asking("responses"),
    "messages": asking("messages"),
    "ollama_chat": asking("ollama"),
    "ollama_generate": ollama_generate,
    "gemini": asking("google"),
}


@pytest.mark.parametrize("cut", [None, 1, 100], ids=["by event", "by byte", "by 100 bytes"])
@pytest.mark.parametrize("surface", ASKING)
async def test_the_log_has_what_the_clients_sdk_has(tmp_path: Path, surface: str, cut: int | None) -> None:
    recorded = RECORDED[surface]
    body = recorded.body
    parts = [body[at : at + cut] for at in range(0, len(body), cut)] if cut else list(recorded.parts)
    script = stream(parts, content_type=recorded.content_type)
    async with world(tmp_path, script, native=True) as here, asyncio.timeout(within(60)):
        here.unknown = script
        said = await ASKING[surface](here)
        (record,) = await here.logged()
    reply = record["reply"]
    calls = [call["function"] for call in reply.get("tool_calls", ())]
    made = [[each["name"], orjson.loads(each["arguments"])] for each in calls]
    # Through JSON, in which both halves of an emoji are joined.
    assert json.loads(json.dumps(said)) == [reply["content"] or "", reply.get("reasoning_content", ""), made]
    ended = "tool_calls" if calls else "length" if surface == "completions" else "stop"
    assert (record["outcome"], record["finish_reason"]) == ("complete", ended)
