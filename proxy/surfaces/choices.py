"""Reassemble answers made of choices: chat and text completions, whole or from the deltas of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import orjson

from burnish.proxy.surfaces.base import Reply, unread
from burnish.proxy.surfaces.lenient import Json, TooMuch, as_text, error_in, loads_storable, objects, storable
from burnish.proxy.surfaces.sse import DONE, JsonEvents, StreamEvent, is_streamed, plain_data, windows

BYTES_DONE = DONE.encode()

Chunk = tuple[Json | None, str | None]
"""An object of a stream (None: its end), and the text of an ``error`` event."""
Call = TypeVar("Call")
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
    for choice in map(as_chat, objects(parsed.get("choices"))):
        merger.whole(choice)
    error = as_text(body) if error_in(parsed) else None
    return _reply(merger.choices(), parsed.get("id"), parsed.get("usage"), error, complete=True)


def _streamed(body: bytes, as_chat: AsChat) -> Reply:
    try:
        return _merged(_plain_chunks(body), as_chat)
    except _NotPlain:
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
        usage = chunk.get("usage") or usage
        error = error or error_in(chunk) or event_error
        for choice in map(as_chat, objects(chunk.get("choices"))):
            merger.delta(choice)
    choices = [storable(choice) for choice in merger.choices()]
    return _reply(
        choices, response_id, usage, error, complete=(complete or merger.finished) and error is None
    )


class _NotPlain(ValueError):
    """The stream isn't in the usual form."""


def _plain_chunks(body: bytes) -> Iterator[Chunk]:
    """Read the chunks of a stream in the usual form, which ends with ``[DONE]``. Raises _NotPlain.

    Many chunks are parsed as one array, because a call per chunk costs more than the parsing.
    """
    for window in windows(body):
        payloads = plain_data(window)
        if payloads is None:
            raise _NotPlain
        is_last = BYTES_DONE in payloads
        payloads = payloads[: payloads.index(BYTES_DONE)] if is_last else payloads
        try:
            chunks = orjson.loads(b"[" + b",".join(payloads) + b"]")
        except orjson.JSONDecodeError as error:
            raise _NotPlain from error
        if len(chunks) != len(payloads) or not all(isinstance(chunk, dict) for chunk in chunks):
            raise _NotPlain
        yield from ((chunk, None) for chunk in chunks)
        if is_last:
            yield None, None
            return
    raise _NotPlain


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


def _reply(choices: list[Json], response_id: Any, usage: Any, error: str | None, *, complete: bool) -> Reply:
    first = choices[0] if choices else {}
    finish_reason = first.get("finish_reason")
    rich = len(choices) > 1 or bool(set(first) - {"index", "message", "finish_reason"})
    return Reply(
        message=first.get("message"),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        response_id=response_id if isinstance(response_id, str) and response_id else None,
        usage=usage if isinstance(usage, dict) else None,
        choices=tuple(choices) if rich else (),
        complete=complete,
        error=error,
    )


CALL_TEXTS = {"function": "arguments", "custom": "input"}
"""Kind of tool call → its member that arrives in pieces."""

MOST_CALLS, MOST_CHOICES = 2048, 1024
"""Sixteen and eight times as many as OpenAI allows."""
TOO_MANY_CALLS = f"more than {MOST_CALLS} tool calls in one answer"
MERGED_BY_HAND = frozenset({"role", "tool_calls", "function_call"})


class Pieces(list[str]):
    """Pieces of a text; joining once at the end keeps long streams linear."""


class ChoiceMerger:
    """Collects the choices of an answer, by index."""

    def __init__(self) -> None:
        self._choices: dict[int, Json] = {}
        self._calls: dict[int, Calls[Json]] = {}
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
        calls = isinstance(message, dict) and message.get("tool_calls")
        if calls and len(objects(calls)) > MOST_CALLS:
            raise TooMuch(TOO_MANY_CALLS)
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
            if pieces := objects(delta.get("tool_calls")):
                calls = self._calls.setdefault(merged["index"], Calls())
                for piece in pieces:
                    _merge_call(calls.of(piece, _begun), piece)
                merged["message"]["tool_calls"] = calls.all

    def _at(self, choice: Json) -> Json:
        index = choice.get("index")
        index = index if isinstance(index, int) else 0
        merged = self._choices.get(index)
        if merged is None:
            if len(self._choices) == MOST_CHOICES:
                raise TooMuch(f"more than {MOST_CHOICES} choices in one answer")
            merged = self._choices[index] = {"index": index, "message": {}, "finish_reason": None}
        return merged


def _merge_message(message: Json, delta: Json) -> None:
    text = delta.get("content")
    if len(delta) == 1 and isinstance(text, str) and isinstance(pieces := message.get("content"), Pieces):
        pieces.append(text)  # the usual case
        return
    role = delta.get("role")
    message["role"] = role if isinstance(role, str) and role else message.get("role", "assistant")
    function_call = delta.get("function_call")
    if isinstance(function_call, dict):
        _merge_function(message.setdefault("function_call", {}), function_call, "arguments")
    _extend(message, {key: piece for key, piece in delta.items() if key not in MERGED_BY_HAND})


def _extend(target: Json, piece: Json) -> None:
    """Append texts and lists, merge objects, replace other values."""
    for key, addition in piece.items():
        old = target.get(key)
        if isinstance(addition, str):
            if not isinstance(old, Pieces):
                target[key] = old = Pieces()
            old.append(addition)
        elif isinstance(addition, list) and isinstance(old, list) and not isinstance(old, Pieces):
            old.extend(addition)
        elif isinstance(addition, dict) and isinstance(old, dict):
            _extend(old, addition)
        elif addition or old is None:
            target[key] = addition


class Calls(Generic[Call]):
    """The tool calls of an answer. Finds the one that a piece continues: by index, else by id, else the latest.

    Some servers give all calls the index 0, or none, and distinguish them by id only.
    """

    def __init__(self) -> None:
        self._latest: dict[Any, Call] = {}
        """By index (None: of all), and by index and id."""
        self._named: set[int] = set()
        """Calls with an id, by Python's ``id``."""
        self.all: list[Call] = []

    def of(self, piece: Json, begin: Callable[[Json], Call]) -> Call:
        """Return the call of a piece, which may be a new one. Raises TooMuch."""
        index, identity = _key(piece.get("index")), _key(piece.get("id"))
        call = self._found(index, identity)
        if call is None:
            if len(self.all) == MOST_CALLS:
                raise TooMuch(TOO_MANY_CALLS)
            call = begin(piece)
            self.all.append(call)
            self._latest[None] = self._latest[index] = call
        if identity:
            self._named.add(id(call))
            self._latest[None, identity] = self._latest[index, identity] = call
        return call

    def _found(self, index: Any, identity: Any) -> Call | None:
        latest = self._latest.get(index)
        if latest is None or not identity:
            return latest
        call = self._latest.get((index, identity))
        return call or (None if id(latest) in self._named else latest)


def _key(index_or_id: Any) -> Any:
    """Return an index or an id; None for what can't be one."""
    return index_or_id if isinstance(index_or_id, str | int | float) else None


def _begun(piece: Json) -> Json:
    return {"id": None, "type": "function", "index": piece.get("index")}


def _merge_call(call: Json, piece: Json) -> None:
    call["id"] = call["id"] or piece.get("id")
    if isinstance(piece.get("type"), str) and piece["type"]:
        call["type"] = piece["type"]
    for kind, text in CALL_TEXTS.items():
        if isinstance(piece.get(kind), dict):
            _merge_function(call.setdefault(kind, {}), piece[kind], text)


def _merge_function(function: Json, piece: Json, text: str) -> None:
    function["name"] = function.get("name") or piece.get("name")
    arguments = piece.get(text)
    if isinstance(arguments, (dict, list)):
        function[text] = arguments  # against the format, but some servers send it
        return
    if not isinstance(function.get(text), Pieces):
        function[text] = Pieces()
    if isinstance(arguments, str):
        function[text].append(arguments)


def _without_indexes(choice: Json) -> Json:
    """Remove the indexes of calls, which only streams have."""
    if calls := choice["message"].get("tool_calls"):
        for call in objects(calls):
            call.pop("index", None)
    return choice


def _join(content: Any) -> Any:
    if isinstance(content, Pieces):
        return "".join(content)
    if isinstance(content, dict):
        return {key: _join(entry) for key, entry in content.items()}
    if isinstance(content, list):
        return [_join(entry) for entry in content]
    return content
