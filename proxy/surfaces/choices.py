"""Reassemble answers made of choices: chat and text completions, whole or from the deltas of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from burnish.proxy.surfaces.base import Reply, unread
from burnish.proxy.surfaces.lenient import Json, as_text, error_in, object_in, objects, storable
from burnish.proxy.surfaces.sse import DONE, Event, JsonEvents, is_streamed, plain_data, windows

BYTES_DONE = DONE.encode()

Chunk = tuple[Json | None, str | None]
"""An object of a stream (None: its end), and the text of an ``error`` event."""
AsChat = Callable[[Json], Json]
"""Converts a choice, or a delta, into a chat completion's."""


def read_reply(body: bytes, content_type: str, as_chat: AsChat = lambda choice: choice) -> Reply:
    return _streamed(body, as_chat) if is_streamed(body, content_type) else _whole(body, as_chat)


def _whole(body: bytes, as_chat: AsChat) -> Reply:
    parsed = object_in(body)
    if parsed is None:
        return unread(body)
    merger = ChoiceMerger()
    for choice in map(as_chat, objects(parsed.get("choices"))):
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
        for choice in map(as_chat, objects(chunk.get("choices"))):
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


CALL_TEXTS = {"function": "arguments", "custom": "input"}
"""Kind of tool call → its member that arrives in pieces."""

MERGED_BY_HAND = frozenset({"role", "tool_calls", "function_call"})


class Pieces(list[str]):
    """Pieces of a text; joining once at the end keeps long streams linear."""


class ChoiceMerger:
    """Collects the choices of an answer, by index."""

    def __init__(self) -> None:
        self._choices: dict[int, Json] = {}
        self._in_pieces = False

    @property
    def finished(self) -> bool:
        return bool(self._choices) and all(choice["finish_reason"] for choice in self._choices.values())

    def choices(self) -> list[Json]:
        """Return the choices with a message, by index."""
        replies = [self._choices[index] for index in sorted(self._choices) if self._choices[index]["message"]]
        return [_without_indexes(_join(choice) if self._in_pieces else choice) for choice in replies]

    def whole(self, choice: Json) -> None:
        """Add a choice of an answer that wasn't streamed."""
        message = choice.get("message")
        merged = self._at(choice)
        merged["message"] = {"role": "assistant", **message} if isinstance(message, dict) else {}
        merged["finish_reason"] = choice.get("finish_reason")
        if isinstance(choice.get("logprobs"), dict):
            merged["logprobs"] = choice["logprobs"]

    def delta(self, choice: Json) -> None:
        self._in_pieces = True
        merged = self._at(choice)
        merged["finish_reason"] = choice.get("finish_reason") or merged["finish_reason"]
        if isinstance(choice.get("logprobs"), dict):
            _extend(merged.setdefault("logprobs", {}), choice["logprobs"])
        delta = choice.get("delta")
        if isinstance(delta, dict) and delta:
            _merge_message(merged["message"], delta)

    def _at(self, choice: Json) -> Json:
        index = choice.get("index")
        index = index if isinstance(index, int) else 0
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = {"index": index, "message": {}, "finish_reason": None}
        return found


def _merge_message(message: Json, delta: Json) -> None:
    text = delta.get("content")
    if len(delta) == 1 and isinstance(text, str) and isinstance(pieces := message.get("content"), Pieces):
        pieces.append(text)  # the usual case
        return
    role = delta.get("role")
    message["role"] = role if isinstance(role, str) and role else message.get("role", "assistant")
    for call in objects(delta.get("tool_calls")):
        _merge_call(message.setdefault("tool_calls", []), call)
    function_call = delta.get("function_call")
    if isinstance(function_call, dict):
        _merge_function(message.setdefault("function_call", {}), function_call, "arguments")
    _extend(message, {key: value for key, value in delta.items() if key not in MERGED_BY_HAND})


def _extend(target: Json, piece: Json) -> None:
    """Append texts and lists, merge objects, replace other values."""
    for key, value in piece.items():
        old = target.get(key)
        if isinstance(value, str):
            if not isinstance(old, Pieces):
                target[key] = old = Pieces()
            old.append(value)
        elif isinstance(value, list) and isinstance(old, list) and not isinstance(old, Pieces):
            old.extend(value)
        elif isinstance(value, dict) and isinstance(old, dict):
            _extend(old, value)
        elif value or old is None:
            target[key] = value


def _merge_call(calls: list[Json], piece: Json) -> None:
    call = call_of(calls, piece)
    if call is None:
        call = {"id": None, "type": "function", "index": piece.get("index")}
        calls.append(call)
    call["id"] = call["id"] or piece.get("id")
    if isinstance(piece.get("type"), str) and piece["type"]:
        call["type"] = piece["type"]
    for kind, text in CALL_TEXTS.items():
        if isinstance(piece.get(kind), dict):
            _merge_function(call.setdefault(kind, {}), piece[kind], text)


def call_of(calls: list[Json], piece: Json) -> Json | None:
    """Find the call that a piece continues: by index, else by id, else the latest.

    Some servers give all calls the index 0, or none, and distinguish them by id only.
    """
    index, identity = piece.get("index"), piece.get("id")
    same = [call for call in calls if index is None or call["index"] == index]
    if not same:
        return None
    if identity and (known := [call for call in same if call["id"] == identity]):
        return known[-1]
    return None if identity and same[-1]["id"] else same[-1]


def _merge_function(function: Json, piece: Json, text: str) -> None:
    function["name"] = function.get("name") or piece.get("name")
    value = piece.get(text)
    if isinstance(value, (dict, list)):
        function[text] = value  # against the format, but some servers send it
        return
    if not isinstance(function.get(text), Pieces):
        function[text] = Pieces()
    if isinstance(value, str):
        function[text].append(value)


def _without_indexes(choice: Json) -> Json:
    """Remove the indexes of calls, which only streams have."""
    for call in objects(choice["message"].get("tool_calls")):
        call.pop("index", None)
    return choice


def _join(value: Any) -> Any:
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: _join(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_join(entry) for entry in value]
    return value
