"""Every wire format by a generator: requests as its clients write them, answers as its servers give them.

What is generated is valid in the format as far as burnish checks it, and odd in all that it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support import anthropic_wire, chat_wire, responses, wires
from tests.support.chance import PICTURE, Chance, Raw, write

Json = dict[str, Any]
MODEL = "@model@"
"""Stands in a generated request where the name of the model stands."""
URL = f"data:image/png;base64,{PICTURE}"


@dataclass(frozen=True)
class Format:
    """One surface, as both ends know it."""

    targets: tuple[str, ...]
    request: Callable[[Chance, bool], Json]
    """The body of a request, which is to be streamed or not."""
    streamed: bool | None = None
    """Whether it always streams, or never; None: the request says."""

    @property
    def content_type(self) -> str:
        return f"{wires.content_type(self._form)}; charset=utf-8"

    def whole(self, chance: Chance) -> bytes:
        return written(orjson.dumps(wires.write(self._form, said(chance))[0]), chance)

    def stream(self, chance: Chance) -> list[bytes]:
        parts = [written(part, chance) for part in wires.write(self._form, said(chance), size=99)[1]]
        if self.streamed and chance.maybe():
            return [b"[", b"\n,\r\n".join(part.removeprefix(b"data: ") for part in parts), b"]"]
        return parts if self._form in wires.OLLAMAS else odd(parts, chance)

    @property
    def _form(self) -> str:
        return wires.format_at(self.targets[0])


# -- requests ----------------------------------------------------------------------------------------------------------


def extras(chance: Chance) -> Json:
    """Members that some clients send, and some that nobody knows."""
    return chance.members(
        temperature=lambda: 0.5,
        seed=lambda: chance.value(0),
        user=chance.text,
        metadata=chance.value,
        x=chance.value,
    )


def asked(chance: Chance, body: Json, streamed: bool, default: bool = False) -> Json:
    """A body with its model and ``stream`` somewhere among the other members; ``default``: what no ``stream`` means."""
    said = {"stream": streamed} if streamed != default or chance.maybe() else {}
    return chance.shuffled(
        {**body, **said, **({"model": Raw(f'"{MODEL}"')} if chance.maybe(0.9) else {}), **extras(chance)}
    )


def chat_message(chance: Chance) -> Json:
    function = {"name": chance.name(), "arguments": chance.text()}
    call = {"id": "call_1", "type": "function", "function": function}
    parts = [
        {"type": "text", "text": chance.text()},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": chance.text()}},
        {"type": chance.name(), "x": chance.value()},
    ]
    return chance.choice(
        [
            {"role": chance.choice(("system", "developer", "user")), "content": chance.text()},
            {"role": "user", "content": chance.sample(parts, chance.randrange(4))},
            {"role": "assistant", "content": chance.choice((None, chance.text())), "tool_calls": [call]},
            {"role": "assistant", "content": chance.text(), "reasoning_content": chance.text()},
            {"role": "tool", "tool_call_id": "call_1", "content": chance.text(), "x": chance.value()},
        ]
    )


def chat_tool(chance: Chance) -> Json:
    parameters = {"type": "object", "x": chance.value()}
    return {"type": "function", "function": {"name": chance.name(), "parameters": parameters}}


def chat_request(chance: Chance, streamed: bool) -> Json:
    more = chance.members(
        tools=lambda: chance.some(lambda: chat_tool(chance)), stream_options=lambda: {"include_usage": True}
    )
    return asked(chance, {"messages": chance.some(lambda: chat_message(chance), 4), **more}, streamed)


def completions_request(chance: Chance, streamed: bool) -> Json:
    prompts: list[Any] = [chance.text(), chance.some(chance.text), [1, 2], [[1], [2, 3]], None]
    more = chance.members(suffix=chance.text, echo=chance.maybe, logprobs=lambda: 2)
    return asked(chance, {"prompt": chance.choice(prompts), **more}, streamed)


def responses_item(chance: Chance) -> Json:
    parts = [
        {"type": "input_text", "text": chance.text()},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": chance.text()},
    ]
    outputs: list[Any] = [chance.text(), parts[:1]]
    return chance.choice(
        [
            {"role": chance.choice(("user", "developer")), "content": chance.text()},
            {"type": "message", "role": "user", "content": chance.sample(parts, chance.randrange(4))},
            responses.message(chance.text()),
            responses.reasoning(chance.text(), encrypted="c2VjcmV0"),
            responses.call(chance.name(), chance.text()),
            {"type": "function_call_output", "call_id": "call_1", "output": chance.choice(outputs)},
            {"type": chance.name(), "id": "x_1", "x": chance.value()},
        ]
    )


def responses_request(chance: Chance, streamed: bool) -> Json:
    given: list[Any] = [chance.text(), chance.some(lambda: responses_item(chance), 5)]
    more = chance.members(
        instructions=chance.text,
        previous_response_id=lambda: "resp_abc",
        tools=lambda: [
            {"type": "function", "name": chance.name(), "parameters": chance.value()},
            {"type": "web_search"},
        ],
    )
    return asked(chance, {"input": chance.choice(given), **more}, streamed)


def messages_item(chance: Chance) -> Json:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": chance.choice((chance.text(), []))}
    said = [
        anthropic_wire.text(chance.text()) | {"cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": chance.text()}},
        result,
    ]
    answered = [
        anthropic_wire.thinking(chance.text()),
        anthropic_wire.text(chance.text()),
        anthropic_wire.tool_use(chance.name(), {"a": chance.value()}),
    ]
    return chance.choice(
        [
            {"role": "user", "content": chance.text()},
            {"role": "user", "content": chance.sample(said, chance.randint(1, 4))},
            {"role": "assistant", "content": chance.sample(answered, chance.randint(1, 3))},
        ]
    )


def messages_request(chance: Chance, streamed: bool) -> Json:
    more = chance.members(
        system=lambda: chance.choice((chance.text(), [anthropic_wire.text(chance.text())])),
        tools=lambda: [{"name": chance.name(), "input_schema": {"type": "object", "x": chance.value()}}],
        thinking=lambda: {"type": "enabled", "budget_tokens": 1024},
    )
    return asked(
        chance, {"max_tokens": 9, "messages": chance.some(lambda: messages_item(chance), 4), **more}, streamed
    )


def ollama_message(chance: Chance) -> Json:
    call = {"function": {"name": chance.name(), "arguments": {"a": chance.value()}}}
    return chance.choice(
        [
            {"role": chance.choice(("system", "user")), "content": chance.text()},
            {"role": "user", "content": chance.text(), "images": [PICTURE]},
            {"role": "assistant", "content": "", "thinking": chance.text(), "tool_calls": [call]},
            {"role": "tool", "content": chance.text(), "tool_name": chance.name()},
        ]
    )


def ollama_chat_request(chance: Chance, streamed: bool) -> Json:
    more = chance.members(options=chance.value, format=chance.value, tools=lambda: [chat_tool(chance)])
    return asked(
        chance, {"messages": chance.some(lambda: ollama_message(chance), 4), **more}, streamed, default=True
    )


def ollama_generate_request(chance: Chance, streamed: bool) -> Json:
    more = chance.members(
        prompt=chance.text,
        system=chance.text,
        suffix=chance.text,
        images=lambda: [PICTURE],
        context=chance.value,
    )
    return asked(chance, more, streamed, default=True)


def gemini_content(chance: Chance) -> Json:
    parts: list[Json] = [
        {"text": chance.text()},
        {"text": chance.text(), "thought": True, "thoughtSignature": "c2lnbmVk"},
        {"inlineData": {"mimeType": "image/png", "data": PICTURE}},
        {"functionCall": {"name": chance.name(), "args": {"a": chance.value()}}},
        {"functionResponse": {"name": chance.name(), "response": {"output": chance.text()}}},
        {chance.name(): chance.value()},
    ]
    return {
        "parts": chance.sample(parts, chance.randrange(4)),
        **chance.members(role=lambda: chance.choice(("user", "model"))),
    }


def gemini_request(chance: Chance, streamed: bool) -> Json:
    more = chance.members(
        system_instruction=lambda: {"parts": [{"text": chance.text()}]},
        generationConfig=chance.value,
        tools=lambda: [{"functionDeclarations": [{"name": chance.name(), "parameters": chance.value()}]}],
    )
    return chance.shuffled(
        {"contents": chance.some(lambda: gemini_content(chance), 4), **more, **extras(chance)}
    )


# -- answers -----------------------------------------------------------------------------------------------------------


def said(chance: Chance) -> Json:
    """A message of chat."""
    call = chat_wire.called(chance.name(), {"a": [1, "ü", chance.text()]})
    more = chance.members(reasoning_content=chance.text, tool_calls=lambda: [call])
    return {"content": chance.text(), **more}


def written(part: bytes, chance: Chance) -> bytes:
    """An answer, or one event of it, as another server writes it, with a member that nobody knows."""
    head, brace, rest = part.partition(b"{")
    if not brace:
        return part
    end = rest[len(rest.rstrip()) :]
    known = orjson.loads(brace + rest) | chance.members(x=chance.value)
    return head + write(known, chance, lines=not end) + end


def odd(events: list[bytes], chance: Chance) -> list[bytes]:
    """Events with the line ends, comments and further fields that the standard allows."""
    end = chance.choice((b"\n", b"\n", b"\r\n", b"\r"))
    noise = chance.choice((b"", b"", b": still there\n\n", b"id: 7\nretry: 10\n", b"\n\n"))
    begin = chance.choice((b"", b"", b"\xef\xbb\xbf"))
    return [
        (begin if not index else b"") + (noise + event).replace(b"\n", end)
        for index, event in enumerate(events)
    ]


FORMATS = {
    "chat": Format(("/v1/chat/completions", "/v1/chat/completions?api-version=2"), chat_request),
    "completions": Format(("/v1/completions",), completions_request),
    "responses": Format(("/v1/responses",), responses_request),
    "messages": Format(("/v1/messages", "/v1/messages?beta=true"), messages_request),
    "ollama_chat": Format(("/api/chat",), ollama_chat_request),
    "ollama_generate": Format(("/api/generate",), ollama_generate_request),
    "gemini": Format(
        (f"/v1beta/models/{MODEL}:generateContent", f"/v1/models/{MODEL}:generateContent?key=k%20"),
        gemini_request,
        streamed=False,
    ),
    "gemini streamed": Format(
        (
            f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse&x",
            f"/v1/models/{MODEL}:streamGenerateContent",
        ),
        gemini_request,
        streamed=True,
    ),
}
"""By the name of the surface; Gemini's two by the method that they call."""
