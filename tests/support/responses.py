"""Responses as OpenAI's servers answer them: whole, and as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

Item = dict[str, Any]

TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
"""Type of a part → its member that arrives in pieces."""
WHOLE = {"function_call": ("function_call_arguments", "arguments")}
WHOLE["custom_tool_call"] = ("custom_tool_call_input", "input")


def part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message(*texts: str, name: str = "msg_1") -> Item:
    content = [part(text) for text in texts]
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": content}


def refusal(text: str) -> Item:
    return {**message(), "content": [{"type": "refusal", "refusal": text}]}


def reasoning(*summary: str, encrypted: str | None = None, name: str = "rs_1") -> Item:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": name, "type": "reasoning", "summary": parts, "encrypted_content": encrypted}


def call(name: str, arguments: str = "{}", call_id: str = "call_1") -> Item:
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def response(*output: Item, response_id: str = "resp_1", **more: Any) -> Item:
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "mock",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
        **more,
    }


def events(whole: Item, piece: int = 4) -> list[bytes]:
    """The events of a response's stream, texts in pieces of so many characters."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    told: list[tuple[str, Item]] = []
    told += [(f"response.{kind}", {"response": begun}) for kind in ("created", "in_progress")]
    for index, item in enumerate(whole["output"]):
        told += [(kind, {"output_index": index, **more}) for kind, more in _of_item(item, piece)]
    last = whole["status"] if whole["status"] in ("incomplete", "failed") else "completed"
    told.append((f"response.{last}", {"response": whole}))
    return [sse(kind, {"sequence_number": number, **more}) for number, (kind, more) in enumerate(told)]


def sse(kind: str, data: Item) -> bytes:
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind, **data}) + b"\n\n"


def _of_item(item: Item, piece: int) -> Iterator[tuple[str, Item]]:
    empty = {key: [] if key in ("content", "summary") else value for key, value in item.items()}
    empty |= {field: "" for _, field in [WHOLE.get(item["type"], ("", ""))] if field}
    yield "response.output_item.added", {"item": empty}
    place = {"item_id": item.get("id")}
    if item["type"] in WHOLE:
        kind, field = WHOLE[item["type"]]
        yield from _of_text(f"response.{kind}", field, item[field], place, piece)
    for index, each in enumerate(item.get("summary") or ()):
        at = {**place, "summary_index": index}
        yield "response.reasoning_summary_part.added", {**at, "part": {**each, "text": ""}}
        yield from _of_text("response.reasoning_summary_text", "text", each["text"], at, piece)
        yield "response.reasoning_summary_part.done", {**at, "part": each}
    for index, each in enumerate(item.get("content") or ()):
        at = {**place, "content_index": index}
        field = TEXTS[each["type"]]
        yield "response.content_part.added", {**at, "part": {**each, field: ""}}
        yield from _of_text(f"response.{each['type']}", field, each[field], at, piece)
        yield "response.content_part.done", {**at, "part": each}
    yield "response.output_item.done", {"item": item}


def _of_text(kind: str, field: str, text: str, at: Item, piece: int) -> Iterator[tuple[str, Item]]:
    more = {"logprobs": []} if kind == "response.output_text" else {}
    for start in range(0, len(text), piece):
        yield f"{kind}.delta", {**at, "delta": text[start : start + piece], **more}
    yield f"{kind}.done", {**at, field: text, **more}
