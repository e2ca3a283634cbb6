"""Items of the Responses format ↔ chat messages.

What one response says is several items (reasoning, messages, calls of tools); as a chat message it is one. Items of the
assistant's that follow each other become one message therefore, whether they come from the model or are sent back by a
client, and the two are the same to the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces.references import names_an_answer_to_a_command

Item = dict[str, Any]
Message = dict[str, Any]

TEXTS = ("input_text", "output_text", "text")
OUTPUT, CALL = "_output", "_call"
"""Ends of the types of items: what a tool answered, and what is asked of one."""
FUNCTION_CALL, CUSTOM_CALL = "function_call", "custom_tool_call"
APPROVAL = "mcp_approval_response"
ANSWER_TO_A_COMMAND = "burnish: …"
"""In the place of an answer of ours that is named, not sent: what all of them begin with."""
CALLED_WITH = ("action", "actions", "operation", "arguments")
"""Where calls of the tools that the format itself knows say what is to be done."""


class Said(NamedTuple):
    """Messages, and for each the indexes of the items that it was read from."""

    messages: list[Message]
    origins: list[tuple[int, ...]]


def read_items(items: Sequence[Any]) -> Said:
    """Read the items of a request. Raises InvalidRequest that names the item."""
    for index, item in enumerate(items):
        wrong = f"input[{index}]"
        if not isinstance(item, dict):
            raise InvalidRequest(f"{wrong} must be an object, not {type(item).__name__}", param=wrong)
        if _type(item) == "message" and not isinstance(item.get("role"), str):
            raise InvalidRequest(
                f'{wrong}.role must be a string such as "user" or "assistant"', param=f"{wrong}.role"
            )
    return messages_of(items)


def messages_of(items: Sequence[Item]) -> Said:
    """Return the messages that items make."""
    said = Said([], [])
    turn: list[int] = []
    for index, item in enumerate(items):
        message = _of_others(item)
        if message is None:
            turn.append(index)
            continue
        _end_turn(said, items, turn)
        said.messages.append(message)
        said.origins.append((index,))
    _end_turn(said, items, turn)
    return said


def _end_turn(said: Said, items: Sequence[Item], turn: list[int]) -> None:
    if turn:
        said.messages.append(_of_assistant([items[index] for index in turn]))
        said.origins.append(tuple(turn))
        turn.clear()


def _type(item: Item) -> str:
    """Return the type of an item; messages need not say theirs."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ""


def _of_others(item: Item) -> Message | None:
    """Return the message of an item that is not the assistant's, None for one that is."""
    kind = _type(item)
    if kind == "message":
        role = item.get("role")
        return None if role == "assistant" else {"role": role, "content": content_of(item.get("content"))}
    if kind.endswith(OUTPUT) or kind == APPROVAL:
        answered = item.get("call_id") or item.get("approval_request_id") or item.get("id")
        return {"role": "tool", "tool_call_id": answered, "content": _output(item)}
    return None


def _output(item: Item) -> Any:
    output = item.get("output")
    if isinstance(output, str | list):
        return content_of(output)
    return [output if isinstance(output, dict) else item]


def content_of(content: Any) -> Any:
    """Return the content of a message as chat has it: a text, or parts; several texts stay several parts."""
    if not isinstance(content, list):
        return content
    return [_part(part) if isinstance(part, dict) else part for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in TEXTS:
        noted = {"annotations": part["annotations"]} if part.get("annotations") else {}
        return {"type": "text", "text": part.get("text"), **noted}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file":
        return {"type": "file", "file": {key: value for key, value in part.items() if key != "type"}}
    return part


def _of_assistant(items: Sequence[Item]) -> Message:
    """Return the one message that items make which one response consists of."""
    parts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    others: list[Item] = []
    for item in items:
        kind = _type(item)
        if kind == "message":
            parts += _parts(item.get("content"))
        elif kind == "reasoning":
            thoughts += _thoughts(item)
        elif kind.endswith(CALL) and isinstance(item.get("call_id"), str):
            calls.append(_call(item))
        elif names_an_answer_to_a_command(item):
            parts.append({"type": "text", "text": ANSWER_TO_A_COMMAND})
        else:
            others.append(item)
    refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
    found = {
        "reasoning_content": "\n\n".join(thoughts),
        "refusal": "".join(refusals),
        "tool_calls": calls,
        "items": others,
    }
    content = _plain([part for part in parts if part.get("type") != "refusal" and part.get("text") != ""])
    return {"role": "assistant", "content": content} | {key: value for key, value in found.items() if value}


def _parts(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        content = [content]
    texts = [
        {"type": "text", "text": part} if isinstance(part, str) else part for part in content_of(content)
    ]
    return [part for part in texts if isinstance(part, dict)]


def _plain(parts: list[dict[str, Any]]) -> Any:
    """Return parts as a text where they are one text and no more."""
    if not parts:
        return None
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _thoughts(item: Item) -> list[str]:
    """Return what can be read of a reasoning item: its own text, which open models show, or else the summary."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = (
            [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        )
        if found := [text for text in texts if isinstance(text, str) and text]:
            return found
    return []


def _call(item: Item) -> dict[str, Any]:
    kind = item["type"]
    if kind == CUSTOM_CALL:
        called = {"custom": {"name": item.get("name"), "input": item.get("input")}}
    elif kind == FUNCTION_CALL:
        called = {"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
    else:
        called = {"function": {"name": kind.removesuffix(CALL), "arguments": _called_with(item)}}
    space = {"namespace": item["namespace"]} if item.get("namespace") else {}
    return {"id": item["call_id"], "type": next(iter(called)), **called, **space}


def _called_with(item: Item) -> str:
    wanted: Any = next((item[name] for name in CALLED_WITH if item.get(name) is not None), {})
    if isinstance(wanted, dict):
        wanted = {key: value for key, value in wanted.items() if value is not None}
    return orjson.dumps(wanted).decode()
