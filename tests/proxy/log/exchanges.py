"""Exchanges as the relay hands them to the log."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from burnish.proxy.ids import completion_id, passthrough_id
from burnish.proxy.log import Log
from burnish.proxy.records import Exchange, PassthroughFigures

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def answered(message: Message, *, response_id: str = "chatcmpl-1", finish: str = "stop") -> bytes:
    """A chat completion with this message."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return orjson.dumps({"id": response_id, "object": "chat.completion", "choices": [choice], "usage": usage})


def exchange(messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> Exchange:
    """One request and its answer; ``params`` go into the request, everything else into the record."""
    message = assistant(reply) if isinstance(reply, str) else reply
    params = changes.pop("params", {})
    facts: dict[str, Any] = {
        "completion_id": completion_id(),
        "surface": "chat",
        "started_at": time.time(),
        "first_byte_s": 0.1,
        "total_s": 0.2,
        "request_body": orjson.dumps({"model": "smollm2", "messages": messages, **params}),
        "status": 200,
        "content_type": "application/json",
        "content_encoding": "",
        "chunks": (answered(message, response_id=changes.pop("response_id", "chatcmpl-1")),),
        "outcome": "complete",
        "error": None,
        "upstream": "http://127.0.0.1:1",
        "model_asked": "smollm2",
        "model_served": "smollm2@v1",
        "adapter_version": 1,
        "caller": "local",
        "session": None,
    }
    return Exchange(**facts | changes)


def capture(log: Log, messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> str:
    """Capture an exchange and return its id."""
    made = exchange(messages, reply, **changes)
    log.capture(made)
    return made.completion_id


def pass_on(log: Log, path: str = "/v1/embeddings", **changes: Any) -> str:
    """Capture what was merely passed through and return its id."""
    figures = {"request_bytes": 20, "response_bytes": 3000, "prompt_tokens": 4, "completion_tokens": None}
    facts = {
        "completion_id": passthrough_id(),
        "surface": "",
        "request_body": b"",
        "chunks": (),
        "model_asked": "small",
        "passthrough": PassthroughFigures(method="POST", path=path, **figures),
    }
    made = exchange([], **facts | changes)
    log.capture(made)
    return made.completion_id


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[Log]:
    """A log on the disk."""
    log = Log.open(tmp_path / "log" / "log.sqlite3")
    try:
        yield log
    finally:
        log.close()
