"""Pydantic AI, whose agents run their tools themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from conversation import LIMIT, URL, Answer, Entry, answer, converse
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, ThinkingPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0)
agent = Agent(
    OpenAIChatModel("default", provider=OpenAIProvider(openai_client=client)),
    model_settings={"max_tokens": LIMIT},
)
loop = asyncio.Runner()
gives = ""


@agent.tool_plain
def look_up(city: str, days: int) -> str:
    """Look up the weather."""
    return gives


def results(asked: Entry, text: str) -> Entry:
    global gives  # noqa: PLW0603 - the tool is asked by the agent
    gives = text
    return []


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    return loop.run(_ask(history, streamed))


async def _ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    if streamed:
        async with agent.run_stream(message_history=history) as run:
            await run.get_output()
            messages = run.all_messages()
    else:
        messages = (await agent.run(message_history=history)).all_messages()
    new = messages[len(history) :]
    return new, [_answer(each) for each in new if isinstance(each, ModelResponse)]


def _answer(response: Any) -> Answer:
    return answer(
        response.text,
        calls=[(call.tool_call_id, call.tool_name, call.args) for call in response.tool_calls],
        reasoning="".join(part.content for part in response.parts if isinstance(part, ThinkingPart)) or None,
        id=response.provider_response_id,
        usage=(response.usage.input_tokens, response.usage.output_tokens),
    )


converse(ModelRequest.user_text_prompt, ask, results)
