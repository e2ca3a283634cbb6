"""The SDK of LiteLLM."""

from __future__ import annotations

from typing import Any

import litellm
from conversation import HEADER, LIMIT, TOOLS, URL, Answer, Entry, answer, converse


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    return [{"role": "tool", "tool_call_id": call.id, "content": text} for call in reply[0].tool_calls]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    given: Any = litellm.completion(
        model="openai/default",
        api_base=f"{URL}/v1",
        api_key="-",
        max_retries=0,
        messages=history,
        tools=TOOLS,
        max_tokens=LIMIT,
        stream=streamed,
        stream_options={"include_usage": True} if streamed else None,
    )
    completion: Any = litellm.stream_chunk_builder(list(given)) if streamed else given
    message = completion.choices[0].message
    said = answer(
        message.content,
        calls=[(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
        reasoning=getattr(message, "reasoning_content", None),
        id=completion.id,
        header=given._hidden_params["additional_headers"].get(f"llm_provider-{HEADER}"),
        usage=(completion.usage.prompt_tokens, completion.usage.completion_tokens),
    )
    return [message], [said]


converse(user, ask, results)
