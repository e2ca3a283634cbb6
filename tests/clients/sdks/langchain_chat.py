"""LangChain's model for OpenAI's API: it shows headers when it is told to."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from conversation import HEADER, LIMIT, TOOLS, URL, Answer, Entry, answer, converse
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="default",
    base_url=f"{URL}/v1",
    api_key="-",
    max_retries=0,
    max_tokens=LIMIT,
    stream_usage=True,
    include_response_headers=True,
).bind_tools(TOOLS)


def results(reply: Entry, text: str) -> Entry:
    return [ToolMessage(text, tool_call_id=call["id"]) for call in reply[0].tool_calls]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    message: Any = reduce(add, model.stream(history)) if streamed else model.invoke(history)
    said = answer(
        message.text,
        calls=[(call["id"], call["name"], call["args"]) for call in message.tool_calls],
        id=message.response_metadata.get("id"),
        header=message.response_metadata["headers"].get(HEADER),
        usage=(message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]),
    )
    return [message], [said]


converse(HumanMessage, ask, results)
