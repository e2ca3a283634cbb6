"""Answers that consist of choices, as chat and text completions have them, put together from their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from burnish.proxy.surfaces import bodies
from burnish.proxy.surfaces.base import Reply
from burnish.proxy.surfaces.decoding import Undecodable, decode
from burnish.proxy.surfaces.lenient import as_text, loads, storable
from burnish.proxy.surfaces.merging import ChoiceMerger
from burnish.proxy.surfaces.sse import SseParser, plain_data

DONE = "[DONE]"
BYTES_DONE = DONE.encode()

AsChat = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns a choice, or a piece of one, into what a chat completion has."""


def reassemble(
    chunks: Sequence[bytes], content_type: str, content_encoding: str, as_chat: AsChat = lambda choice: choice
) -> Reply:
    """Put an answer together from the bytes of its body. Never raises: what is wrong stands in the reply."""
    try:
        body = decode(b"".join(chunks), content_encoding)
    except Undecodable as error:
        return Reply(error=str(error), readable=False)
    return _streamed(body, as_chat) if bodies.is_streamed(body, content_type) else _whole(body, as_chat)


def _whole(body: bytes, as_chat: AsChat) -> Reply:
    try:
        parsed = loads(body)
    except ValueError:
        return Reply(error=as_text(body), readable=not body)
    if not isinstance(parsed, dict):
        return Reply(error=as_text(body), readable=False)
    merger = ChoiceMerger()
    for choice in map(as_chat, _choices(parsed)):
        merger.whole(choice)
    error = as_text(body) if bodies.error_in(parsed) else None
    return _reply(merger, parsed.get("id"), parsed.get("usage"), error, ended=True)


def _streamed(body: bytes, as_chat: AsChat) -> Reply:
    chunks, ended = _plain_chunks(body) or _chunks(body)
    merger = ChoiceMerger()
    response_id = usage = error = None
    for chunk, event_error in chunks:
        response_id = response_id or chunk.get("id")
        usage = chunk.get("usage") or usage
        error = error or bodies.error_in(chunk) or event_error
        for choice in map(as_chat, _choices(chunk)):
            merger.delta(choice)
    return _reply(merger, response_id, usage, error, ended=(ended or merger.finished) and error is None)


Chunks = list[tuple[dict[str, Any], str | None]]
"""The objects of a stream; with an event that is named an error, its text."""


def _plain_chunks(body: bytes) -> tuple[Chunks, bool] | None:
    """Return the chunks of a stream in its usual form, and whether it ended well; None for any other.

    All of them are parsed as one array: a parser for each costs more than the parsing.
    """
    data = plain_data(body)
    if data is None or BYTES_DONE not in data:
        return None
    data = data[: data.index(BYTES_DONE)]
    try:
        chunks = orjson.loads(b"[" + b",".join(data) + b"]")
    except orjson.JSONDecodeError:
        return None
    whole = len(chunks) == len(data) and all(isinstance(chunk, dict) for chunk in chunks)
    return ([(chunk, None) for chunk in chunks], True) if whole else None


def _chunks(body: bytes) -> tuple[Chunks, bool]:
    """Return the chunks of a stream, as far as they can be read, and whether it ended well."""
    parser = SseParser()
    chunks: Chunks = []
    for event in [*parser.feed(body), *parser.close()]:
        if event.data.strip() == DONE:
            return chunks, True
        try:
            chunk = loads(event.data)
        except ValueError:
            continue  # the last event of a cut stream, or a server's small talk
        if isinstance(chunk, dict):
            chunks.append((chunk, event.data if event.name == "error" else None))
    return chunks, False


def _reply(merger: ChoiceMerger, response_id: Any, usage: Any, error: str | None, *, ended: bool) -> Reply:
    choices = [storable(choice) for choice in merger.choices()]
    first = choices[0] if choices else {}
    finish_reason = first.get("finish_reason")
    rich = len(choices) > 1 or bool(set(first) - {"index", "message", "finish_reason"})
    return Reply(
        message=first.get("message"),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=usage if isinstance(usage, dict) else None,
        choices=tuple(choices) if rich else (),
        ended=ended,
        error=error,
    )


def _choices(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choices = body.get("choices")
    return (
        (choice for choice in choices if isinstance(choice, dict)) if isinstance(choices, list) else iter(())
    )
