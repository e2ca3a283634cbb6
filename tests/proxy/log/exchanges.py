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
from burnish.proxy.records import Completion, Passthrough
from tests.support.records import PLAIN, changed

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


def exchange(messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> Completion:
    """One request and its answer; ``params`` go into the request, everything else into the record."""
    message = assistant(reply) if isinstance(reply, str) else reply
    params = changes.pop("params", {})
    facts: dict[str, Any] = {
        "id": completion_id(),
        "created_at": time.time(),
        "request_body": orjson.dumps({"model": "smollm2", "messages": messages, **params}),
        "content_type": "application/json",
        "chunks": (answered(message, response_id=changes.pop("response_id", "chatcmpl-1")),),
    }
    return changed(PLAIN, **facts | changes)


def capture(log: Log, messages: list[Message], reply: str | Message = "Hello!", **changes: Any) -> str:
    """Capture an exchange and return its id."""
    made = exchange(messages, reply, **changes)
    log.capture(made)
    return made.id


def pass_on(log: Log, path: str = "/v1/embeddings", **changes: Any) -> str:
    """Capture a passthrough and return its id."""
    facts: dict[str, Any] = {
        "id": passthrough_id(), "created_at": time.time(), "method": "POST", "path": path, "model": "small",
        "upstream": "http://127.0.0.1:1", "status": 200, "outcome": "complete", "error": None, "caller": "local",
        "session": None, "request_bytes": 20, "response_bytes": 3000, "prompt_tokens": 4,
        "completion_tokens": None, "first_byte_s": 0.1, "total_s": 0.2,
    }  # fmt: skip
    made = Passthrough(**facts | changes)
    log.capture(made)
    return made.id


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[Log]:
    """A log on the disk."""
    log = Log.open(tmp_path / "log" / "log.sqlite3")
    try:
        yield log
    finally:
        log.close()
