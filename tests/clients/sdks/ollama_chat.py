"""Ollama's SDK, which shows neither ids nor headers by itself."""

from __future__ import annotations

from typing import Any

import ollama
from conversation import HEADER, TOOLS, URL, Answer, Entry, answer, converse

seen: list[str | None] = []
hooks = {"response": [lambda response: seen.append(response.headers.get(HEADER))]}
client = ollama.Client(host=URL, event_hooks=hooks)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def results(reply: Entry, text: str) -> Entry:
    calls = [call for message in reply for call in message.tool_calls or ()]
    return [{"role": "tool", "tool_name": call.function.name, "content": text} for call in calls]


def ask(history: Entry, streamed: bool) -> tuple[Entry, list[Answer]]:
    given = client.chat(model="default", messages=history, tools=TOOLS, stream=streamed)
    parts = list(given) if streamed else [given]
    message = ollama.Message(
        role="assistant",
        content="".join(part.message.content or "" for part in parts),
        thinking="".join(part.message.thinking or "" for part in parts) or None,
        tool_calls=[call for part in parts for call in part.message.tool_calls or ()] or None,
    )
    calls = [(None, call.function.name, dict(call.function.arguments)) for call in message.tool_calls or ()]
    usage = (parts[-1].prompt_eval_count, parts[-1].eval_count)
    said = answer(message.content, calls=calls, reasoning=message.thinking, header=seen[-1], usage=usage)
    return [message], [said]


converse(user, ask, results)
