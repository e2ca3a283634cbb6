"""Anthropic's SDK."""

from __future__ import annotations

from typing import Any

import anthropic
from conversation import DESCRIPTION, HEADER, LIMIT, NAME, PARAMETERS, URL, Answer, Entry, answer, converse

client = anthropic.Anthropic(base_url=URL, api_key="-", max_retries=0)
TOOLS = [{"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS}]


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    calls = [block for block in reply[0]["content"] if block.type == "tool_use"]
    given = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls]
    return [{"role": "user", "content": given}]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    asked: dict[str, Any] = {"model": "default", "max_tokens": LIMIT, "messages": history, "tools": TOOLS}
    if streamed:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
            headers = stream.response.headers
    else:
        raw = client.messages.with_raw_response.create(**asked)
        message, headers = raw.parse(), raw.headers
    usage = message.usage
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    said = answer(
        "".join(block.text for block in message.content if block.type == "text"),
        calls=[(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"],
        reasoning="".join(block.thinking for block in message.content if block.type == "thinking") or None,
        id=message.id,
        header=headers.get(HEADER),
        usage=(usage.input_tokens + cached, usage.output_tokens),
    )
    return [{"role": "assistant", "content": message.content}], [said]


converse(user, ask, results)
