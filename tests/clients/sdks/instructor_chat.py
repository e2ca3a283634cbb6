"""Instructor, to which an answer is an object: the arguments of a call."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from conversation import URL, Answer, Entry, answer, converse
from pydantic import BaseModel


class look_up(BaseModel):
    """Look up the weather."""

    city: str
    days: int


client = openai.OpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0)
model = instructor.from_openai(client)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in reply[0]["tool_calls"]]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    got, completion = model.create_with_completion(
        model="default", messages=history, response_model=look_up, max_retries=0
    )
    message = completion.choices[0].message
    said = answer(
        message.content,
        calls=[(message.tool_calls[0].id, type(got).__name__, got.model_dump())],
        reasoning=message.to_dict().get("reasoning_content"),
        id=completion.id,
        usage=(completion.usage.prompt_tokens, completion.usage.completion_tokens),
    )
    return [message.to_dict()], [said]


converse(user, ask, results)
