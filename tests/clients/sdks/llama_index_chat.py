"""LlamaIndex's model for servers like OpenAI's."""

from __future__ import annotations

from typing import Any

from conversation import LIMIT, TOOLS, URL, Answer, Entry, answer, converse
from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock, ToolCallBlock
from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model="default",
    api_base=f"{URL}/v1",
    api_key="-",
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
    max_tokens=LIMIT,
)


def user(text: str) -> Any:
    return ChatMessage(role="user", content=text)


def results(reply: Entry, text: str) -> Entry:
    calls = [block for block in reply[0].blocks if isinstance(block, ToolCallBlock)]
    named = [{"tool_call_id": call.tool_call_id} for call in calls]
    return [ChatMessage(role="tool", content=text, additional_kwargs=each) for each in named]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    if streamed:
        *_, response = model.stream_chat(history, tools=TOOLS, stream_options={"include_usage": True})
    else:
        response = model.chat(history, tools=TOOLS)
    message, raw = response.message, response.raw
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    thoughts = [block.content or "" for block in message.blocks if isinstance(block, ThinkingBlock)]
    said = answer(
        message.content,
        calls=[(call.tool_call_id, call.tool_name, call.tool_kwargs) for call in calls],
        reasoning="".join(thoughts) or None,
        id=raw.id,
        usage=(raw.usage.prompt_tokens, raw.usage.completion_tokens),
    )
    return [message], [said]


converse(user, ask, results)
