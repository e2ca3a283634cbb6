"""One answer of a model in each format that burnish knows: whole, and as a server streams it.

An answer is written as a message of chat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from tests.support import anthropic_wire, chat_wire, responses
from tests.support.chat_wire import cut
from tests.support.upstream import Script, reply, stream

Json = dict[str, Any]
Wire = tuple[Json, list[bytes]]
"""A whole answer, and the same streamed."""
CHAT, OLLAMA = "/v1/chat/completions", "/api/chat"
OLLAMAS = (OLLAMA, "/api/generate")
PIECE = 5
"""Characters of a delta."""
USAGE = {
    "prompt_tokens": 17,
    "completion_tokens": 7,
    "total_tokens": 24,
    "prompt_tokens_details": {"cached_tokens": 10},
}
"""In every format."""


@dataclass(frozen=True)
class Says:
    """One answer: a text, or the call of a tool."""

    text: str = ""
    arguments: Json | None = None
    thought: str = ""
    tool: str = "look_up"
    namespace: str = ""
    """Of the tool; only Responses know such."""

    def message(self, number: int) -> Json:
        """The message of chat, which is the answer of this number."""
        thought = {"reasoning_content": self.thought} if self.thought else {}
        if self.arguments is None:
            return {**thought, "content": self.text}
        call = chat_wire.called(self.tool, self.arguments, f"call_{number}")
        call |= {"namespace": self.namespace} if self.namespace else {}
        return {**thought, "content": self.text or None, "tool_calls": [call]}


@dataclass(frozen=True)
class _Answer:
    said: Json
    finish: str
    number: int
    model: str
    size: int

    @property
    def thought(self) -> str:
        return self.said.get("reasoning_content") or ""

    @property
    def text(self) -> str:
        return self.said.get("content") or ""

    @property
    def calls(self) -> list[tuple[str, Json, str]]:
        """Name, arguments and ID of each call."""
        calls = [(call["function"], call["id"]) for call in self.said.get("tool_calls", ())]
        return [(made["name"], orjson.loads(made["arguments"]), call_id) for made, call_id in calls]

    def pieces(self, text: str) -> list[str]:
        return cut(text, self.size)


def _chat(answer: _Answer) -> Wire:
    more = {"id": f"chatcmpl-{answer.number}", "model": answer.model, "usage": USAGE}
    whole = chat_wire.whole(answer.said, answer.finish, **more)
    return whole, chat_wire.chunks(whole, answer.size)


def _completions(answer: _Answer) -> Wire:
    head = chat_wire.HEAD | {
        "object": "text_completion",
        "id": f"cmpl-{answer.number}",
        "model": answer.model,
    }

    def told(text: str, finish: str | None = None) -> Json:
        return head | {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}

    events = [*map(told, answer.pieces(answer.text)), told("", answer.finish)]
    events.append(head | {"choices": [], "usage": USAGE})
    whole = told(answer.text, answer.finish) | {"usage": USAGE}
    return whole, [*map(chat_wire.data, events), chat_wire.DONE]


def _responses(answer: _Answer) -> Wire:
    number = answer.number
    items = [responses.reasoning(answer.thought, name=f"rs_{number}")] if answer.thought else []
    items += [responses.message(answer.text, name=f"msg_{number}")] if answer.text else []
    for call in answer.said.get("tool_calls", ()):
        made = responses.call(call["function"]["name"], call["function"]["arguments"], call["id"])
        items.append(made | ({"namespace": call["namespace"]} if "namespace" in call else {}))
    usage = {
        **{"input_tokens": 17, "input_tokens_details": {"cached_tokens": 10}, "total_tokens": 24},
        **{"output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}},
    }
    short = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    more = {"model": answer.model, "usage": usage, **(short if answer.finish == "length" else {})}
    whole = responses.response(*items, response_id=f"resp_{number}", **more)
    return whole, responses.events(whole, answer.size)


def _messages(answer: _Answer) -> Wire:
    blocks = [anthropic_wire.thinking(answer.thought)] if answer.thought else []
    blocks += [anthropic_wire.text(answer.text)] if answer.text else []
    blocks += [anthropic_wire.tool_use(*call) for call in answer.calls]
    stop = {"tool_calls": "tool_use", "length": "max_tokens"}.get(answer.finish, "end_turn")
    more: Any = {"id": f"msg_{answer.number}", "stop_reason": stop, "model": answer.model}
    events = anthropic_wire.message_events(*blocks, **more, size=answer.size)
    return anthropic_wire.message(*blocks, **more), events


def _ollama(answer: _Answer, prompted: bool = False) -> Wire:
    reason = "length" if answer.finish == "length" else "stop"
    end = {"done": True, "done_reason": reason, "prompt_eval_count": 17, "eval_count": 7}
    calls = [{"function": {"name": name, "arguments": given}} for name, given, _ in answer.calls]
    called: Json = {"tool_calls": calls} if calls else {}
    thought = {"thinking": answer.thought} if answer.thought else {}

    def line(done: Json, content: str = "", **more: Any) -> Json:
        head = {"model": answer.model, "created_at": "2026-01-01T00:00:00Z", "done": False}
        message = {"message": {"role": "assistant", "content": content, **more}}
        return {**head, **({"response": content, **more} if prompted else message), **done}

    lines = [line({}, thinking=piece) for piece in answer.pieces(answer.thought)]
    lines += [line({}, content=piece) for piece in answer.pieces(answer.text)]
    lines += [line({}, **called)] if calls else []
    whole = line(end, content=answer.text, **thought, **called)
    return whole, [orjson.dumps(each) + b"\n" for each in (*lines, line(end))]


def _gemini(answer: _Answer) -> Wire:
    usage = {"promptTokenCount": 17, "candidatesTokenCount": 7, "cachedContentTokenCount": 10}
    reason = "MAX_TOKENS" if answer.finish == "length" else "STOP"

    def whole(parts: list[Json], finish: str | None = None) -> Json:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": finish}
        head = {"usageMetadata": usage, "modelVersion": answer.model, "responseId": f"r{answer.number}"}
        return {"candidates": [candidate], **head}

    def thoughts(text: str) -> Json:
        return {"text": text, "thought": True}

    thought = [thoughts(answer.thought)] if answer.thought else []
    text = [{"text": answer.text}] if answer.text else []
    calls = [
        {"functionCall": {"id": call_id, "name": name, "args": given}, "thoughtSignature": "c2ln"}
        for name, given, call_id in answer.calls
    ]
    spoken: list[list[Json]] = [[thoughts(piece)] for piece in answer.pieces(answer.thought)]
    spoken += [[{"text": piece}] for piece in answer.pieces(answer.text)]
    if calls or not spoken:
        spoken.append(calls)
    events = [*map(whole, spoken[:-1]), whole(spoken[-1], reason)]
    streamed = [b"data: " + orjson.dumps(event) + b"\r\n\r\n" for event in events]
    return whole([*thought, *text, *calls], reason), streamed


FORMATS: dict[str, Callable[[_Answer], Wire]] = {
    CHAT: _chat,
    "/v1/completions": _completions,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
    OLLAMA: _ollama,
    "/api/generate": partial(_ollama, prompted=True),
    ":generateContent": _gemini,
    ":streamGenerateContent": _gemini,
}
"""By the ends of their paths."""


def format_at(target: str) -> str:
    """The format of a path, whichever model is in it; "" if there is none."""
    path = target.partition("?")[0]
    return next((end for end in FORMATS if path.endswith(end)), "")


def write(
    form: str, said: Json, finish: str = "", *, number: int = 1, model: str = "theirs", size: int = PIECE
) -> Wire:
    """A message of chat in a format; without ``finish`` the message decides why it ends."""
    finish = finish or ("tool_calls" if said.get("tool_calls") else "stop")
    return FORMATS[form](_Answer(said, finish, number, model, size))


def answering(form: str, asked: Json, said: Json, finish: str = "", **more: Any) -> Script:
    """Answer a request by a message, streamed or whole as it asks; ``more``: as of ``write``."""
    whole, parts = write(form, said, finish, **more)
    if form == CHAT and not (asked.get("stream_options") or {}).get("include_usage"):
        del parts[-2]
    if form == ":streamGenerateContent" or asked.get("stream", form in OLLAMAS):
        return stream(parts, content_type=content_type(form))
    return reply(orjson.dumps(whole))


def content_type(form: str) -> str:
    """Of a stream."""
    return "application/x-ndjson" if form in OLLAMAS else "text/event-stream"
