"""Reassemble answers made of choices: chat and text completions, whole or from the deltas of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from burnish.proxy.surfaces.base import Reply, unread
from burnish.proxy.surfaces.deltas import MOST_CALLS, TOO_MANY_CALLS, Call, Calls, Deltas, plain, with_parts
from burnish.proxy.surfaces.ends import STOP_TYPE, choices_of, end_in
from burnish.proxy.surfaces.lenient import Json, TooMuch, as_text, error_in, loads_storable, objects, storable
from burnish.proxy.surfaces.sse import (
    DONE,
    JsonEvents,
    NotPlain,
    StreamEvent,
    is_streamed,
    plain_data,
    windows,
)

BYTES_DONE = DONE.encode()

Chunk = tuple[Json | None, str | None]
"""An object of a stream (None: its end), and the text of an ``error`` event."""
AsChat = Callable[[Json], Json]
"""Converts a choice, or a delta, into a chat completion's."""


def read_reply(body: bytes, content_type: str, as_chat: AsChat = lambda choice: choice) -> Reply:
    return _streamed(body, as_chat) if is_streamed(body, content_type) else _whole(body, as_chat)


def _whole(body: bytes, as_chat: AsChat) -> Reply:
    try:
        parsed = loads_storable(body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return unread(body)
    merger = ChoiceMerger()
    for choice in map(as_chat, choices_of(parsed)):
        merger.whole(choice)
    error = as_text(body) if error_in(parsed) else merger.error
    whole = not merger.in_pieces or merger.finished  # the first piece of a stream isn't an answer
    return _reply(merger, merger.choices(), parsed.get("id"), parsed.get("usage"), error, complete=whole)


def _streamed(body: bytes, as_chat: AsChat) -> Reply:
    try:
        return _merged(_plain_chunks(body), as_chat)
    except NotPlain:
        events = JsonEvents(body)
        reply = _merged(_chunks(events), as_chat)
        if events.damage is None:
            return reply
        return replace(reply, error=reply.error or events.damage, complete=False, readable=False)


def _merged(chunks: Iterable[Chunk], as_chat: AsChat) -> Reply:
    merger = ChoiceMerger()
    response_id = usage = error = None
    complete = False
    for chunk, event_error in chunks:
        if chunk is None:
            complete = True
            continue
        response_id = response_id or chunk.get("id")
        usage = chunk.get("usage") or usage or _timed(chunk.get("timings"))
        error = error or error_in(chunk) or event_error
        for choice in map(as_chat, choices_of(chunk)):
            merger.delta(choice)
    choices = [storable(choice) for choice in merger.choices()]
    ended = complete or merger.finished
    return _reply(merger, choices, response_id, usage, error or merger.error, complete=ended)


def _timed(timings: Any) -> Json | None:
    """Return the counts of llama.cpp, which also tells them in a stream that was to have no ``usage``."""
    names = ("cache_n", "prompt_n", "predicted_n")
    counts: list[Any] = [timings.get(name) for name in names] if isinstance(timings, dict) else []
    if not counts or not all(type(count) is int for count in counts):
        return None
    cached, read, made = counts
    return {"prompt_tokens": cached + read, "completion_tokens": made}


def _plain_chunks(body: bytes) -> Iterator[Chunk]:
    """Read the chunks of a stream in the usual form, which ends with ``[DONE]``. Raises NotPlain.

    Many chunks are parsed as one array, because a call per chunk costs more than the parsing.
    """
    for window in windows(body):
        payloads = plain_data(window)
        if payloads is None:
            raise NotPlain
        is_last = BYTES_DONE in payloads
        payloads = payloads[: payloads.index(BYTES_DONE)] if is_last else payloads
        try:
            chunks = orjson.loads(b"[" + b",".join(payloads) + b"]")
        except orjson.JSONDecodeError as error:
            raise NotPlain from error
        if len(chunks) != len(payloads) or not all(isinstance(chunk, dict) for chunk in chunks):
            raise NotPlain
        yield from ((chunk, None) for chunk in chunks)
        if is_last:
            yield None, None
            return
    raise NotPlain


def _chunks(events: Iterable[tuple[StreamEvent, Any]]) -> Iterator[Chunk]:
    """Read the chunks of any stream, as far as possible."""
    complete = False
    for event, payload in events:
        if complete:
            continue
        if event.data.strip() == DONE:
            complete = True
            yield None, None
        elif isinstance(payload, dict) or event.name == "error":
            yield payload if isinstance(payload, dict) else {}, event.data if event.name == "error" else None


def _reply(
    merger: ChoiceMerger,
    choices: list[Json],
    response_id: Any,
    usage: Any,
    error: str | None,
    *,
    complete: bool,
) -> Reply:
    first = choices[0] if choices else {}
    rich = len(choices) > 1 or bool(set(first) - {"index", "message", "finish_reason"})
    return Reply(
        message=first.get("message"),
        finish_reason=first.get("finish_reason"),
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=usage if isinstance(usage, dict) else None,
        choices=tuple(choices) if rich else (),
        complete=complete and error is None,
        error=error,
        own_end=merger.own_end is True,
    )


MOST_CHOICES = 1024
"""Eight times as many as OpenAI allows."""
MERGED_BY_HAND = frozenset({"role", "tool_calls", "function_call"})
NAMES = frozenset({"id", "type", "name", "format", "object", "index"})
"""Members of nested objects that some servers repeat with each piece."""


class Pieces(list[str]):
    """Pieces of a text; joining once at the end keeps long streams linear."""


class ChoiceMerger:
    """Collects the choices of an answer, by index."""

    def __init__(self) -> None:
        self._choices: dict[int, Json] = {}
        self._growing: dict[int, tuple[Deltas, Calls, Call]] = {}
        self._stop_types: dict[int, Any] = {}
        self.in_pieces = False
        """Whether any choice came as a piece of a stream."""
        self.error: str | None = None
        """Why a choice failed."""
        self.own_end: bool | None = None
        """As of ``Reply``; None: no choice ended."""

    @property
    def finished(self) -> bool:
        return bool(self._choices) and all(choice["finish_reason"] for choice in self._choices.values())

    def choices(self) -> list[Json]:
        """Return the choices with a message, by index."""
        replies = [self._choices[index] for index in sorted(self._choices) if self._choices[index]["message"]]
        return [self._joined(choice) if self._growing else choice for choice in replies]

    def whole(self, choice: Json) -> None:
        """Add a choice of an answer that wasn't streamed."""
        message = choice.get("message")
        if not isinstance(message, dict):
            self.in_pieces, message = "delta" in choice, choice.get("delta")
        calls = isinstance(message, dict) and message.get("tool_calls")
        if calls and len(objects(calls)) > MOST_CALLS:
            raise TooMuch(TOO_MANY_CALLS)
        merged = self._at(choice)
        if isinstance(message, dict):
            merged["message"] = said = {"role": "assistant", **message}
            if not isinstance(message.get("content"), str):
                merged["message"] = with_parts(plain(said))
            if calls:
                _without_indexes(calls)
        self._end(merged, choice)
        if isinstance(choice.get("logprobs"), dict):
            merged["logprobs"] = choice["logprobs"]

    def delta(self, choice: Json) -> None:
        self.in_pieces = True
        merged = self._at(choice)
        self._end(merged, choice)
        if isinstance(choice.get("logprobs"), dict):
            _extend(merged.setdefault("logprobs", {}), choice["logprobs"])
        growing = self._growing.get(merged["index"])
        if growing is None:
            growing = self._growing[merged["index"]] = Deltas(), Calls(), Call()
        deltas, calls, function = growing
        if delta := deltas.take(choice):
            _merge_message(merged["message"], delta)
            if pieces := objects(delta.get("tool_calls")):
                calls.take(pieces)
            if isinstance(delta.get("function_call"), dict):
                function.take({"function": delta["function_call"]})

    def _end(self, merged: Json, choice: Json) -> None:
        """Note what a choice says of its end."""
        if STOP_TYPE in choice:
            self._stop_types[merged["index"]] = choice[STOP_TYPE]
        stop_type = self._stop_types.get(merged["index"]) if self._stop_types else None
        reason, failure, own = end_in(choice, stop_type)
        if reason is not None:
            merged["finish_reason"] = reason
            self.own_end = own and self.own_end is not False
        self.error = self.error or failure

    def _at(self, choice: Json) -> Json:
        index = choice.get("index")
        index = index if isinstance(index, int) else 0
        merged = self._choices.get(index)
        if merged is None:
            if len(self._choices) == MOST_CHOICES:
                raise TooMuch(f"more than {MOST_CHOICES} choices in one answer")
            merged = self._choices[index] = {"index": index, "message": {}, "finish_reason": None}
        return merged

    def _joined(self, choice: Json) -> Json:
        joined: Json = _join(choice)
        _, calls, function = self._growing[choice["index"]]
        message = with_parts(joined["message"])
        if calls.all:
            message["tool_calls"] = [call.as_message() for call in calls.all]
        if function.name or function.begun:
            message["function_call"] = function.as_message()["function"]
        return joined


def _merge_message(message: Json, delta: Json) -> None:
    text = delta.get("content")
    if len(delta) == 1 and isinstance(text, str) and isinstance(pieces := message.get("content"), Pieces):
        pieces.append(text)  # the usual case
        return
    role = delta.get("role")
    message["role"] = role if isinstance(role, str) and role else message.get("role", "assistant")
    _extend(message, {key: piece for key, piece in delta.items() if key not in MERGED_BY_HAND})


def _extend(target: Json, piece: Json) -> None:
    """Append texts and lists, merge objects, replace other values. Names stay as they are."""
    for key, addition in piece.items():
        old = target.get(key)
        if isinstance(addition, str) and not (key in NAMES and old):
            if not isinstance(old, Pieces):
                target[key] = old = Pieces()
            old.append(addition)
        elif isinstance(addition, list) and isinstance(old, list) and not isinstance(old, Pieces):
            old.extend(addition)
        elif isinstance(addition, dict) and (old is None or isinstance(old, dict)):
            target[key] = old or {}
            _extend(target[key], addition)
        elif (addition or old is None) and not isinstance(addition, str):
            target[key] = addition


def _without_indexes(calls: Any) -> None:
    """Remove the indexes of calls, which only streams have."""
    for call in objects(calls):
        call.pop("index", None)


def _join(content: Any) -> Any:
    if isinstance(content, Pieces):
        return "".join(content)
    if isinstance(content, dict):
        return {key: _join(entry) for key, entry in content.items()}
    if isinstance(content, list):
        return [_join(entry) for entry in content]
    return content
