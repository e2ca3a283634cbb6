"""One conversation in every wire format: who says what, in which kind of part, as clients of the format write it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from tests.support import responses

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Something that is said."""

    kind: Literal["text", "file", "image"]
    value: str
    """The text; what is in the file; where the image is, and what is shown in its place."""


@dataclass(frozen=True)
class Said:
    """What somebody says; a tool, that it was called for and answered."""

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


@dataclass(frozen=True)
class Dialect:
    """How a format says a conversation."""

    path: str
    body: Callable[[Sequence[Said]], Json]
    answer: Json
    """What its server answers: "Done."."""
    says: Callable[[Json], str]
    """The text of an answer."""
    history: bool = True
    """Whether a request holds what was said before."""
    parts: bool = True
    """Whether a message may consist of several texts."""


def _chat(said: Said) -> list[Json]:
    if said.role == "tool":
        call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        asks = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [asks, {"role": "tool", "tool_call_id": "call_1", "content": said.text}]
    write: dict[str, Callable[[str], Json]] = {
        "text": lambda text: {"type": "text", "text": text},
        "file": lambda text: {"type": "file", "file": {"filename": text, "file_data": text}},
        "image": lambda url: {"type": "image_url", "image_url": {"url": url, "alt": url}},
    }
    parts = [write[part.kind](part.value) for part in said.parts]
    return [{"role": said.role, "content": said.text if said.plain else parts}]


def _responses(said: Said) -> list[Json]:
    if said.role == "tool":
        call = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
        return [call, {"type": "function_call_output", "call_id": "call_1", "output": said.text}]
    write: dict[str, Callable[[str], Json]] = {
        "text": lambda text: {
            "type": "output_text" if said.role == "assistant" else "input_text",
            "text": text,
        },
        "file": lambda text: {"type": "input_file", "filename": text, "file_data": text},
        "image": lambda url: {"type": "input_image", "image_url": url},
    }
    parts = [write[part.kind](part.value) for part in said.parts]
    return [{"type": "message", "role": said.role, "content": said.text if said.plain else parts}]


def _messages(said: Said) -> list[Json]:
    if said.role == "tool":
        call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": said.text}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    write: dict[str, Callable[[str], Json]] = {
        "text": lambda text: {"type": "text", "text": text},
        "file": lambda text: {"type": "document", "title": text, "source": {"type": "text", "data": text}},
        "image": lambda url: {"type": "image", "source": {"type": "url", "url": url}},
    }
    parts = [write[part.kind](part.value) for part in said.parts]
    return [{"role": said.role, "content": said.text if said.plain else parts}]


def _ollama(said: Said) -> list[Json]:
    if said.role == "tool":
        call = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "read", "arguments": {}}}],
        }
        return [call, {"role": "tool", "tool_name": "read", "content": said.text}]
    # Its clients write files into the text.
    texts = {"text": "{}", "file": "notes.md:\n{}", "image": ""}
    text = "\n".join(filter(None, (texts[part.kind].format(part.value) for part in said.parts)))
    images = [base64(part.value) for part in said.parts if part.kind == "image"]
    return [{"role": said.role, "content": text, **({"images": images} if images else {})}]


def _gemini(said: Said) -> list[Json]:
    if said.role == "tool":
        result = {"functionResponse": {"name": "read", "response": {"output": said.text}}}
        call = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]}
        return [call, {"role": "user", "parts": [result]}]
    write: dict[str, Callable[[str], Json]] = {
        "text": lambda text: {"text": text},
        "file": lambda text: {"inlineData": {"mimeType": "text/plain", "data": base64(text)}},
        "image": lambda url: {"fileData": {"mimeType": "image/png", "fileUri": url, "displayName": url}},
    }
    parts = [write[part.kind](part.value) for part in said.parts]
    return [{"role": {"assistant": "model"}.get(said.role, said.role), "parts": parts}]


def _all(write: Callable[[Said], list[Json]], said: Sequence[Said]) -> list[Json]:
    return list(chain.from_iterable(map(write, said)))


def _prompt(said: Sequence[Said]) -> Json:
    """What can be said in one prompt; a file is one with a gap to be filled."""
    parts = [part for each in said for part in each.parts]
    suffix = {"suffix": "\n"} if parts[-1].kind == "file" else {}
    return {"prompt": "\n".join(part.value for part in parts), **suffix}


MODEL = {"model": "m"}
DONE = "Done."
CHAT_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m"}
OLLAMA_ANSWER = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}

DIALECTS = {
    "chat": Dialect(
        "/v1/chat/completions",
        lambda said: MODEL | {"messages": _all(_chat, said)},
        CHAT_HEAD | {"choices": [{"index": 0, "message": {"content": DONE}, "finish_reason": "stop"}]},
        lambda answer: answer["choices"][0]["message"]["content"],
    ),
    "completions": Dialect(
        "/v1/completions",
        lambda said: MODEL | _prompt(said),
        CHAT_HEAD | {"choices": [{"index": 0, "text": DONE, "finish_reason": "stop"}]},
        lambda answer: answer["choices"][0]["text"],
        history=False,
    ),
    "responses": Dialect(
        "/v1/responses",
        lambda said: MODEL | {"input": _all(_responses, said)},
        {"id": "resp_1", "output": [responses.message(DONE)], "status": "completed"},
        lambda answer: answer["output"][0]["content"][0]["text"],
    ),
    "messages": Dialect(
        "/v1/messages",
        lambda said: MODEL | {"max_tokens": 9, "messages": _all(_messages, said)},
        {
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "text", "text": DONE}],
            "stop_reason": "end_turn",
        },
        lambda answer: answer["content"][0]["text"],
    ),
    "ollama_chat": Dialect(
        "/api/chat",
        lambda said: MODEL | {"stream": False, "messages": _all(_ollama, said)},
        OLLAMA_ANSWER | {"message": {"role": "assistant", "content": DONE}},
        lambda answer: answer["message"]["content"],
        parts=False,
    ),
    "ollama_generate": Dialect(
        "/api/generate",
        lambda said: MODEL | {"stream": False, **_prompt(said)},
        OLLAMA_ANSWER | {"response": DONE},
        lambda answer: answer["response"],
        history=False,
    ),
    "gemini": Dialect(
        "/v1beta/models/m:generateContent",
        lambda said: {"contents": _all(_gemini, said)},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": DONE}]}, "finishReason": "STOP"}]},
        lambda answer: answer["candidates"][0]["content"]["parts"][0]["text"],
    ),
}
