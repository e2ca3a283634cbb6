"""Our own answers in the Responses format, and ids that say which response they stood on.

A client that lets the server hold its history names the answer before. That may be one of ours, which the upstream does
not know; its id tells the upstream's, so that nothing has to be remembered here.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from typing import Any

import orjson

OURS = "resp_rl_"


def our_id(completion_id: str, previous: str | None) -> str:
    """Return the id of an answer of ours that stands on a response, or on none."""
    token = base64.urlsafe_b64encode((previous or "").encode()).decode().rstrip("=")
    return f"{OURS}{completion_id.removeprefix('cmpl_')}_{token}"


def is_ours(response_id: str) -> bool:
    """Whether an id is that of an answer of ours."""
    return response_id.startswith(OURS)


def stood_on(our_id: str) -> str | None:
    """Return the id of the response that an answer of ours stood on, None for none (or an id that says none)."""
    token = our_id.removeprefix(OURS).partition("_")[2]
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode() or None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def answer(text: str, completion_id: str, model: str, previous: str | None) -> dict[str, Any]:
    """Return a whole response that says a text."""
    message = _message(completion_id, "completed", [_part(text)])
    return _response(completion_id, model, previous) | {
        "status": "completed",
        "output": [message],
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
    }


def answer_events(text: str, completion_id: str, model: str, previous: str | None) -> Iterator[bytes]:
    """Say the same as a stream."""
    begun = _response(completion_id, model, previous)
    whole = answer(text, completion_id, model, previous)
    item = {"output_index": 0}
    part = {"item_id": whole["output"][0]["id"], **item, "content_index": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        ("response.output_item.added", {**item, "item": _message(completion_id, "in_progress", [])}),
        ("response.content_part.added", {**part, "part": _part("")}),
        ("response.output_text.delta", {**part, "delta": text, "logprobs": []}),
        ("response.output_text.done", {**part, "text": text, "logprobs": []}),
        ("response.content_part.done", {**part, "part": _part(text)}),
        ("response.output_item.done", {**item, "item": whole["output"][0]}),
        ("response.completed", {"response": whole}),
    ]
    for number, (kind, said) in enumerate(events):
        data = orjson.dumps({"type": kind, "sequence_number": number, **said})
        yield b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _response(completion_id: str, model: str, previous: str | None) -> dict[str, Any]:
    return {
        "id": our_id(completion_id, previous),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }


def _message(completion_id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    name = completion_id.removeprefix("cmpl_")
    return {
        "id": f"msg_rl_{name}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
