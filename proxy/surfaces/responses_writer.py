"""Write Responses: whole, and as the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from burnish.proxy.surfaces.ends import end_of
from burnish.proxy.surfaces.items import name_of
from burnish.proxy.surfaces.lenient import Json
from burnish.proxy.surfaces.writing import EVENTS, AnswerPiece, AnswerWriter, count_in, event, json_or_text

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Chat's finish reason of an incomplete answer → Responses'; an unknown one stays as it is."""
COMPLETED = ("whole", "stopped")
UNSET = (
    "error", "incomplete_details", "instructions", "max_output_tokens", "temperature", "top_p", "usage", "user",
)  # fmt: skip
"""Members of a response that are null at first."""


class Shape(NamedTuple):
    """How one kind of piece is written."""

    prefix: str
    """Of the item's id."""
    events: str
    """Name of the events that carry its text."""
    field: str
    """Member that holds the text."""
    part: Json | None = None
    """Its part of an item; None: a call."""


SHAPES = {
    "text": Shape(
        "msg", "output_text", "text", {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    ),
    "refusal": Shape("msg", "refusal", "refusal", {"type": "refusal", "refusal": ""}),
    "thought": Shape("rs", "reasoning_text", "text", {"type": "reasoning_text", "text": ""}),
    "call": Shape("fc", "function_call_arguments", "arguments"),
}
CUSTOM = Shape("ctc", "custom_tool_call_input", "input")


class Tool(NamedTuple):
    """A tool whose calls have another kind or name than the model was told."""

    name: str
    namespace: str | None = None
    custom: bool = False
    """A custom tool: it takes a text, which the model sends as the argument ``input``."""


class ResponseWriter(AnswerWriter):
    content_type = EVENTS

    def __init__(self, head: Json, completion_id: str, tools: Mapping[str, Tool] | None = None) -> None:
        """``head``: the response without output. ``tools``: those that the model knows by another name."""
        self.whole = head
        self._token = completion_id.partition("_")[2]
        self._tools = tools or {}
        self._items: list[Json] = []
        """The complete ones."""
        self._open: AnswerPiece | None = None
        """First piece of the current item."""
        self._shape = CUSTOM
        self._name = ""
        """Id of the current item."""
        self._texts: list[str] = []
        self._number = 0

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response=self.whole)
        yield self._event("response.in_progress", response=self.whole)

    def take(self, piece: AnswerPiece) -> Iterator[bytes]:
        if self._open is None or (self._open.kind, self._open.call) != (piece.kind, piece.call):
            yield from self._close()
            yield from self._start(piece)
        if piece.text:
            self._texts.append(piece.text)
            # The `input` can only be read from complete JSON.
            if self._shape is not CUSTOM:
                yield self._text_event("delta", delta=piece.text)

    def end(self, finish_reason: str | None, usage: Json | None) -> Iterator[bytes]:
        completed = finish_reason is None or end_of(finish_reason) in COMPLETED
        why = None if completed else INCOMPLETE.get(finish_reason or "", finish_reason)
        status = "incomplete" if why else "completed"
        yield from self._close(status)
        details = {"reason": why} if why else None
        yield self._last(status, incomplete_details=details, usage=_counts(usage) if usage else None)

    def fail(self, words: str) -> Iterator[bytes]:
        yield from self._close("incomplete")
        yield self._last("failed", error={"code": "server_error", "message": words})

    # -- one item ------------------------------------------------------------------------------------------------------

    def _start(self, piece: AnswerPiece) -> Iterator[bytes]:
        self._open = piece
        tool = self._tools.get(piece.call.name) if piece.call else None
        self._shape = CUSTOM if tool and tool.custom else SHAPES[piece.kind]
        self._name = name_of(self._shape.prefix, self._token, len(self._items))
        yield self._event("response.output_item.added", item=self._item(piece, None, "in_progress"))
        if part := self._shape.part:
            yield self._event("response.content_part.added", item_id=self._name, content_index=0, part=part)

    def _close(self, status: str = "completed") -> Iterator[bytes]:
        piece, shape, text = self._open, self._shape, "".join(self._texts)
        if piece is None:
            return
        if shape is CUSTOM:
            text = _input(text)
            yield self._text_event("delta", delta=text)
        yield self._text_event("done", **{shape.field: text})
        if shape.part:
            part = shape.part | {shape.field: text}
            yield self._event("response.content_part.done", item_id=self._name, content_index=0, part=part)
        item = self._item(piece, text, status)
        yield self._event("response.output_item.done", item=item)
        self._items.append(item)
        self._open = None
        self._texts.clear()

    def _text_event(self, stage: str, **members: Any) -> bytes:
        part = self._shape.part or {}
        place: Json = {"item_id": self._name} | ({"content_index": 0} if part else {})
        place |= {"logprobs": []} if "logprobs" in part else {}
        return self._event(f"response.{self._shape.events}.{stage}", **place, **members)

    def _item(self, piece: AnswerPiece, text: str | None, status: str) -> Json:
        """Return a piece's item, with its text or empty."""
        head, shape = {"id": self._name}, self._shape
        if piece.call:
            tool = self._tools.get(piece.call.name) or Tool(piece.call.name)
            kind = "custom_tool_call" if tool.custom else "function_call"
            identity = {"type": kind, "call_id": piece.call.id, "name": tool.name}
            space = {"namespace": tool.namespace} if tool.namespace else {}
            return head | identity | space | {shape.field: text or "", "status": status}
        content = [] if text is None else [{**(shape.part or {}), shape.field: text}]
        if piece.kind == "thought":
            return head | {"type": "reasoning", "summary": [], "content": content, "encrypted_content": None}
        return head | {"type": "message", "status": status, "role": "assistant", "content": content}

    # -- events --------------------------------------------------------------------------------------------------------

    def _last(self, status: str, **members: Any) -> bytes:
        self.whole = self.whole | {"status": status, "output": self._items, **members}
        return self._event(f"response.{status}", response=self.whole)

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        place = {} if "response" in members else {"output_index": len(self._items)}
        return event(kind, sequence_number=number, **place, **members)


def begun(response_id: str, model: str, previous: str | None) -> Json:
    return {
        **dict.fromkeys(UNSET),
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
    }


def _input(arguments: str) -> str:
    """Return the ``input`` of a custom tool's call; the arguments if they have none."""
    call_input = json_or_text(arguments)
    text = call_input.get("input") if isinstance(call_input, dict) else None
    return text if isinstance(text, str) else arguments


def _counts(usage: Json) -> Json:
    prompt, completion = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    thoughts = count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thoughts},
        "total_tokens": prompt + completion,
    }
