"""OpenAI's SDK, Responses."""

from __future__ import annotations

from typing import Any

import openai
from conversation import FUNCTION, HEADER, LIMIT, URL, Answer, Entry, converse, of_items

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0)
TOOLS = [{"type": "function", **FUNCTION}]


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    calls = [item for item in reply if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call in calls]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    asked: dict[str, Any] = {
        "model": "default",
        "input": history,
        "tools": TOOLS,
        "store": False,
        "max_output_tokens": LIMIT,
    }
    if streamed:
        with client.responses.stream(**asked) as stream:
            response = stream.get_final_response()
            headers = {}  # it does not show them
    else:
        raw = client.responses.with_raw_response.create(**asked)
        response, headers = raw.parse(), raw.headers
    usage = (response.usage.input_tokens, response.usage.output_tokens)
    said = of_items(response.output, id=response.id, header=headers.get(HEADER), usage=usage)
    assert said["text"] == response.output_text
    return response.output, [said]


converse(user, ask, results)
