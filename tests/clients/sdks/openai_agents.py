"""OpenAI's agents, which run their tools themselves; by Responses, or by chat completions."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from conversation import LIMIT, URL, Answer, Entry, converse, of_items

MODELS: dict[str, Any] = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0)
loop = asyncio.Runner()
gives = ""


@function_tool
def look_up(city: str, days: int) -> str:
    """Look up the weather."""
    return gives


agent = Agent(
    name="one",
    model=MODELS[sys.argv[2]](model="default", openai_client=client),
    model_settings=ModelSettings(include_usage=True, store=False, max_tokens=LIMIT),
    tools=[look_up],
)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(asked: Entry, text: str) -> Entry:
    global gives  # noqa: PLW0603 - the tool is asked by the agent
    gives = text
    return []


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    return loop.run(_ask(history, streamed))


async def _ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    if streamed:
        result: Any = Runner.run_streamed(agent, history)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, history)
    return result.to_input_list()[len(history) :], [_answer(each) for each in result.raw_responses]


def _answer(response: Any) -> Answer:
    # By chat completions, the id is with each item, and nothing or an invented one with the response.
    told = next((getattr(item, "provider_data", None) for item in response.output), None) or {}
    usage = (response.usage.input_tokens, response.usage.output_tokens)
    return of_items(response.output, id=told.get("response_id", response.response_id), usage=usage)


converse(user, ask, results)
