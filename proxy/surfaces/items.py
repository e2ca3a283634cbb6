"""Items of the Responses format → chat messages, and the ids of items that burnish writes.

One response has several items (reasoning, messages, tool calls), but is one chat message. So consecutive items of the
assistant become one message, from the model and from a client alike, and the log recognises a reply that comes back.

By default the AI SDK sends the ids of earlier items instead of the items. Our ids hold the id of their completion; the
log keeps those of upstreams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from burnish.proxy.ids import ALPHABET, LENGTH
from burnish.proxy.messages import text_of
from burnish.proxy.surfaces.base import check_role, wrong_type
from burnish.proxy.surfaces.lenient import Json, objects

Item = Json
Message = Json

TEXTS = ("input_text", "output_text", "text")
OUTPUT, CALL = "_output", "_call"
"""Suffixes of item types: results and calls of tools."""
FUNCTION_CALL, CUSTOM_CALL = "function_call", "custom_tool_call"
APPROVAL = "mcp_approval_response"
COMMAND_ANSWER = "burnish: …"
"""Stands for an answer of ours that a client names instead of sending it."""
ARGUMENT_MEMBERS = ("action", "actions", "operation", "arguments")
"""Members that hold the arguments of built-in tool calls."""


class ReadItems(NamedTuple):
    """Messages, and for each the indexes of its items."""

    messages: list[Message]
    origins: list[tuple[int, ...]]


def read_items(items: Sequence[Any]) -> ReadItems:
    """Read the items of a request. Raises InvalidRequest."""
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise wrong_type(f"input[{index}]", "an object", item)
        if _type(item) == "message":
            check_role(item, f"input[{index}]")
    return messages_of(items)


def messages_of(items: Sequence[Item]) -> ReadItems:
    history = ReadItems([], [])
    turn: list[int] = []
    for index, item in enumerate(items):
        message = _of_other_role(item)
        if message is None:
            turn.append(index)
            continue
        _end_turn(history, items, turn)
        history.messages.append(message)
        history.origins.append((index,))
    _end_turn(history, items, turn)
    return history


def _end_turn(history: ReadItems, items: Sequence[Item], turn: list[int]) -> None:
    if turn:
        history.messages.append(_of_assistant([items[index] for index in turn]))
        history.origins.append(tuple(turn))
        turn.clear()


def _type(item: Item) -> str:
    """Return the type of an item; messages may omit it."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ""


def _of_other_role(item: Item) -> Message | None:
    """Return the message of an item; None if it is the assistant's."""
    kind = _type(item)
    if kind == "message":
        role = item.get("role")
        return None if role == "assistant" else {"role": role, "content": content_of(item.get("content"))}
    if kind.endswith(OUTPUT) or kind == APPROVAL:
        call_id = item.get("call_id") or item.get("approval_request_id") or item.get("id")
        return {"role": "tool", "tool_call_id": call_id, "content": _output(item)}
    return None


def _output(item: Item) -> Any:
    output = item.get("output")
    if isinstance(output, str | list):
        return content_of(output)
    return [output if isinstance(output, dict) else item]


def content_of(content: Any) -> Any:
    """Convert the content of a message: a text, or parts. Several texts stay several parts."""
    if not isinstance(content, list):
        return content
    return [_part(part) if isinstance(part, dict) else part for part in content]


def _part(part: Json) -> Json:
    kind = part.get("type")
    if kind in TEXTS:
        noted = {"annotations": part["annotations"]} if part.get("annotations") else {}
        return {"type": "text", "text": part.get("text"), **noted}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file":
        return {"type": "file", "file": {key: field for key, field in part.items() if key != "type"}}
    return part


def _of_assistant(items: Sequence[Item]) -> Message:
    """Merge the items of one response into a message."""
    parts: list[Json] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    other_items: list[Item] = []
    for item in items:
        kind = _type(item)
        if kind == "message":
            parts += _parts(item.get("content"))
        elif kind == "reasoning":
            thoughts += _thoughts(item)
        elif kind.endswith(CALL) and isinstance(item.get("call_id"), str):
            calls.append(_call(item))
        elif refers_to_command(item):
            parts.append({"type": "text", "text": COMMAND_ANSWER})
        else:
            other_items.append({"type": TYPE, **item} if _is_reference(item) else item)
    refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
    members = {
        "reasoning_content": "\n\n".join(thoughts),
        "refusal": "".join(refusals),
        "tool_calls": calls,
        "items": other_items,
    }
    content = _plain([part for part in parts if part.get("type") != "refusal" and part.get("text") != ""])
    return {"role": "assistant", "content": content} | {
        key: member for key, member in members.items() if member
    }


def _parts(content: Any) -> list[Json]:
    if not isinstance(content, list):
        content = [content]
    texts = [
        {"type": "text", "text": part} if isinstance(part, str) else part for part in content_of(content)
    ]
    return [part for part in texts if isinstance(part, dict)]


def _plain(parts: list[Json]) -> Any:
    """Return a single plain text as a string, else the parts."""
    if not parts:
        return None
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _thoughts(item: Item) -> list[str]:
    """Return the texts of a reasoning item: its content, which open models show, or its summary."""
    for name in ("content", "summary"):
        texts = [part.get("text") for part in objects(item.get(name))]
        if thoughts := [text for text in texts if isinstance(text, str) and text]:
            return thoughts
    return []


def _call(item: Item) -> Json:
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
    arguments: Any = next((item[name] for name in ARGUMENT_MEMBERS if item.get(name) is not None), {})
    if isinstance(arguments, dict):
        arguments = {key: argument for key, argument in arguments.items() if argument is not None}
    return orjson.dumps(arguments).decode()


TYPE = "item_reference"
COMMAND_PREFIX = "rl_"
"""Prefix in the ids of our answers to commands, which have no completion in the log."""
NAME = re.compile(rf"[a-z]+_(?P<ours>{COMMAND_PREFIX})?(?P<token>[{ALPHABET}]{{{LENGTH}}})_[0-9]+")


def name_of(kind: str, token: str, number: int) -> str:
    """Return an item's id: prefix of its kind, its response's id without the prefix, position."""
    return f"{kind}_{token}_{number}"


def response_named(name: str) -> str | None:
    """Return the id of an item's response; None if it isn't ours or belongs to a command."""
    match = NAME.fullmatch(name)
    return f"resp_{match['token']}" if match and not match["ours"] else None


def refers_to_command(item: Mapping[str, Any]) -> bool:
    match = NAME.fullmatch(str(item.get("id")))
    return _is_reference(item) and match is not None and match["ours"] is not None


def _is_reference(item: Mapping[str, Any]) -> bool:
    return item.get("type", TYPE) == TYPE and isinstance(item.get("id"), str)


def references(message: Message) -> Iterator[str]:
    return (item["id"] for item in objects(message.get("items")) if _is_reference(item))


def held(name: str) -> Message:
    """Return what stands for messages that only the upstream has."""
    return {"role": "assistant", "content": "", "items": [{"type": TYPE, "id": name}]}


Answers = Mapping[str, tuple[str, Message]]
"""Id of an item → the completion that has it, and its reply."""


def resolved(messages: Sequence[Message], answers: Answers) -> list[Message]:
    """Replace references by the answers that they refer to.

    A message that also refers to an unknown item, or says something else, stays unchanged.
    """
    history: list[Message] = []
    for message in messages:
        names = [*references(message)]
        replies = dict(answers[name] for name in names if name in answers)
        whole = all(name in answers for name in names) and _is_part_of(message, [*replies.values()])
        history += replies.values() if names and whole else [message]
    return history


def _is_part_of(message: Message, replies: Sequence[Message]) -> bool:
    """True if replies hold what a message says itself."""
    calls = [call.get("id") for reply in replies for call in objects(reply.get("tool_calls"))]
    return (
        text_of(message).strip() in "\n".join(map(text_of, replies))
        and all(call.get("id") in calls for call in objects(message.get("tool_calls")))
        and all(_is_reference(item) for item in objects(message.get("items")))
    )


STREAMED_NAME = re.compile(
    rb'"item_id"\s*:\s*"([^"\\]+)"|"item"\s*:\s*\{(?:[^{}\[\]]*,)?\s*"id"\s*:\s*"([^"\\]+)"'
)


def streamed_names(body: bytes) -> list[str]:
    """Return the ids of the items in the events of a stream."""
    names = dict.fromkeys(first or second for first, second in STREAMED_NAME.findall(body))
    return [name.decode("utf-8", "replace") for name in names]
