"""Messages, prompts and answers as other programs write them → chat messages. Pure.

Traces hold whatever a program gave its tracer: a request or an answer of any format that the log reads, messages of
LangChain or the AI SDK, a text, or an object around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from burnish.parts.datasets.parsed import Unusable
from burnish.proxy.messages import text_of
from burnish.proxy.surfaces import gemini_contents, items, messages_blocks

Message = dict[str, Any]

ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", "function")},
    **{"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"},
    **{"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
    **dict.fromkeys(("model", "gpt", "chatgpt", "bing", "bard"), "assistant"),
}
"""Roles by the names that OpenAI, LangChain, Gemini and ShareGPT have for them."""
OPTIONAL_FIELDS = ("name", "tool_call_id", "tool_calls", "function_call", "refusal", "reasoning_content")
SYSTEMS = (
    "instructions",
    "system",
    "system_prompt",
    "systemPrompt",
    "system_instruction",
    "systemInstruction",
)
"""Members that hold a system prompt beside the messages."""
PROMPTS = ("messages", "contents", "input", "inputs", "question", "query", "prompt", "text", "content")
"""Members that hold the prompt in an object around it, in the order in which they are looked for."""
ANSWERS = (
    *("choices", "candidates", "generations", "message", "messages", "output", "outputs"),
    *("answer", "response", "result", "completion", "text", "content"),
)
ARGUMENTS = ("arguments", "args", "input")
"""Members that hold the arguments of a call: OpenAI's, LangChain's, the AI SDK's."""
BLOCKS = frozenset({
    *("tool_use", "tool_result", "thinking", "redacted_thinking"),
    *("tool-call", "tool-result", "reasoning"),
})  # fmt: skip
"""Parts of a content that are messages, calls or thoughts in chat: Anthropic's, the AI SDK's."""
HELD_ELSEWHERE = "a part of its history is with the server: {}"
MOST_DEPTH = 8
"""Of objects in objects; more is a program's state, no message."""
MILLISECONDS = 1e11
"""From here on a time isn't in seconds (the year 5138), but in milliseconds."""


def message_of(message: Any) -> Message:
    """Return a chat message. Raises Unusable."""
    if not isinstance(message, Mapping):
        raise Unusable("a message isn't an object")
    message = _unwrapped(message)
    name = _role(message)
    if (role := ROLES.get(name)) is None:
        raise Unusable(f"a message has the role {name[:40]!r}")
    content = message.get("content", message.get("value"))
    if not isinstance(content, str | list | None):
        raise Unusable("the content of a message isn't a text")
    fields = {name: message[name] for name in OPTIONAL_FIELDS if message.get(name)}
    if "tool_calls" in fields:
        fields["tool_calls"] = [_call(call) for call in _list(fields["tool_calls"])]
    return {"role": role, "content": content, **fields}


def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message in an object of LangChain."""
    inner = message.get("kwargs") or message.get("data")
    if not isinstance(inner, Mapping) or "content" not in inner:
        return message
    class_path = message.get("id")
    class_name = class_path[-1] if isinstance(class_path, list) and class_path else message.get("type")
    return {
        "type": class_name,
        **{name: field for name, field in inner.items() if name not in ("type", "id")},
    }


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("from") or message.get("type"))


def _call(call: Any) -> dict[str, Any]:
    """Return a call as OpenAI has it."""
    if not isinstance(call, Mapping):
        raise Unusable("a tool call isn't an object")
    function = call.get("function") or call.get("custom")
    function = function if isinstance(function, Mapping) else call
    name = function.get("name") or function.get("toolName")
    if not isinstance(name, str):
        raise Unusable("a tool call has no name")
    arguments = next((function[key] for key in ARGUMENTS if key in function), None)
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    identity = str(call.get("id") or call.get("toolCallId") or f"call_{name}")
    if "custom" in call:
        return {"id": identity, "type": "custom", "custom": {"name": name, "input": text}}
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": text}}


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
    return tuple(message_of(message) for message in _as_chat(messages))


def _as_chat(messages: list[Any]) -> list[Any]:
    """Return the messages of a request in another format as chat's; others stay."""
    if not all(isinstance(message, Mapping) for message in messages):
        return messages
    if any(message.get("type") == items.TYPE for message in messages):
        raise Unusable(HELD_ELSEWHERE.format(items.TYPE))
    if any(map(_is_item, messages)):
        return items.messages_of(messages).messages
    if any("parts" in message and "content" not in message for message in messages):
        return [message for turn in gemini_contents.turns(messages) for message in turn.messages]
    return [chat for message in messages for chat in _of_blocks(message)]


def _is_item(message: Mapping[str, Any]) -> bool:
    """Whether it is an item of the Responses format, or a message with its parts."""
    kind = str(message.get("type"))
    return (
        kind.endswith((items.CALL, items.OUTPUT))
        or (kind == "reasoning" and "role" not in message)
        or any(part.get("type") in ("input_text", "output_text") for part in _parts(message))
    )


def _of_blocks(message: Mapping[str, Any]) -> list[Any]:
    """Return the messages in a message of Anthropic or the AI SDK; an answer's texts are one text."""
    message = _unwrapped(message)
    parts = _parts(message)
    reply = ROLES.get(_role(message)) == "assistant"
    if not parts or not (reply or any(part.get("type") in BLOCKS for part in parts)):
        return [message]
    role = "assistant" if reply else "user"
    chats = messages_blocks.messages({"role": role, "content": [_block(part) for part in parts]})
    return [{name: message[name] for name in OPTIONAL_FIELDS if name in message} | chat for chat in chats]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of the AI SDK as Anthropic has it."""
    name, kind = part.get("toolCallId"), part.get("type")
    if kind == "tool-call":
        arguments = part.get("input", part.get("args"))
        return {"type": "tool_use", "id": name, "name": part.get("toolName"), "input": arguments}
    if kind == "tool-result":
        output = part.get("output", part.get("result"))
        output = output.get("value", output) if isinstance(output, Mapping) else output
        text = output if isinstance(output, str) else orjson.dumps(output).decode()
        return {"type": "tool_result", "tool_use_id": name, "content": text}
    return {"type": "thinking", "thinking": part.get("text")} if kind == "reasoning" else dict(part)


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def with_system(holder: Mapping[str, Any], messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put the system prompt that stands beside messages before them. Raises Unusable."""
    places = (holder, object_or_empty(holder.get("config")))
    system = next((place[name] for place in places for name in SYSTEMS if place.get(name)), None)
    if system is None:
        return messages
    if isinstance(system, Mapping):
        system = gemini_contents.parts_of(system) or system.get("content")
    text = text_of({"content": system})
    if not text.strip():
        raise Unusable("the system prompt beside the messages isn't a text")
    if any(message["role"] in ("system", "developer") and text_of(message) == text for message in messages):
        return messages
    return ({"role": "system", "content": text}, *messages)


def prompt_of(prompt: Any, depth: int = 0) -> tuple[Message, ...]:
    """Return the messages in whatever a program traced as its input. Raises Unusable."""
    prompt = parsed(prompt)
    if isinstance(prompt, str | list):
        return messages_of(prompt)
    if isinstance(prompt, Mapping) and depth < MOST_DEPTH:
        if prompt.get("previous_response_id"):
            raise Unusable(HELD_ELSEWHERE.format("previous_response_id"))
        if (arguments := _arguments(prompt)) is not None:
            return prompt_of(arguments, depth + 1)
        if "role" in prompt or "kwargs" in prompt:
            return messages_of([prompt])
        for name in PROMPTS:
            if prompt.get(name):
                return with_system(prompt, prompt_of(prompt[name], depth + 1))
    raise Unusable("its input holds no messages and no text")


def _arguments(prompt: Mapping[str, Any]) -> Any:
    """Return what a traced function was called with; None if it is no such call."""
    positional, named = prompt.get("args"), prompt.get("kwargs")
    if not isinstance(positional, list) or not isinstance(named, Mapping):
        return None
    if any(named.get(name) for name in PROMPTS):
        return named
    return {**named, "messages": positional[0]} if len(positional) == 1 else positional or named


def reply_of(output: Any, depth: int = 0) -> Message:
    """Return the assistant message in whatever a program traced as its output. Raises Unusable."""
    output = parsed(output)
    if isinstance(output, str) and output.strip():
        return {"role": "assistant", "content": output}
    if isinstance(output, list) and output and depth < MOST_DEPTH:
        if any(isinstance(item, Mapping) and _is_item(item) for item in output):
            return _assistant(messages_of(output)[-1])
        return reply_of(output[-1], depth + 1)
    if isinstance(output, Mapping) and depth < MOST_DEPTH:
        if "role" in output or "kwargs" in output or output.get("type") in ROLES:
            return _assistant(messages_of([output])[-1])
        if output.get("toolCalls"):  # the AI SDK's result
            thoughts = text_or_none(output.get("reasoningText") or output.get("reasoning"))
            calls = {"content": output.get("text") or None, "tool_calls": output["toolCalls"]}
            return message_of({"role": "assistant", "reasoning_content": thoughts, **calls})
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
    return _assistant(messages_of([answer])[-1])


def tools_in(tools: Any) -> tuple[dict[str, Any], ...]:
    """Return tool definitions in chat's form, from a list or one as JSON. Raises Unusable."""
    definitions = parsed(tools) or []
    if not isinstance(definitions, list) or not all(isinstance(tool, dict) for tool in definitions):
        raise Unusable("tools must be a list of objects")
    google = gemini_contents.tools_of({"tools": definitions})
    return tuple(google["tools"] if "tools" in google else map(_tool, definitions))


def tools_of(prompt: Any) -> tuple[dict[str, Any], ...]:
    """Return the tools in whatever a program traced as its input. Raises Unusable."""
    prompt = object_or_empty(prompt)
    places = (prompt, object_or_empty(prompt.get("config")), object_or_empty(prompt.get("kwargs")))
    return tools_in(next((place["tools"] for place in places if place.get("tools")), None))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    schema = next(
        (tool[name] for name in ("parameters", "input_schema", "inputSchema") if name in tool), None
    )
    if "function" in tool or schema is None or not isinstance(tool.get("name"), str):
        return tool
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **described, "parameters": schema}}


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
