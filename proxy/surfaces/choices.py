"""Reassemble answers made of choices: chat and text completions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from burnish.proxy.surfaces.base import Reply, decoded_reply
from burnish.proxy.surfaces.lenient import as_text, error_in, loads, storable
from burnish.proxy.surfaces.merging import ChoiceMerger
from burnish.proxy.surfaces.sse import DONE, Event, JsonEvents, is_streamed, plain_data, windows

BYTES_DONE = DONE.encode()

Chunk = tuple[dict[str, Any] | None, str | None]
"""An object of a stream (None: its end), and the text of an ``error`` event."""
AsChat = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a choice, or a delta, into a chat completion's."""


def reassemble(
    chunks: Sequence[bytes], content_type: str, content_encoding: str, as_chat: AsChat = lambda choice: choice
) -> Reply:
    def read(body: bytes) -> Reply:
        return _streamed(body, as_chat) if is_streamed(body, content_type) else _whole(body, as_chat)

    return decoded_reply(read, chunks, content_encoding)


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
    error = as_text(body) if error_in(parsed) else None
    return _reply(merger, parsed.get("id"), parsed.get("usage"), error, ended=True)


def _streamed(body: bytes, as_chat: AsChat) -> Reply:
    try:
        return _merged(_plain_chunks(body), as_chat)
    except _NotPlain:
        events = JsonEvents(body)
        reply = _merged(_chunks(events), as_chat)
        if events.damage is None:
            return reply
        return replace(reply, error=reply.error or events.damage, ended=False, readable=False)


def _merged(chunks: Iterable[Chunk], as_chat: AsChat) -> Reply:
    merger = ChoiceMerger()
    response_id = usage = error = None
    ended = False
    for chunk, event_error in chunks:
        if chunk is None:
            ended = True
            continue
        response_id = response_id or chunk.get("id")
        usage = chunk.get("usage") or usage
        error = error or error_in(chunk) or event_error
        for choice in map(as_chat, _choices(chunk)):
            merger.delta(choice)
    return _reply(merger, response_id, usage, error, ended=(ended or merger.finished) and error is None)


class _NotPlain(ValueError):
    """The stream isn't in the usual form."""


def _plain_chunks(body: bytes) -> Iterator[Chunk]:
    """Read the chunks of a stream in the usual form, which ends with ``[DONE]``. Raises _NotPlain.

    Many chunks are parsed as one array, because a call per chunk costs more than the parsing.
    """
    for window in windows(body):
        data = plain_data(window)
        if data is None:
            raise _NotPlain
        ended = BYTES_DONE in data
        data = data[: data.index(BYTES_DONE)] if ended else data
        try:
            chunks = orjson.loads(b"[" + b",".join(data) + b"]")
        except orjson.JSONDecodeError as error:
            raise _NotPlain from error
        if len(chunks) != len(data) or not all(isinstance(chunk, dict) for chunk in chunks):
            raise _NotPlain
        yield from ((chunk, None) for chunk in chunks)
        if ended:
            yield None, None
            return
    raise _NotPlain


def _chunks(events: Iterable[tuple[Event, Any]]) -> Iterator[Chunk]:
    """Read the chunks of any stream, as far as possible."""
    ended = False
    for event, data in events:
        if ended:
            continue
        if event.data.strip() == DONE:
            ended = True
            yield None, None
        elif isinstance(data, dict) or event.name == "error":
            yield data if isinstance(data, dict) else {}, event.data if event.name == "error" else None


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
