"""Anthropic's content blocks → chat messages.

Requests and answers share this code, so the log recognises a reply that a client sends back. Nothing here raises:
unknown kinds of blocks stay unchanged.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from burnish.proxy.surfaces.lenient import Json, objects

Block = Json
RequestMessage = Json
"""An element of a request's ``messages``."""

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""First line of Claude Code's system prompts. It is cut from the message, because it holds a hash of the request."""

TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def blocks(content: Any) -> list[Block]:
    """Return the blocks of a content, which may be a plain text. Blocks without a type are skipped."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in objects(content) if isinstance(block.get("type"), str)]


def turns(message: RequestMessage) -> list[list[Block]]:
    """Split an item into messages: each tool result, and the blocks between them."""
    if message["role"] != "user":
        return [blocks(message["content"])]
    groups: list[list[Block]] = []
    for block in blocks(message["content"]):
        if groups and not _is_result(block) and not _is_result(groups[-1][0]):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups or [[]]


def messages(message: RequestMessage) -> list[Json]:
    if message["role"] == "assistant":
        return [reply(blocks(message["content"]))]
    return [
        _result(turn[0])
        if turn and _is_result(turn[0])
        else {"role": message["role"], "content": _content(turn)}
        for turn in turns(message)
    ]


def reply(content_blocks: list[Block]) -> Json:
    """Return the assistant's message. Encrypted thoughts and signatures are left out."""
    thoughts = [
        str(block.get("thinking") or "") for block in content_blocks if block.get("type") == "thinking"
    ]
    calls = [_call(block) for block in content_blocks if block.get("type") == "tool_use"]
    parts = [_part(block) for block in content_blocks if block.get("type") not in NOT_CONTENT]
    plain = all(map(_is_plain, parts))
    message: Json = {"role": "assistant"}
    # Servers split a text at citations and thoughts: the blocks are one text.
    message["content"] = "".join(part["text"] for part in parts) if plain else parts
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return message


NOT_CONTENT = ("thinking", "redacted_thinking", "tool_use")
"""Kinds of blocks that aren't part of a chat message's content."""


def billing(content: Any) -> Json:
    """Return the line that ``system`` cuts, as a parameter; {} if there is none."""
    lines = (BILLING.match(str(block.get("text"))) for block in blocks(content))
    return next(({"billing": line[0]} for line in lines if line), {})


def system(content: Any) -> Json | None:
    """Return the system message; None if it is empty."""
    cleaned = [{**block, "text": BILLING.sub("", block["text"])} for block in blocks(content)]
    prompt = _content([block for block in cleaned if block["text"]])
    return {"role": "system", "content": prompt} if prompt else None


def settings(params: Json) -> Json:
    """Return the parameters, with those that training uses in chat's form."""
    chat_params = dict(params)
    if isinstance(tools := chat_params.get("tools"), list):
        chat_params["tools"] = [_tool(tool) for tool in tools]
    if isinstance(choice := chat_params.get("tool_choice"), dict):
        chat_params["tool_choice"] = _tool_choice(choice)
        if choice.get("disable_parallel_tool_use") is True:
            chat_params["parallel_tool_calls"] = False
    if "stop_sequences" in chat_params:
        chat_params["stop"] = chat_params.pop("stop_sequences")
    return chat_params


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or "input_schema" not in tool:
        return tool  # Anthropic runs it
    described = {"description": tool["description"]} if "description" in tool else {}
    function = {"name": tool.get("name"), **described, "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _tool_choice(choice: Json) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return TOOL_CHOICES.get(str(choice.get("type")), choice)


def _is_result(block: Block) -> bool:
    return block.get("type") == "tool_result"


def _result(block: Block) -> Json:
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": _content(blocks(block.get("content"))),
    }


def _call(block: Block) -> Json:
    function = {"name": block.get("name"), "arguments": _arguments(block.get("input"))}
    return {"id": block.get("id"), "type": "function", "function": function}


def _arguments(call_input: Any) -> str:
    """Return a call's input as JSON. A text is input that was cut off, and stays."""
    if isinstance(call_input, str):
        return call_input
    try:
        return orjson.dumps(call_input or {}).decode()
    except TypeError:  # a number beyond 64 bits
        return json.dumps(call_input, ensure_ascii=False)


def _content(content_blocks: list[Block]) -> Any:
    """Return the content of blocks: a single text as a string, else parts."""
    parts = [_part(block) for block in content_blocks]
    if len(parts) == 1 and _is_plain(parts[0]):
        return parts[0]["text"]
    return parts or ""


def _part(block: Block) -> Json:
    if block.get("type") == "image" and (url := _image_url(block.get("source"))):
        return {"type": "image_url", "image_url": {"url": url}}
    return {key: field for key, field in block.items() if key != "cache_control" and field not in (None, [])}


def _image_url(source: Any) -> str | None:
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return source["url"] if isinstance(source.get("url"), str) else None


def _is_plain(part: Json) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)
