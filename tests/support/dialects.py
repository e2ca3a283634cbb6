"""Every wire format as both ends write it: a conversation as a client sends it, and what its server answers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tests.support import anthropic_wire, chat_wire, wires

Json = dict[str, Any]
Role = Literal["user", "assistant", "system", "tool"]


@dataclass(frozen=True)
class Part:
    kind: Literal["text", "file", "image"]
    value: str
    """The text; what is in the file; where the image is, and what is shown in its place."""


@dataclass(frozen=True)
class Said:
    """A message; one of a tool stands for its call and its result."""

    role: Role
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

    @property
    def message(self) -> Json:
        """The same as a message of chat."""
        if self.call is None:
            return {"content": self.text}
        call = chat_wire.called("look", {"at": self.call}, self.call_id)
        return {"content": self.text or None, "tool_calls": [call]}


@dataclass(frozen=True)
class Result:
    call_id: str
    text: str


Entry = Said | Answer | Result


def _said(role: Role, *parts: str | Part) -> Said:
    return Said(role, tuple(Part("text", part) if isinstance(part, str) else part for part in parts))


user, assistant = partial(_said, "user"), partial(_said, "assistant")
system, tool = partial(_said, "system"), partial(_said, "tool")
file, image = partial(Part, "file"), partial(Part, "image")


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


Parts = dict[str, Callable[[str], Json]]
"""How a format writes each kind of part."""


@dataclass(frozen=True)
class Dialect:
    path: str
    body: Callable[..., Json]
    """A request's body: of the conversation, and of a system prompt that stands before it."""
    says: Callable[[Json], str]
    """The text of an answer."""
    history: bool = True
    """Whether a request holds what was said before."""
    parts: bool = True
    """Whether a message may consist of several texts."""

    def answer(self, answer: Answer, number: int = 1) -> Json:
        return wires.write(wires.format_at(self.path), answer.message, number=number)[0]


def _if(given: object, **members: Any) -> Json:
    return members if given else {}


def _content(said: Said, parts: Parts) -> str | list[Json]:
    return said.text if said.plain else [parts[part.kind](part.value) for part in said.parts]


CHAT_PARTS: Parts = {
    "text": lambda text: {"type": "text", "text": text},
    "file": lambda text: {"type": "file", "file": {"filename": text, "file_data": text}},
    "image": lambda url: {"type": "image_url", "image_url": {"url": url, "alt": url}},
}


def _chat(entry: Said | Result) -> Json:
    if isinstance(entry, Result):
        return {"role": "tool", "tool_call_id": entry.call_id, "content": entry.text}
    return {"role": entry.role, "content": _content(entry, CHAT_PARTS)}


RESPONSES_PARTS: Parts = {
    "text": lambda text: {"type": "input_text", "text": text},
    "file": lambda text: {"type": "input_file", "filename": text, "file_data": text},
    "image": lambda url: {"type": "input_image", "image_url": url},
}


def _responses(entry: Said | Result) -> Json:
    if isinstance(entry, Result):
        return {"type": "function_call_output", "call_id": entry.call_id, "output": entry.text}
    return {"type": "message", "role": entry.role, "content": _content(entry, RESPONSES_PARTS)}


MESSAGES_PARTS: Parts = {
    "text": anthropic_wire.text,
    "file": lambda text: {"type": "document", "title": text, "source": {"type": "text", "data": text}},
    "image": lambda url: {"type": "image", "source": {"type": "url", "url": url}},
}


def _messages(entry: Said | Result) -> Json:
    if isinstance(entry, Said):
        return {"role": entry.role, "content": _content(entry, MESSAGES_PARTS)}
    result = {"type": "tool_result", "tool_use_id": entry.call_id, "content": entry.text}
    return {"role": "user", "content": [result]}


def _ollama(entry: Said | Result) -> Json:
    if isinstance(entry, Result):
        return {"role": "tool", "tool_name": "look", "content": entry.text}
    # Its clients write files into the text.
    texts = {"text": "{}", "file": "notes.md:\n{}", "image": ""}
    text = "\n".join(filter(None, (texts[part.kind].format(part.value) for part in entry.parts)))
    images = [base64(part.value) for part in entry.parts if part.kind == "image"]
    return {"role": entry.role, "content": text, **_if(images, images=images)}


GEMINI_PARTS: Parts = {
    "text": lambda text: {"text": text},
    "file": lambda text: {"inlineData": {"mimeType": "text/plain", "data": base64(text)}},
    "image": lambda url: {"fileData": {"mimeType": "image/png", "fileUri": url, "displayName": url}},
}


def _gemini(entry: Said | Result) -> Json:
    if isinstance(entry, Said):
        return {"role": entry.role, "parts": [GEMINI_PARTS[part.kind](part.value) for part in entry.parts]}
    result = {"functionResponse": {"name": "look", "response": {"output": entry.text}}}
    return {"role": "user", "parts": [result]}


KEPT: dict[str, Callable[[Json], list[Json]]] = {
    "chat": lambda whole: [whole["choices"][0]["message"]],
    "responses": lambda whole: whole["output"],
    "messages": lambda whole: [{"role": "assistant", "content": whole["content"]}],
    "ollama_chat": lambda whole: [whole["message"]],
    "gemini": lambda whole: [whole["candidates"][0]["content"]],
}
"""What a client keeps of an answer."""


def _all(
    name: str, write: Callable[[Said | Result], Json], said: Sequence[Entry], first: str = ""
) -> list[Json]:
    found = [write(system(first))] if first else []
    for entry in _spread(said):
        found += KEPT[name](DIALECTS[name].answer(entry)) if isinstance(entry, Answer) else [write(entry)]
    return found


def _spread(said: Sequence[Entry]) -> Iterator[Entry]:
    for entry in said:
        if isinstance(entry, Said) and entry.role == "assistant":
            yield Answer(entry.text)
        elif isinstance(entry, Said) and entry.role == "tool":
            yield from (Answer(call=1), Result("call_1", entry.text))
        else:
            yield entry


def _prompt(said: Sequence[Said]) -> Json:
    """What can be said in one prompt; a file is one with a gap to be filled."""
    parts = [part for each in said for part in each.parts]
    suffix = {"suffix": "\n"} if parts[-1].kind == "file" else {}
    return {"prompt": "\n".join(part.value for part in parts), **suffix}


MODEL = {"model": "m"}
DONE = "Done."

DIALECTS = {
    "chat": Dialect(
        "/v1/chat/completions",
        lambda said, first="": MODEL | {"messages": _all("chat", _chat, said, first)},
        lambda answer: answer["choices"][0]["message"]["content"],
    ),
    "completions": Dialect(
        "/v1/completions",
        lambda said: MODEL | _prompt(said),
        lambda answer: answer["choices"][0]["text"],
        history=False,
    ),
    "responses": Dialect(
        "/v1/responses",
        lambda said, first="": (
            MODEL | {"input": _all("responses", _responses, said), **_if(first, instructions=first)}
        ),
        lambda answer: "".join(part["text"] for item in answer["output"] for part in item.get("content", ())),
    ),
    "messages": Dialect(
        "/v1/messages",
        lambda said, first="": (
            MODEL
            | {"max_tokens": 9, "messages": _all("messages", _messages, said), **_if(first, system=first)}
        ),
        lambda answer: "".join(block.get("text", "") for block in answer["content"]),
    ),
    "ollama_chat": Dialect(
        "/api/chat",
        lambda said, first="": (
            MODEL | {"stream": False, "messages": _all("ollama_chat", _ollama, said, first)}
        ),
        lambda answer: answer["message"]["content"],
        parts=False,
    ),
    "ollama_generate": Dialect(
        "/api/generate",
        lambda said: MODEL | {"stream": False, **_prompt(said)},
        lambda answer: answer["response"],
        history=False,
    ),
    "gemini": Dialect(
        "/v1beta/models/m:generateContent",
        lambda said, first="": {
            "contents": _all("gemini", _gemini, said),
            **_if(first, systemInstruction={"parts": [{"text": first}]}),
        },
        lambda answer: "".join(part.get("text", "") for part in answer["candidates"][0]["content"]["parts"]),
    ),
}
