"""Completions, of chats and of texts: what is read, what is put together from the wire."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import brotli
import orjson
import pytest
import zstandard

from burnish.proxy.rl.commands import find_command
from burnish.proxy.surfaces import Chat, ChatRequest, Completions, Reply
from burnish.proxy.surfaces.lenient import DECODED_LIMIT_BYTES, TooLong, decode
from tests.support.chat_wire import DONE, USAGE, data
from tests.support.upstream import completion, events

chat = Chat()


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish} | more.pop("choice", {})
    return b"data: " + orjson.dumps({"id": "r1", "choices": [choice], **more}) + b"\n\n"


def streamed(*chunks: bytes) -> Reply:
    return chat.reassemble(chunks, "text/event-stream; charset=utf-8", "")


def test_reads_messages_model_stream_and_keeps_the_rest_as_parameters():
    messages, params = [{"role": "user", "content": "hi"}], {"stream": True, "temperature": 0.5, "new": 1}
    request = chat.read({"model": "m", "messages": messages, **params})
    assert request == ChatRequest(messages, "m", True, params)


def test_a_stream_and_a_whole_answer_give_the_same_message():
    whole = chat.reassemble([completion("Hello you")], "application/json", "")
    cut_up = chat.reassemble(events("Hello you"), "text/event-stream", "")
    assert whole.message == cut_up.message == {"role": "assistant", "content": "Hello you"}
    assert whole.response_id == cut_up.response_id == "chatcmpl-1"
    assert whole.finish_reason == cut_up.finish_reason == "stop"
    assert whole.complete and cut_up.complete
    assert whole.usage == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.mark.parametrize(
    ("timings", "more", "prompt"),
    [
        ({"cache_n": 5, "prompt_n": 3, "predicted_n": 2}, {}, 8),
        ({"cache_n": 5, "prompt_n": 3, "predicted_n": 2}, {"usage": USAGE}, USAGE["prompt_tokens"]),
        ({"prompt_n": 3, "predicted_n": 2}, {}, None),
        ([], {}, None),
    ],
    ids=["without usage", "usage goes first", "an old server", "odd"],
)
def test_llama_cpp_counts_a_stream_that_was_to_have_no_usage(
    timings: Any, more: dict[str, Any], prompt: int | None
):
    usage = streamed(chunk({"content": "Hi"}), chunk({}, "stop", timings=timings, **more), DONE).usage
    assert (usage or {}).get("prompt_tokens") == prompt


def test_reasoning_and_refusal_are_kept_beside_the_content():
    reply = streamed(
        chunk({"role": "assistant", "content": None, "reasoning_content": "let "}),
        chunk({"reasoning_content": "me see"}),
        chunk({"content": "42", "refusal": None}),
        chunk({"refusal": "no", "content": None}, "stop"),
    )
    said = {"reasoning_content": "let me see", "content": "42", "refusal": "no"}
    assert reply.message == {"role": "assistant", **said}


def call(index: int | None, arguments: str, **head: Any) -> dict[str, Any]:
    name = {"name": head.pop("name")} if "name" in head else {}
    numbered = {} if index is None else {"index": index}
    return {**numbered, **head, "function": {**name, "arguments": arguments}}


FIRST = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
SECOND = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
F, G = {"id": "c1", "name": "f"}, {"id": "c2", "name": "g"}
PIECES = {
    "by index, interleaved": [call(0, '{"a"', **F), call(1, "", **G), call(0, ":1}"), call(1, "{}")],
    "all numbered 0, told apart by id": [call(0, '{"a":1}', **F), call(0, "{}", **G)],
    "all numbered 0, continued by id": [call(0, '{"a":1}', **F), call(0, "{", **G), call(0, "}", id="c2")],
    "an id that comes later": [call(0, '{"a"', name="f"), call(0, ":1}", id="c1"), call(1, "{}", **G)],
    "no index": [call(None, '{"a"', **F), call(None, ":1}"), call(None, "{}", **G)],
    "id and name repeated": [call(0, '{"a"', **F), call(0, ":1}", **F), call(1, "{}", **G)],
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
def test_tool_calls_are_merged(pieces: list[dict[str, Any]]):
    reply = streamed(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "tool_calls"), DONE)
    assert reply.message == {"role": "assistant", "tool_calls": [FIRST, SECOND]}
    assert reply.finish_reason == "tool_calls"


def test_what_can_be_neither_index_nor_id_is_passed_over():
    odd: list[dict[str, Any]] = [{"index": [], "id": {}}, {"index": {}}]
    pieces = [chunk({"tool_calls": [{**place, "function": {"arguments": "1"}}]}) for place in odd]
    message = streamed(*pieces).message
    assert message is not None
    assert [(call["id"], call["function"]["arguments"]) for call in message["tool_calls"]] == [(None, "11")]


def test_the_old_function_call_is_merged():
    pieces = ({"name": "f", "arguments": "{"}, {"arguments": "}"})
    reply = streamed(*(chunk({"function_call": piece}) for piece in pieces))
    assert reply.message == {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}


def test_of_several_choices_the_first_is_the_message_and_all_are_kept():
    reply = streamed(
        chunk({"content": "b"}, choice={"index": 1}),
        chunk({"content": "a"}),
        chunk({"content": "!"}, "stop"),
        chunk({}, "length", choice={"index": 1}),
    )
    assert reply.message == {"role": "assistant", "content": "a!"}
    assert [choice["message"]["content"] for choice in reply.choices] == ["a!", "b"]
    assert [choice["finish_reason"] for choice in reply.choices] == ["stop", "length"]
    assert reply.complete


def test_logprobs_of_a_stream_are_joined():
    reply = streamed(
        chunk({"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}),
        chunk({"content": "b"}, "stop", choice={"logprobs": {"content": [{"token": "b", "logprob": -2.0}]}}),
    )
    assert [token["logprob"] for token in reply.choices[0]["logprobs"]["content"]] == [-1.0, -2.0]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


COMPRESSORS: list[tuple[str, Any]] = [
    ("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate), ("br", brotli.compress),
    ("zstd", zstandard.compress), ("identity", bytes),
    ("GZIP", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:])),
    ("zstd", lambda data: zstandard.compress(data[:50]) + zstandard.compress(data[50:])),
    ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSORS)
def test_encodings_are_undone_in_whole_and_in_cut_bodies(encoding: str, compress: Any):
    body = b"".join(events("compressed " * 200 + "end"))
    whole = chat.reassemble([compress(body)], "text/event-stream", encoding)
    assert whole.message and whole.message["content"].endswith("end")
    packed = compress(body)
    cut = chat.reassemble([packed[: len(packed) * 3 // 4]], "text/event-stream", encoding)
    assert (cut.complete, cut.readable) == (False, True)
    assert cut.message is None or whole.message["content"].startswith(cut.message["content"])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_goes_off_only_so_far(encoding: str):
    nothing = bytes(2 * DECODED_LIMIT_BYTES)
    fast = {"quality": 1} if encoding == "br" else {}
    modules: dict[str, Any] = {"gzip": gzip, "deflate": zlib, "br": brotli, "zstd": zstandard}
    packed = modules[encoding].compress(nothing, **fast)
    assert len(packed) < len(nothing) // 100
    with pytest.raises(TooLong, match=f"more than {DECODED_LIMIT_BYTES} bytes"):
        decode(packed, encoding)


# -- text completions -------------------------------------------------------------------------------------------------


completions = Completions()


def whole_text(*texts: str) -> bytes:
    choices = [{"index": index, "text": text, "finish_reason": "stop"} for index, text in enumerate(texts)]
    return orjson.dumps({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": USAGE})


def text_events(*pieces: str) -> list[bytes]:
    told = [{"text": piece, "index": 0, "finish_reason": None} for piece in pieces]
    told.append({"text": "", "index": 0, "finish_reason": "stop"})
    chunks = [{"id": "cmpl-1", "object": "text_completion", "choices": [choice]} for choice in told]
    return [*map(data, chunks), DONE]


def test_a_prompt_is_a_message_of_the_users():
    request = completions.read({"model": "m", "prompt": "Once", "max_tokens": 5, "stream": True})
    assert request.messages == [{"role": "user", "content": "Once"}]
    assert (request.model, request.stream) == ("m", True)
    assert request.params == {"max_tokens": 5, "stream": True}


@pytest.mark.parametrize(
    ("prompt", "contents"),
    [
        (None, []),
        (["Once"], ["Once"]),
        (["Once", "Twice"], ["Once", "Twice"]),
        ([1, 2], [[{"type": "tokens", "tokens": [1, 2]}]]),
        ([[1, 2], [3]], [[{"type": "tokens", "tokens": [1, 2]}], [{"type": "tokens", "tokens": [3]}]]),
    ],
)
def test_each_prompt_is_a_message(prompt: Any, contents: list[Any]):
    messages = completions.read({"prompt": prompt}).messages
    assert [message["content"] for message in messages] == contents


@pytest.mark.parametrize(
    ("prompt", "command"), [("/rl status", True), ("Type /rl status", False), (["a", "/rl good"], False)]
)
def test_only_a_whole_prompt_is_a_command(prompt: Any, command: bool):
    assert bool(find_command(completions.read({"prompt": prompt}).messages)) is command


def test_a_whole_answer_and_its_stream_say_the_same():
    told = completions.reassemble([whole_text(" upon a time", "b")], "application/json", "")
    streamed = completions.reassemble(text_events(" upon", " a time"), "text/event-stream", "")
    assert told.message == streamed.message == {"role": "assistant", "content": " upon a time"}
    assert (told.finish_reason, streamed.finish_reason) == ("stop", "stop")
    assert told.response_id == streamed.response_id == "cmpl-1"
    assert told.complete and streamed.complete
    assert told.usage == USAGE
    assert [choice["message"]["content"] for choice in told.choices] == [" upon a time", "b"]
