"""A conversation by lines: each on stdin asks for one turn, each on stdout is what the SDK made of the answers.

A turn names the entries that make its history (``of``), and what is new: a message of the user's, or what the tool
gave. So a test can ask again, change what was said, go back, and replace all by a summary. What entries hold is up to
the SDK: its own objects, as a program would keep them.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

URL = sys.argv[1]
HEADER = "x-burnish-completion-id"
NAME = "look_up"
DESCRIPTION = "Look up the weather."
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION = {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS, "strict": False}
LIMIT = 40
"""Tokens of an answer; the small model may go on for long."""
TOOLS = [{"type": "function", "function": FUNCTION}]
"""As chat completions want them."""

Entry = list[Any]
"""What the SDK keeps of one message, or of one answer."""
Answer = dict[str, Any]
Given = dict[str, Any]
_gives: list[str] = []


def answer(
    text: str | None,
    *,
    calls: Iterable[tuple[str | None, str, str | dict[str, Any]]] = (),
    reasoning: str | None = None,
    id: str | None = None,
    header: str | None = None,
    usage: tuple[int, int] | None = None,
) -> Answer:
    """What an SDK has assembled; None is what it does not show."""
    named = [
        {"id": id, "name": name, "arguments": json.loads(given) if isinstance(given, str) else given}
        for id, name, given in calls
    ]
    shown = {"calls": named, "reasoning": reasoning or None, "id": id, "header": header, "usage": usage}
    return {"text": text or "", **shown}


def of_completion(completion: Any, **more: Any) -> Answer:
    """The same, from a chat completion."""
    message, usage = completion.choices[0].message, completion.usage
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    told = {"calls": calls, "reasoning": getattr(message, "reasoning_content", None), "id": completion.id}
    return answer(message.content, **{**told, **more}, usage=(usage.prompt_tokens, usage.completion_tokens))


def of_items(output: Iterable[Any], usage: Any, **more: Any) -> Answer:
    """The same, from the items of a response."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    summaries = [part for item in output if item.type == "reasoning" for part in item.summary]
    return answer(
        "".join(part.text for part in parts),
        calls=[(item.call_id, item.name, item.arguments) for item in output if item.type == "function_call"],
        reasoning="".join(part.text for part in summaries),
        usage=(usage.input_tokens, usage.output_tokens),
        **more,
    )


def user_message(text: str) -> Any:
    return {"role": "user", "content": text}


def tool_messages(reply: Entry, text: str) -> Entry:
    """What the tool gave, as chat completions want it."""
    return [{"role": "tool", "tool_call_id": call.id, "content": text} for call in reply[0].tool_calls]


def look_up(city: str, days: int) -> str:
    """Look up the weather."""
    return _gives[-1]


def gives(asked: Entry, text: str) -> Entry:
    """Have ``look_up`` give it, for SDKs that run tools themselves."""
    _gives.append(text)
    return []


def converse(
    ask: Callable[[Entry, bool], Any],
    results: Callable[[Entry, str], Entry] = tool_messages,
    user: Callable[[str], Any] = user_message,
) -> None:
    """Answer turns until stdin ends.

    ``ask`` returns the reply and the answers (or awaits them), given a history and whether to stream; ``results``
    returns the messages that follow the calls of a reply.
    """
    out, sys.stdout = sys.stdout, sys.stderr
    loop = asyncio.Runner()
    entries: list[Entry] = []
    for line in sys.stdin:
        turn = json.loads(line)
        of = turn["of"]
        if "user" in turn:
            entries.append([user(turn["user"])])
            of = [*of, len(entries) - 1]
        if "result" in turn:
            entries.append(results(entries[of[-1]], turn["result"]))
            of = [*of, len(entries) - 1]
        said: dict[str, Any]
        try:
            asked = ask([message for each in of for message in entries[each]], turn["stream"])
            reply, answers = loop.run(asked) if inspect.iscoroutine(asked) else asked
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what is asked for
            said = {"error": _failure(error)}
        else:
            entries.append(reply)
            said = {"answers": answers, "of": [*of, len(entries) - 1]}
        out.write(json.dumps(said) + "\n")
        out.flush()


def _failure(error: Any) -> dict[str, Any]:
    response = getattr(error, "response", None)
    places = (
        getattr(error, "litellm_response_headers", None),
        getattr(response, "headers", None),
        getattr(error, "headers", None),
    )
    headers = next(filter(None, places), {})
    return {
        "type": type(error).__name__,
        "status": getattr(error, "status_code", None) or getattr(error, "code", None),
        "retry_after": headers.get("retry-after"),
        "message": str(error),
    }
