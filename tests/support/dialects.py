"""Every wire format as both ends write it: a conversation as a client sends it, and what its server answers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from tests.support import anthropic_wire, chat_wire, responses

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a message."""

    kind: Literal["text", "file", "image"]
    value: str
    """The text; what is in the file; where the image is, and what is shown in its place."""


@dataclass(frozen=True)
class Said:
    """A message; one of a tool stands for its call and its result."""

    role: Literal["user", "assistant", "system", "tool"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All of it, where it can only be text."""
        return "\n".join(part.value for part in self.parts)

    @property
    def plain(self) -> bool:
        """Whether it is one text."""
        return [part.kind for part in self.parts] == ["text"]


@dataclass(frozen=True)
class Answer:
    """An answer of the model; ``call``: of the one tool, with this argument."""

    text: str = ""
    call: int | None = None

    @property
    def call_id(self) -> str:
        return f"call_{self.call}"


@dataclass(frozen=True)
class Result:
    """What the tool returned."""

    call_id: str
    text: str


Entry = Said | Answer | Result


def user(*parts: str | Part) -> Said:
    return Said("user", tuple(Part("text", part) if isinstance(part, str) else part for part in parts))


def assistant(text: str) -> Said:
    return Said("assistant", (Part("text", text),))


def system(text: str) -> Said:
    return Said("system", (Part("text", text),))


def tool(text: str) -> Said:
    return Said("tool", (Part("text", text),))


def file(text: str) -> Part:
    return Part("file", text)


def image(url: str) -> Part:
    return Part("image", url)


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


Parts = dict[str, Callable[[str], Json]]
"""How a format writes each kind of part."""


class Entries(Protocol):
    """How a format writes one entry of a conversation."""

    def __call__(self, entry: Entry) -> list[Json]: ...


@dataclass(frozen=True)
class Dialect:
    """How a format writes a conversation."""

    path: str
    body: Callable[..., Json]
    """A request's body: of the conversation, and of a system prompt that stands before it."""
    answer: Callable[[Answer, str], Json]
    """What its server answers, under an id."""
    says: Callable[[Json], str]
    """The text of an answer."""
    history: bool = True
    """Whether a request holds what was said before."""
    parts: bool = True
    """Whether a message may consist of several texts."""


def _if(given: object, **members: Any) -> Json:
    return members if given else {}


def _content(said: Said, parts: Parts) -> str | list[Json]:
    return said.text if said.plain else [parts[part.kind](part.value) for part in said.parts]


def _chat_answer(answer: Answer) -> Json:
    calls = [] if answer.call is None else [chat_wire.called("look", {"at": answer.call}, answer.call_id)]
    return {"role": "assistant", "content": answer.text or None, **_if(calls, tool_calls=calls)}


CHAT_PARTS: Parts = {
    "text": lambda text: {"type": "text", "text": text},
    "file": lambda text: {"type": "file", "file": {"filename": text, "file_data": text}},
    "image": lambda url: {"type": "image_url", "image_url": {"url": url, "alt": url}},
}


def _chat(entry: Entry) -> list[Json]:
    match entry:
        case Said():
            return [{"role": entry.role, "content": _content(entry, CHAT_PARTS)}]
        case Result(call_id, text):
            return [{"role": "tool", "tool_call_id": call_id, "content": text}]
        case Answer():
            return [_chat_answer(entry)]


RESPONSES_PARTS: Parts = {
    "text": lambda text: {"type": "input_text", "text": text},
    "file": lambda text: {"type": "input_file", "filename": text, "file_data": text},
    "image": lambda url: {"type": "input_image", "image_url": url},
}


def _responses(entry: Entry) -> list[Json]:
    match entry:
        case Said():
            return [{"type": "message", "role": entry.role, "content": _content(entry, RESPONSES_PARTS)}]
        case Result(call_id, text):
            return [{"type": "function_call_output", "call_id": call_id, "output": text}]
        case Answer(text, call):
            written = orjson.dumps({"at": call}).decode()
            calls = [] if call is None else [responses.call("look", written, entry.call_id)]
            return [*([responses.message(text)] if text else []), *calls]


MESSAGES_PARTS: Parts = {
    "text": anthropic_wire.text,
    "file": lambda text: {"type": "document", "title": text, "source": {"type": "text", "data": text}},
    "image": lambda url: {"type": "image", "source": {"type": "url", "url": url}},
}


def _blocks(answer: Answer) -> list[Json]:
    call = answer.call
    calls = [] if call is None else [anthropic_wire.tool_use("look", {"at": call}, answer.call_id)]
    return [*([anthropic_wire.text(answer.text)] if answer.text else []), *calls]


def _messages(entry: Entry) -> list[Json]:
    match entry:
        case Said():
            return [{"role": entry.role, "content": _content(entry, MESSAGES_PARTS)}]
        case Result(call_id, text):
            result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return [{"role": "user", "content": [result]}]
        case Answer():
            return [{"role": "assistant", "content": _blocks(entry)}]


def _messages_answer(answer: Answer, name: str) -> Json:
    reason = "end_turn" if answer.call is None else "tool_use"
    return anthropic_wire.message(*_blocks(answer), id=name, stop_reason=reason)


def _ollama(entry: Entry) -> list[Json]:
    match entry:
        case Said(role, parts):
            # Its clients write files into the text.
            texts = {"text": "{}", "file": "notes.md:\n{}", "image": ""}
            text = "\n".join(filter(None, (texts[part.kind].format(part.value) for part in parts)))
            images = [base64(part.value) for part in parts if part.kind == "image"]
            return [{"role": role, "content": text, **_if(images, images=images)}]
        case Result(_, text):
            return [{"role": "tool", "tool_name": "look", "content": text}]
        case Answer(text, call):
            calls = [{"function": {"name": "look", "arguments": {"at": call}}}]
            return [{"role": "assistant", "content": text, **({} if call is None else {"tool_calls": calls})}]


GEMINI_PARTS: Parts = {
    "text": lambda text: {"text": text},
    "file": lambda text: {"inlineData": {"mimeType": "text/plain", "data": base64(text)}},
    "image": lambda url: {"fileData": {"mimeType": "image/png", "fileUri": url, "displayName": url}},
}


def _gemini(entry: Entry) -> list[Json]:
    match entry:
        case Said(role, parts):
            return [{"role": role, "parts": [GEMINI_PARTS[part.kind](part.value) for part in parts]}]
        case Result(_, text):
            result = {"functionResponse": {"name": "look", "response": {"output": text}}}
            return [{"role": "user", "parts": [result]}]
        case Answer(text, call):
            calls = [] if call is None else [{"functionCall": {"name": "look", "args": {"at": call}}}]
            return [{"role": "model", "parts": [*([{"text": text}] if text else []), *calls]}]


def _all(write: Entries, said: Sequence[Entry]) -> list[Json]:
    return [each for entry in _spread(said) for each in write(entry)]


def _spread(said: Sequence[Entry]) -> Iterator[Entry]:
    for entry in said:
        if isinstance(entry, Said) and entry.role == "assistant":
            yield Answer(entry.text)
        elif isinstance(entry, Said) and entry.role == "tool":
            yield from (Answer(call=1), Result("call_1", entry.text))
        else:
            yield entry


def _first(text: str) -> tuple[Said, ...]:
    return (system(text),) if text else ()


def _prompt(said: Sequence[Said]) -> Json:
    """What can be said in one prompt; a file is one with a gap to be filled."""
    parts = [part for each in said for part in each.parts]
    suffix = {"suffix": "\n"} if parts[-1].kind == "file" else {}
    return {"prompt": "\n".join(part.value for part in parts), **suffix}


MODEL = {"model": "m"}
DONE = "Done."
OLLAMA_ANSWER = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}

DIALECTS = {
    "chat": Dialect(
        "/v1/chat/completions",
        lambda said, first="": MODEL | {"messages": _all(_chat, [*_first(first), *said])},
        lambda answer, name: chat_wire.whole(_chat_answer(answer), id=name),
        lambda answer: answer["choices"][0]["message"]["content"],
    ),
    "completions": Dialect(
        "/v1/completions",
        lambda said: MODEL | _prompt(said),
        lambda answer, name: {
            **{"id": name, "created": 1, "model": "m"},
            "choices": [{"index": 0, "text": answer.text, "finish_reason": "stop"}],
        },
        lambda answer: answer["choices"][0]["text"],
        history=False,
    ),
    "responses": Dialect(
        "/v1/responses",
        lambda said, first="": MODEL | {"input": _all(_responses, said), **_if(first, instructions=first)},
        lambda answer, name: responses.response(*_responses(answer), response_id=name),
        lambda answer: "".join(
            part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]
        ),
    ),
    "messages": Dialect(
        "/v1/messages",
        lambda said, first="": (
            MODEL | {"max_tokens": 9, "messages": _all(_messages, said), **_if(first, system=first)}
        ),
        _messages_answer,
        lambda answer: "".join(block.get("text", "") for block in answer["content"]),
    ),
    "ollama_chat": Dialect(
        "/api/chat",
        lambda said, first="": MODEL | {"stream": False, "messages": _all(_ollama, [*_first(first), *said])},
        lambda answer, name: OLLAMA_ANSWER | {"message": _ollama(answer)[0]},
        lambda answer: answer["message"]["content"],
        parts=False,
    ),
    "ollama_generate": Dialect(
        "/api/generate",
        lambda said: MODEL | {"stream": False, **_prompt(said)},
        lambda answer, name: OLLAMA_ANSWER | {"response": answer.text},
        lambda answer: answer["response"],
        history=False,
    ),
    "gemini": Dialect(
        "/v1beta/models/m:generateContent",
        lambda said, first="": {
            "contents": _all(_gemini, said),
            **_if(first, systemInstruction={"parts": [{"text": first}]}),
        },
        lambda answer, name: {
            "responseId": name,
            "candidates": [{"content": _gemini(answer)[0], "finishReason": "STOP", "index": 0}],
        },
        lambda answer: "".join(part.get("text", "") for part in answer["candidates"][0]["content"]["parts"]),
    ),
}
