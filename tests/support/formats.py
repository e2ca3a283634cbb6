"""Every wire format by a generator: requests as its clients write them, answers as its servers give them.

What is generated is valid in the format as far as burnish checks it, and odd in all that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support import anthropic_wire, responses
from tests.support.chance import PICTURE, Chance, Raw, write
from tests.support.chat_wire import DONE, USAGE

Json = dict[str, Any]
MODEL = "@model@"
"""Stands in a generated request where the name of the model stands."""
SSE, NDJSON, JSON = "text/event-stream; charset=utf-8", "application/x-ndjson", "application/json"
URL = f"data:image/png;base64,{PICTURE}"
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "mock"}


@dataclass(frozen=True)
class Format:
    """One surface, as both ends know it."""

    targets: tuple[str, ...]
    request: Callable[[Chance, bool], Json]
    """The body of a request, which is to be streamed or not."""
    whole: Callable[[Chance], bytes]
    """An answer at once."""
    stream: Callable[[Chance], list[bytes]]
    """The parts of a streamed one."""
    streamed: bool | None = None
    """Whether it always streams, or never; None: the request says."""
    content_type: str = SSE
    """Of a stream."""


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


def choice_of(chance: Chance, key: str, said: Json, finish: str | None = "stop") -> Json:
    return {
        **HEAD,
        "choices": [{"index": 0, key: said, "finish_reason": finish, **chance.members(x=chance.value)}],
    }


def sse(chance: Chance, events: Iterable[Json], last: bytes = b"") -> list[bytes]:
    data = [b"data: " + write(event, chance, lines=False).strip() + b"\n\n" for event in events]
    return odd([*data, *([last] if last else [])], chance)


def odd(events: list[bytes], chance: Chance) -> list[bytes]:
    """Events with the line ends, comments and further fields that the standard allows."""
    end = chance.choice((b"\n", b"\n", b"\r\n", b"\r"))
    noise = chance.choice((b"", b"", b": still there\n\n", b"id: 7\nretry: 10\n", b"\n\n"))
    begin = chance.choice((b"", b"", b"\xef\xbb\xbf"))
    return [
        (begin if not index else b"") + (noise + event).replace(b"\n", end)
        for index, event in enumerate(events)
    ]


def chat_whole(chance: Chance) -> bytes:
    message = {"role": "assistant", "content": chance.text(), **chance.members(reasoning_content=chance.text)}
    return write({**choice_of(chance, "message", message), "usage": USAGE}, chance)


def chat_stream(chance: Chance) -> list[bytes]:
    function = {"name": chance.name(), "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    called = [{"tool_calls": [call]}, {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}]
    pieces: list[Json] = [{"role": "assistant", "content": ""}]
    pieces += [{"content": text} for text in chance.some(chance.text)]
    pieces += [{"reasoning_content": chance.text()}] if chance.maybe() else []
    pieces += called if chance.maybe() else []
    chunks = [choice_of(chance, "delta", piece, None) for piece in pieces] + [choice_of(chance, "delta", {})]
    return sse(chance, [*chunks, {**HEAD, "choices": [], "usage": USAGE}], DONE)


def completions_whole(chance: Chance) -> bytes:
    return write(
        {**HEAD, "choices": [{"index": 0, "text": chance.text(), "finish_reason": "length"}]}, chance
    )


def completions_stream(chance: Chance) -> list[bytes]:
    said: list[Json] = [{"text": text, "finish_reason": None} for text in chance.some(chance.text)]
    said.append({"text": "", "finish_reason": "stop"})
    return sse(chance, [{**HEAD, "choices": [{"index": 0, **each}]} for each in said], DONE)


def _clean(text: str) -> str:
    """A text that orjson writes, too."""
    return text.encode("utf-8", "replace").decode()


def response(chance: Chance) -> Json:
    items: list[Json] = [
        responses.reasoning(_clean(chance.text())),
        responses.message(_clean(chance.text())),
        responses.call(chance.name(), '{"a": 1}'),
    ]
    return responses.response(*chance.sample(items, chance.randint(1, 3)))


def message(chance: Chance) -> list[Json]:
    blocks = [
        anthropic_wire.thinking(_clean(chance.text())),
        anthropic_wire.text(_clean(chance.text())),
        anthropic_wire.tool_use(chance.name(), {"a": [1, "ü"]}),
    ]
    return chance.sample(blocks, chance.randint(1, 3))


OLLAMA = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False}
OLLAMA_END = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}


def ollama_said(chance: Chance) -> Json:
    call = {"function": {"name": chance.name(), "arguments": {"a": chance.value()}}}
    more = chance.members(thinking=chance.text, tool_calls=lambda: [call])
    return {"message": {"role": "assistant", "content": chance.text(), **more}}


def generate_said(chance: Chance) -> Json:
    return {"response": chance.text(), **chance.members(thinking=chance.text)}


def ollama_lines(said: Callable[[Chance], Json]) -> Callable[[Chance], list[bytes]]:
    def lines(chance: Chance) -> list[bytes]:
        parts = [*chance.some(lambda: OLLAMA | said(chance)), OLLAMA | said(chance) | OLLAMA_END]
        return [write(part, chance, lines=False) + b"\n" for part in parts]

    return lines


def gemini_part(chance: Chance, finish: str | None = "STOP") -> Json:
    parts: list[Json] = [
        {"text": chance.text()},
        {"text": chance.text(), "thought": True},
        {"functionCall": {"name": chance.name(), "args": {"a": chance.value()}}},
    ]
    content = {"role": "model", "parts": chance.sample(parts, chance.randrange(3))}
    candidate = {"content": content, "index": 0, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5}, "responseId": "r1"}


def gemini_parts(chance: Chance) -> list[Json]:
    return [*chance.some(lambda: gemini_part(chance, None)), gemini_part(chance)]


def gemini_stream(chance: Chance) -> list[bytes]:
    if chance.maybe():
        return sse(chance, gemini_parts(chance))
    return [b"[", b"\n,\r\n".join(write(part, chance) for part in gemini_parts(chance)), b"]"]


def _gemini(version: str, method: str) -> str:
    return f"/{version}/models/{MODEL}:{method}"


FORMATS: dict[str, Format] = {
    "chat": Format(
        ("/v1/chat/completions", "/v1/chat/completions?api-version=2"), chat_request, chat_whole, chat_stream
    ),
    "completions": Format(("/v1/completions",), completions_request, completions_whole, completions_stream),
    "responses": Format(
        ("/v1/responses",),
        responses_request,
        lambda chance: write(response(chance), chance),
        lambda chance: odd(responses.events(response(chance), piece=99), chance),
    ),
    "messages": Format(
        ("/v1/messages", "/v1/messages?beta=true"),
        messages_request,
        lambda chance: orjson.dumps(anthropic_wire.message(*message(chance))),
        lambda chance: odd(anthropic_wire.message_events(*message(chance), size=99), chance),
    ),
    "ollama_chat": Format(
        ("/api/chat",),
        ollama_chat_request,
        lambda chance: write(OLLAMA | ollama_said(chance) | OLLAMA_END, chance),
        ollama_lines(ollama_said),
        content_type=NDJSON,
    ),
    "ollama_generate": Format(
        ("/api/generate",),
        ollama_generate_request,
        lambda chance: write(OLLAMA | generate_said(chance) | OLLAMA_END, chance),
        ollama_lines(generate_said),
        content_type=NDJSON,
    ),
    "gemini": Format(
        (_gemini("v1beta", "generateContent"), _gemini("v1", "generateContent?key=k%20")),
        gemini_request,
        lambda chance: write(gemini_part(chance), chance),
        gemini_stream,
        streamed=False,
    ),
    "gemini streamed": Format(
        (_gemini("v1beta", "streamGenerateContent?alt=sse&x"), _gemini("v1", "streamGenerateContent")),
        gemini_request,
        lambda chance: write(gemini_part(chance), chance),
        gemini_stream,
        streamed=True,
    ),
}
"""By the name of the surface; Gemini's two by the method that they call."""
