"""Anthropic's content blocks, said as OpenAI chat messages: the one form that the log and training know.

Requests and answers go the same way, so that a reply that a client sends back is the one that was logged. Nothing here
raises: blocks of kinds that nobody knows yet stay what they are.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

Block = dict[str, Any]
Item = dict[str, Any]
"""One of a request's ``messages``."""

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""How Claude Code begins its system prompts. It holds a hash of the request: no two prompts would be alike."""

TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def blocks(content: Any) -> list[Block]:
    """Return the blocks of a content, which may be a plain text. What says no kind is none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    found = content if isinstance(content, list) else ()
    return [block for block in found if isinstance(block, dict) and isinstance(block.get("type"), str)]


def turns(item: Item) -> list[list[Block]]:
    """Split an item into what are messages of their own: each result of a tool, and what stands between them."""
    if item["role"] != "user":
        return [blocks(item["content"])]
    found: list[list[Block]] = []
    for block in blocks(item["content"]):
        if found and not _is_result(block) and not _is_result(found[-1][0]):
            found[-1].append(block)
        else:
            found.append([block])
    return found or [[]]


def messages(item: Item) -> list[dict[str, Any]]:
    """Return the chat messages that an item says, one for each of its turns."""
    if item["role"] == "assistant":
        return [reply(blocks(item["content"]))]
    return [
        _result(turn[0])
        if turn and _is_result(turn[0])
        else {"role": item["role"], "content": _content(turn)}
        for turn in turns(item)
    ]


def reply(said: list[Block]) -> dict[str, Any]:
    """Return the assistant's message that some blocks say.

    Thoughts are the message's reasoning. Encrypted ones are left out, and signatures: they say nothing to anybody here.
    """
    thoughts = [str(block.get("thinking") or "") for block in said if block.get("type") == "thinking"]
    calls = [_call(block) for block in said if block.get("type") == "tool_use"]
    parts = [_part(block) for block in said if block.get("type") not in APART]
    plain = all(map(_is_plain, parts))
    message: dict[str, Any] = {"role": "assistant"}
    # A server cuts its text where it likes (at a citation, at a thought): the blocks are one text.
    message["content"] = "".join(part["text"] for part in parts) if plain else parts
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return message


APART = ("thinking", "redacted_thinking", "tool_use")
"""Kinds of blocks that are no parts of a chat message's content."""


def system(content: Any) -> dict[str, Any] | None:
    """Return the system message; None when nothing is said in it."""
    told = [{**block, "text": BILLING.sub("", block["text"])} for block in blocks(content)]
    said = _content([block for block in told if block["text"]])
    return {"role": "system", "content": said} if said else None


def settings(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with those in chat's form that training asks an engine with, or renders."""
    said = dict(params)
    if isinstance(tools := said.get("tools"), list):
        said["tools"] = [_tool(tool) for tool in tools]
    if isinstance(choice := said.get("tool_choice"), dict):
        said["tool_choice"] = _tool_choice(choice)
        if choice.get("disable_parallel_tool_use") is True:
            said["parallel_tool_calls"] = False
    if "stop_sequences" in said:
        said["stop"] = said.pop("stop_sequences")
    return said


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or "input_schema" not in tool:
        return tool  # one that Anthropic runs itself
    described = {"description": tool["description"]} if "description" in tool else {}
    function = {"name": tool.get("name"), **described, "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _tool_choice(choice: dict[str, Any]) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return TOOL_CHOICES.get(str(choice.get("type")), choice)


def _is_result(block: Block) -> bool:
    return block.get("type") == "tool_result"


def _result(block: Block) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": _content(blocks(block.get("content"))),
    }


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": _arguments(block.get("input"))}
    return {"id": block.get("id"), "type": "function", "function": function}


def _arguments(value: Any) -> str:
    """Return a call's input as JSON; a text is what the model began to write, and no JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value or {}).decode()
    except TypeError:  # a number beyond 64 bits
        return json.dumps(value, ensure_ascii=False)


def _content(said: list[Block]) -> Any:
    """Return the content that some blocks are: parts, or of a single text the text itself."""
    parts = [_part(block) for block in said]
    if len(parts) == 1 and _is_plain(parts[0]):
        return parts[0]["text"]
    return parts or ""


def _part(block: Block) -> dict[str, Any]:
    if block.get("type") == "image" and (url := _image_url(block.get("source"))):
        return {"type": "image_url", "image_url": {"url": url}}
    return {key: value for key, value in block.items() if key != "cache_control" and value not in (None, [])}


def _image_url(source: Any) -> str | None:
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return source["url"] if isinstance(source.get("url"), str) else None


def _is_plain(part: dict[str, Any]) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)
