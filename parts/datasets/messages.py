"""Messages, prompts and answers as other programs write them → chat messages. Pure.

Traces hold whatever a program gave its tracer: messages of OpenAI or LangChain, a text, or an object around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from burnish.parts.datasets.parsed import Unusable

Message = dict[str, Any]

ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", "function")},
    **{"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"},
    **{"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
}
"""Roles by the names that OpenAI and LangChain have for them."""
OPTIONAL_FIELDS = ("name", "tool_call_id", "tool_calls", "function_call", "refusal", "reasoning_content")
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


def message_of(message: Any) -> Message:
    """Return a chat message. Raises Unusable."""
    if not isinstance(message, Mapping):
        raise Unusable("a message isn't an object")
    inner = message.get("kwargs") or message.get("data")
    if isinstance(inner, Mapping) and "content" in inner:
        class_path = message.get("id")
        class_name = class_path[-1] if isinstance(class_path, list) and class_path else message.get("type")
        message = {
            "type": class_name,
            **{name: field for name, field in inner.items() if name not in ("type", "id")},
        }
    role = ROLES.get(str(message.get("role") or message.get("type")))
    if role is None:
        raise Unusable(f"a message has the role {str(message.get('role') or message.get('type'))[:40]!r}")
    content = message.get("content")
    if not isinstance(content, str | list | None):
        raise Unusable("the content of a message isn't a text")
    fields = {name: message[name] for name in OPTIONAL_FIELDS if message.get(name)}
    if "tool_calls" in fields:
        fields["tool_calls"] = [_call(call) for call in _list(fields["tool_calls"])]
    return {"role": role, "content": content, **fields}


def _call(call: Any) -> dict[str, Any]:
    """Return a call as OpenAI has it; LangChain's has ``args``."""
    if not isinstance(call, Mapping):
        raise Unusable("a tool call isn't an object")
    if isinstance(call.get("function"), Mapping):
        function = call["function"]
        name, arguments = function.get("name"), function.get("arguments")
    else:
        name, arguments = call.get("name"), call.get("args", call.get("arguments"))
    if not isinstance(name, str):
        raise Unusable("a tool call has no name")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    function = {"name": name, "arguments": text}
    return {"id": str(call.get("id") or f"call_{name}"), "type": "function", "function": function}


def messages_of(messages: Any) -> tuple[Message, ...]:
    """Return a list of messages; a text is one of the user. Raises Unusable."""
    if isinstance(messages, str):
        if not messages.strip():
            raise Unusable("the prompt is empty")
        return ({"role": "user", "content": messages},)
    if not isinstance(messages, list) or not messages:
        raise Unusable("the messages are no list with something in it")
    if len(messages) == 1 and isinstance(messages[0], list):  # LangChain's batches
        return messages_of(messages[0])
    return tuple(message_of(message) for message in messages)


def prompt_of(prompt: Any, depth: int = 0) -> tuple[Message, ...]:
    """Return the messages in whatever a program traced as its input. Raises Unusable."""
    prompt = parsed(prompt)
    if isinstance(prompt, str | list):
        return messages_of(prompt)
    if isinstance(prompt, Mapping) and depth < MOST_DEPTH:
        if "role" in prompt or "kwargs" in prompt:
            return (message_of(prompt),)
        for name in PROMPTS:
            if prompt.get(name):
                return prompt_of(prompt[name], depth + 1)
    raise Unusable("its input holds no messages and no text")


def reply_of(output: Any, depth: int = 0) -> Message:
    """Return the assistant message in whatever a program traced as its output. Raises Unusable."""
    output = parsed(output)
    if isinstance(output, str) and output.strip():
        return {"role": "assistant", "content": output}
    if isinstance(output, list) and output and depth < MOST_DEPTH:
        return reply_of(output[-1], depth + 1)
    if isinstance(output, Mapping) and depth < MOST_DEPTH:
        if "role" in output or "kwargs" in output or output.get("type") in ROLES:
            return _assistant(message_of(output))
        if isinstance(output.get("message"), Mapping):
            return reply_of(output["message"], depth + 1)
        for name in ANSWERS:
            if output.get(name):
                return reply_of(output[name], depth + 1)
    raise Unusable("its output holds no answer")


def _assistant(message: Message) -> Message:
    if message["role"] != "assistant":
        raise Unusable(f"its output is a message of {message['role']!r}, not of the assistant")
    return message


def answer_in(answer: Any) -> Message:
    """Return the one assistant message of a dataset's answer: a text, a message or a list of one. Raises Unusable."""
    if isinstance(answer, list):
        if len(answer) != 1:
            raise Unusable(f"an answer of {len(answer)} messages: exactly one is expected")
        answer = answer[0]
    if isinstance(answer, str):
        if not answer.strip():
            raise Unusable("an answer is empty")
        return {"role": "assistant", "content": answer}
    return _assistant(message_of(answer))


def tools_in(tools: Any) -> tuple[dict[str, Any], ...]:
    """Return tool definitions: a list, or one as JSON. Raises Unusable."""
    definitions = parsed(tools) or []
    if not isinstance(definitions, list) or not all(isinstance(tool, dict) for tool in definitions):
        raise Unusable("tools must be a list of objects")
    return tuple(definitions)


def parsed(text: Any) -> Any:
    """Return what JSON in a text says; tables keep objects as text."""
    if isinstance(text, str) and text[:1] in ("{", "["):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def moment_of(timestamp: Any) -> float | None:
    """Return a time as seconds since the epoch: ISO 8601, seconds or milliseconds. None: it is none."""
    if isinstance(timestamp, int | float) and not isinstance(timestamp, bool):
        seconds = timestamp / 1000 if timestamp >= MILLISECONDS else float(timestamp)
        return seconds if 0 <= seconds < MILLISECONDS else None
    try:
        date = datetime.fromisoformat(str(timestamp))
        # Exports without a zone are in UTC.
        moment = date.timestamp() if date.tzinfo else datetime.fromisoformat(f"{timestamp}+00:00").timestamp()
    except (ValueError, OverflowError):
        return None
    return moment if 0 <= moment < MILLISECONDS else None


def text_or_none(text: Any) -> str | None:
    return text if isinstance(text, str) and text.strip() else None


def object_or_empty(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _list(calls: Any) -> Sequence[Any]:
    if not isinstance(calls, list):
        raise Unusable("tool_calls isn't a list")
    return calls
