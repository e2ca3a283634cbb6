"""OpenAI's SDK, chat completions."""

from __future__ import annotations

from typing import Any

import openai
from conversation import HEADER, TOOLS, URL, Answer, Entry, answer, converse

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0)

ENDS = [".", ",", "!", "?"]
"""The SDK raises for an answer that a limit cut, so the small model is stopped by its own words."""


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    return [{"role": "tool", "tool_call_id": call.id, "content": text} for call in reply[0].tool_calls]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    asked: dict[str, Any] = {"model": "default", "messages": history, "tools": TOOLS, "stop": ENDS}
    if streamed:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            completion = stream.get_final_completion()
            headers = {}  # it does not show them
    else:
        raw = client.chat.completions.with_raw_response.create(**asked)
        completion, headers = raw.parse(), raw.headers
    message = completion.choices[0].message
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    said = answer(
        message.content,
        calls=calls,
        reasoning=message.to_dict().get("reasoning_content"),
        id=completion.id,
        header=headers.get(HEADER),
        usage=(completion.usage.prompt_tokens, completion.usage.completion_tokens),
    )
    return [message], [said]


converse(user, ask, results)
