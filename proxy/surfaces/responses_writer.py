"""Write Responses: whole, and as the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from burnish.proxy.surfaces.items import name_of
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import EVENTS, Call, Piece, Writer, count_in, event

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Chat's finish reason of an incomplete answer → Responses'."""
TEXT_PARTS: Mapping[str, Json] = {
    "text": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "refusal": {"type": "refusal", "refusal": ""},
    "thought": {"type": "reasoning_text", "text": ""},
}
"""Kind of a piece → its part of an item."""


class Tool(NamedTuple):
    """A tool whose calls have another kind or name than the model was told."""

    name: str
    namespace: str | None = None
    custom: bool = False
    """A custom tool: it takes a text, which the model sends as the argument ``input``."""


class ResponseWriter(Writer):
    content_type = EVENTS

    def __init__(self, head: Json, completion_id: str, tools: Mapping[str, Tool] | None = None) -> None:
        """``head``: the response without output. ``tools``: those that the model knows by another name."""
        self.whole = head
        self._token = completion_id.partition("_")[2]
        self._tools = tools or {}
        self._items: list[Json] = []
        """The complete ones."""
        self._open: Piece | None = None
        """First piece of the current item."""
        self._texts: list[str] = []
        self._number = 0

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response=self.whole)
        yield self._event("response.in_progress", response=self.whole)

    def take(self, piece: Piece) -> Iterator[bytes]:
        if self._open is None or (self._open.kind, self._open.call) != (piece.kind, piece.call):
            yield from self._close()
            self._open = piece
            yield from self._start(piece)
        if piece.text:
            self._texts.append(piece.text)
            # The `input` can only be read from complete JSON.
            if not self._is_custom(piece.call):
                yield self._delta(piece, piece.text)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        why = INCOMPLETE.get(finish_reason or "")
        status = "incomplete" if why else "completed"
        yield from self._close(status)
        details = {"reason": why} if why else None
        yield self._last(status, incomplete_details=details, usage=_counts(usage) if usage else None)

    def fail(self, words: str) -> Iterator[bytes]:
        yield from self._close("incomplete")
        yield self._last("failed", error={"code": "server_error", "message": words})

    # -- one item ------------------------------------------------------------------------------------------------------

    def _start(self, piece: Piece) -> Iterator[bytes]:
        yield self._event("response.output_item.added", item=self._item(piece, None, "in_progress"))
        if piece.call is None:
            part = TEXT_PARTS[piece.kind]
            yield self._event("response.content_part.added", **self._place(), content_index=0, part=part)

    def _delta(self, piece: Piece, text: str) -> bytes:
        return self._event(f"{self._event_names(piece)}.delta", **self._text_place(piece), delta=text)

    def _close(self, status: str = "completed") -> Iterator[bytes]:
        piece, text = self._open, "".join(self._texts)
        if piece is None:
            return
        if self._is_custom(piece.call):
            text = _input(text)
            yield self._delta(piece, text)
        item = self._item(piece, text, status)
        part = item.get("content", [{}])[0]
        field = "arguments" if piece.call else "refusal" if piece.kind == "refusal" else "text"
        done = {"input" if self._is_custom(piece.call) else field: text}
        yield self._event(f"{self._event_names(piece)}.done", **self._text_place(piece), **done)
        if piece.call is None:
            yield self._event("response.content_part.done", **self._place(), content_index=0, part=part)
        yield self._event("response.output_item.done", item=item)
        self._items.append(item)
        self._open = None
        self._texts.clear()

    def _event_names(self, piece: Piece) -> str:
        """Return the names of the events that carry a text."""
        if piece.call:
            custom = self._is_custom(piece.call)
            return "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        return f"response.{TEXT_PARTS[piece.kind]['type']}"

    def _text_place(self, piece: Piece) -> Json:
        if piece.call:
            return self._place()
        return {**self._place(), "content_index": 0} | ({"logprobs": []} if piece.kind == "text" else {})

    def _place(self) -> Json:
        return {"item_id": self._name()}

    def _name(self) -> str:
        assert self._open is not None
        if self._open.call:
            kind = "ctc" if self._is_custom(self._open.call) else "fc"
        else:
            kind = "rs" if self._open.kind == "thought" else "msg"
        return name_of(kind, self._token, len(self._items))

    def _item(self, piece: Piece, text: str | None, status: str) -> Json:
        """Return a piece's item, with its text or empty."""
        head = {"id": self._name()}
        if piece.call:
            return head | self._call(piece.call, text or "") | {"status": status}
        part = TEXT_PARTS[piece.kind]
        field = "refusal" if piece.kind == "refusal" else "text"
        content = [] if text is None else [{**part, field: text}]
        if piece.kind == "thought":
            return head | {"type": "reasoning", "summary": [], "content": content, "encrypted_content": None}
        return head | {"type": "message", "status": status, "role": "assistant", "content": content}

    def _call(self, call: Call, text: str) -> Json:
        tool = self._tools.get(call.name) or Tool(call.name)
        named = {"call_id": call.id, "name": tool.name}
        named |= {"namespace": tool.namespace} if tool.namespace else {}
        if tool.custom:
            return {"type": "custom_tool_call", **named, "input": text}
        return {"type": "function_call", **named, "arguments": text}

    def _is_custom(self, call: Call | None) -> bool:
        tool = self._tools.get(call.name) if call else None
        return tool is not None and tool.custom

    # -- events --------------------------------------------------------------------------------------------------------

    def _last(self, status: str, **more: Any) -> bytes:
        self.whole = self.whole | {"status": status, "output": self._items, **more}
        return self._event(f"response.{status}", response=self.whole)

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        place = {} if "response" in members else {"output_index": len(self._items)}
        return event(kind, sequence_number=number, **place, **members)


def begun(response_id: str, model: str, previous: str | None) -> Json:
    """Return a response without output."""
    return {
        "id": response_id,
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


def _input(arguments: str) -> str:
    """Return the ``input`` of a custom tool's call; the arguments if they have none."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    text = given.get("input") if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def _counts(usage: Json) -> Json:
    prompt, answered = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": count_in(usage.get("prompt_tokens_details"), "cached_tokens"),
            "cache_write_tokens": 0,
        },
        "output_tokens": answered,
        "output_tokens_details": {
            "reasoning_tokens": count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
        },
        "total_tokens": prompt + answered,
    }
