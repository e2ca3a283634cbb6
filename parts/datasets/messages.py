"""Messages, prompts and answers as other programs write them → chat messages. Pure.

Traces hold whatever a program gave its tracer: messages of OpenAI or LangChain, a text, or an object around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from burnish.parts.datasets.found import Unusable

Message = dict[str, Any]

ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", "function")},
    **{"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"},
    **{"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
}
"""Roles by the names that OpenAI and LangChain have for them."""
KEPT = ("name", "tool_call_id", "tool_calls", "function_call", "refusal", "reasoning_content")
PROMPTS = ("messages", "input", "inputs", "question", "query", "prompt", "text", "content")
"""Members that hold the prompt in an object around it, in the order in which they are looked for."""
ANSWERS = (
    *("choices", "generations", "message", "messages", "output", "outputs", "answer", "response", "result"),
    *("completion", "text", "content"),
)
MOST_DEPTH = 8
"""Of objects in objects; more is a program's state, no message."""
MILLISECONDS = 1e11
"""From here on a time isn't in seconds (the year 5138), but in milliseconds."""


def message_of(given: Any) -> Message:
    """Return a chat message. Raises Unusable."""
    if not isinstance(given, Mapping):
        raise Unusable("a message isn't an object")
    inner = given.get("kwargs") or given.get("data")
    if isinstance(inner, Mapping) and "content" in inner:
        kind = given.get("id")
        named = kind[-1] if isinstance(kind, list) and kind else given.get("type")
        given = {
            "type": named,
            **{name: value for name, value in inner.items() if name not in ("type", "id")},
        }
    role = ROLES.get(str(given.get("role") or given.get("type")))
    if role is None:
        raise Unusable(f"a message has the role {str(given.get('role') or given.get('type'))[:40]!r}")
    content = given.get("content")
    if not isinstance(content, str | list | None):
        raise Unusable("the content of a message isn't a text")
    more = {name: given[name] for name in KEPT if given.get(name)}
    if "tool_calls" in more:
        more["tool_calls"] = [_call(each) for each in _list(more["tool_calls"])]
    return {"role": role, "content": content, **more}


def _call(given: Any) -> dict[str, Any]:
    """Return a call as OpenAI has it; LangChain's has ``args``."""
    if not isinstance(given, Mapping):
        raise Unusable("a tool call isn't an object")
    if isinstance(given.get("function"), Mapping):
        function = given["function"]
        name, arguments = function.get("name"), function.get("arguments")
    else:
        name, arguments = given.get("name"), given.get("args", given.get("arguments"))
    if not isinstance(name, str):
        raise Unusable("a tool call has no name")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    function = {"name": name, "arguments": text}
    return {"id": str(given.get("id") or f"call_{name}"), "type": "function", "function": function}


def messages_of(given: Any) -> tuple[Message, ...]:
    """Return a list of messages; a text is one of the user. Raises Unusable."""
    if isinstance(given, str):
        if not given.strip():
            raise Unusable("the prompt is empty")
        return ({"role": "user", "content": given},)
    if not isinstance(given, list) or not given:
        raise Unusable("the messages are no list with something in it")
    if len(given) == 1 and isinstance(given[0], list):  # LangChain's batches
        return messages_of(given[0])
    return tuple(message_of(each) for each in given)


def prompt_of(given: Any, depth: int = 0) -> tuple[Message, ...]:
    """Return the messages in whatever a program traced as its input. Raises Unusable."""
    given = parsed(given)
    if isinstance(given, str | list):
        return messages_of(given)
    if isinstance(given, Mapping) and depth < MOST_DEPTH:
        if "role" in given or "kwargs" in given:
            return (message_of(given),)
        for name in PROMPTS:
            if given.get(name):
                return prompt_of(given[name], depth + 1)
    raise Unusable("its input holds no messages and no text")


def reply_of(given: Any, depth: int = 0) -> Message:
    """Return the assistant message in whatever a program traced as its output. Raises Unusable."""
    given = parsed(given)
    if isinstance(given, str) and given.strip():
        return {"role": "assistant", "content": given}
    if isinstance(given, list) and given and depth < MOST_DEPTH:
        return reply_of(given[-1], depth + 1)
    if isinstance(given, Mapping) and depth < MOST_DEPTH:
        if "role" in given or "kwargs" in given or given.get("type") in ROLES:
            return _assistant(message_of(given))
        if isinstance(given.get("message"), Mapping):
            return reply_of(given["message"], depth + 1)
        for name in ANSWERS:
            if given.get(name):
                return reply_of(given[name], depth + 1)
    raise Unusable("its output holds no answer")


def _assistant(message: Message) -> Message:
    if message["role"] != "assistant":
        raise Unusable(f"its output is a message of {message['role']!r}, not of the assistant")
    return message


def answer_in(given: Any) -> Message:
    """Return the one assistant message of a dataset's answer: a text, a message or a list of one. Raises Unusable."""
    if isinstance(given, list):
        if len(given) != 1:
            raise Unusable(f"an answer of {len(given)} messages: exactly one is expected")
        given = given[0]
    if isinstance(given, str):
        if not given.strip():
            raise Unusable("an answer is empty")
        return {"role": "assistant", "content": given}
    return _assistant(message_of(given))


def tools_in(given: Any) -> tuple[dict[str, Any], ...]:
    """Return tool definitions: a list, or one as JSON. Raises Unusable."""
    found = parsed(given) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Unusable("tools must be a list of objects")
    return tuple(found)


def parsed(given: Any) -> Any:
    """Return what JSON in a text says; tables keep objects as text."""
    if isinstance(given, str) and given[:1] in ("{", "["):
        try:
            return orjson.loads(given)
        except orjson.JSONDecodeError:
            return given
    return given


def moment_of(given: Any) -> float | None:
    """Return a time as seconds since the epoch: ISO 8601, seconds or milliseconds. None: it is none."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given / 1000 if given >= MILLISECONDS else float(given)
        return seconds if 0 <= seconds < MILLISECONDS else None
    try:
        found = datetime.fromisoformat(str(given))
        # Exports without a zone are in UTC.
        moment = found.timestamp() if found.tzinfo else datetime.fromisoformat(f"{given}+00:00").timestamp()
    except (ValueError, OverflowError):
        return None
    return moment if 0 <= moment < MILLISECONDS else None


def text_or_none(given: Any) -> str | None:
    return given if isinstance(given, str) and given.strip() else None


def _list(given: Any) -> Sequence[Any]:
    if not isinstance(given, list):
        raise Unusable("tool_calls isn't a list")
    return given
