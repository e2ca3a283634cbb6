"""Chat completions: what is read, what is put together from the wire, what is answered locally."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import brotli
import openai
import orjson
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.surfaces import Chat, ChatRequest, Reply
from burnish.proxy.surfaces.decoding import DECODED_LIMIT_BYTES, decode
from tests.support.upstream import Received, completion, events, upstream

chat = Chat()


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish} | more.pop("choice", {})
    return b"data: " + orjson.dumps({"id": "r1", "choices": [choice], **more}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streamed(*chunks: bytes) -> Reply:
    return chat.reassemble(chunks, "text/event-stream; charset=utf-8", "")


# Reading


def test_reads_messages_model_stream_and_keeps_the_rest_as_parameters():
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "temperature": 0.5,
        "new": 1,
    }
    request = chat.read(body)
    assert request == ChatRequest(body["messages"], "m", True, {"stream": True, "temperature": 0.5, "new": 1})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}, "hi"]}, "messages[1]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_names_the_field_that_is_wrong(change: dict[str, Any], field: str):
    with pytest.raises(InvalidRequest) as caught:
        chat.read({"model": "m", "messages": [{"role": "user", "content": "hi"}], **change})
    assert caught.value.param == field
    assert field.partition("[")[0] in caught.value.message


# Reassembly


def test_a_stream_and_a_whole_answer_give_the_same_message():
    whole = chat.reassemble([completion("Hello you")], "application/json", "")
    cut_up = chat.reassemble(events("Hello you"), "text/event-stream", "")
    assert whole.message == cut_up.message == {"role": "assistant", "content": "Hello you"}
    assert whole.response_id == cut_up.response_id == "chatcmpl-1"
    assert whole.finish_reason == cut_up.finish_reason == "stop"
    assert whole.ended and cut_up.ended
    assert whole.usage == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_usage_comes_from_the_chunk_without_choices():
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    reply = streamed(
        chunk({"content": "a"}, "stop", usage=None),
        b'data: {"choices":[],"usage":' + orjson.dumps(usage) + b"}\n\n",
        DONE,
    )
    assert reply.usage == usage


def test_reasoning_and_refusal_are_kept_beside_the_content():
    reply = streamed(
        chunk({"role": "assistant", "content": None, "reasoning_content": "let "}),
        chunk({"reasoning_content": "me see"}),
        chunk({"content": "42", "refusal": None}),
        chunk({"refusal": "no"}, "stop"),
    )
    assert reply.message == {
        "role": "assistant",
        "reasoning_content": "let me see",
        "content": "42",
        "refusal": "no",
    }


def call(index: int | None, arguments: str, **head: Any) -> dict[str, Any]:
    name = {"name": head.pop("name")} if "name" in head else {}
    numbered = {} if index is None else {"index": index}
    return {**numbered, **head, "function": {**name, "arguments": arguments}}


FIRST = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
SECOND = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [
                call(0, "", id="c1", type="function", name="f"),
                call(0, '{"a"'),
                call(1, "", id="c2", type="function", name="g"),
                call(0, ":1}"),
                call(1, "{}"),
            ],
            id="by index, interleaved",
        ),
        pytest.param(
            [call(0, '{"a":1}', id="c1", name="f"), call(0, "{}", id="c2", name="g")],
            id="all numbered 0, told apart by id",
        ),
        pytest.param(
            [call(None, '{"a"', id="c1", name="f"), call(None, ":1}"), call(None, "{}", id="c2", name="g")],
            id="no index",
        ),
        pytest.param(
            [
                call(0, '{"a"', id="c1", name="f"),
                call(0, ":1}", id="c1", name="f"),
                call(1, "{}", id="c2", name="g"),
            ],
            id="id and name repeated in every piece",
        ),
    ],
)
def test_tool_calls_are_merged(pieces: list[dict[str, Any]]):
    reply = streamed(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "tool_calls"), DONE)
    assert reply.message is not None
    assert reply.message["tool_calls"] == [FIRST, SECOND]
    assert reply.finish_reason == "tool_calls"


def test_the_old_function_call_is_merged():
    reply = streamed(
        chunk({"function_call": {"name": "f", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}}),
    )
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
    assert reply.ended


def test_logprobs_of_a_stream_are_joined():
    reply = streamed(
        chunk({"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}),
        chunk({"content": "b"}, "stop", choice={"logprobs": {"content": [{"token": "b", "logprob": -2.0}]}}),
    )
    assert [token["logprob"] for token in reply.choices[0]["logprobs"]["content"]] == [-1.0, -2.0]


def test_an_emoji_escaped_in_two_events_is_one_character_again():
    reply = streamed(
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00 \\ud800"},"finish_reason":"stop"}]}\n\n',
    )
    assert reply.message == {"role": "assistant", "content": "😀 \ufffd"}


def test_a_cut_stream_keeps_what_came():
    parts = b"".join(events("one two three", done=False))
    reply = chat.reassemble([parts[:-25]], "text/event-stream", "")
    assert reply.message == {"role": "assistant", "content": "one two"}
    assert not reply.ended


def test_an_error_inside_a_stream_is_told_and_the_stream_has_not_ended():
    reply = streamed(
        chunk({"content": "a"}), b'data: {"error":{"message":"out of memory","code":500}}\n\n', DONE
    )
    assert reply.message == {"role": "assistant", "content": "a"}
    assert reply.error == "out of memory"
    assert not reply.ended


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"slow down"}}',
        b'{"error":"slow down"}',
        b'{"detail":"slow down"}',
        b'{"detail":[{"msg":"slow down"}]}',
    ],
)
def test_an_error_body_keeps_its_text(body: bytes):
    reply = chat.reassemble([body], "application/json", "")
    assert reply.message is None
    assert reply.error == body.decode()
    assert reply.ended


def test_a_page_of_html_is_kept_as_the_error():
    reply = chat.reassemble([b"<html>Bad", b" Gateway</html>"], "text/html", "")
    assert (reply.message, reply.error, reply.readable) == (None, "<html>Bad Gateway</html>", False)


def compressors() -> list[Any]:
    def raw_deflate(data: bytes) -> bytes:
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(data) + packer.flush()

    return [
        ("gzip", gzip.compress),
        ("GZIP", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:])),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
        ("br", brotli.compress),
        ("zstd", zstandard.compress),
        ("zstd", lambda data: zstandard.compress(data[:50]) + zstandard.compress(data[50:])),
        ("identity", bytes),
    ]


@pytest.mark.parametrize(("encoding", "compress"), compressors())
def test_encodings_are_undone_in_whole_and_in_cut_bodies(encoding: str, compress: Any):
    body = b"".join(events("compressed " * 200 + "end"))
    whole = chat.reassemble([compress(body)], "text/event-stream", encoding)
    assert whole.message is not None
    assert whole.message["content"].endswith("end")
    packed = compress(body)
    cut = chat.reassemble([packed[: len(packed) * 3 // 4]], "text/event-stream", encoding)
    assert not cut.ended
    assert cut.readable
    assert cut.message is None or whole.message["content"].startswith(cut.message["content"])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "rot13"])
def test_bytes_that_are_not_what_their_encoding_says_are_named(encoding: str):
    reply = chat.reassemble([b"plainly not compressed"], "application/json", encoding)
    assert not reply.readable
    assert reply.error


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_goes_off_only_so_far(encoding: str):
    nothing = bytes(2 * DECODED_LIMIT_BYTES)
    packed = {
        "gzip": lambda: gzip.compress(nothing, 1),
        "deflate": lambda: zlib.compress(nothing, 1),
        "br": lambda: brotli.compress(nothing, quality=1),
        "zstd": lambda: zstandard.compress(nothing, 1),
    }[encoding]()
    assert len(packed) < len(nothing) // 100
    assert len(decode(packed, encoding)) <= DECODED_LIMIT_BYTES


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "index",
                    "delta",
                    "message",
                    "role",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "finish_reason",
                    "logprobs",
                    "function_call",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@example([{"choices": [{"message": {"tool_calls": True}}]}])
@given(
    st.lists(
        st.fixed_dictionaries(
            {"choices": st.lists(json_values, max_size=3)},
            optional={"error": json_values, "usage": json_values, "id": json_values, "detail": json_values},
        ),
        max_size=4,
    )
)
def test_no_json_breaks_the_reassembly(chunks: list[Any]):
    reply = streamed(*(b"data: " + orjson.dumps(each) + b"\n\n" for each in chunks))
    orjson.dumps([reply.message, reply.usage, reply.choices])
    for each in chunks:
        chat.reassemble([orjson.dumps(each)], "application/json", "")


@given(st.text(max_size=60), st.integers(1, 7))
def test_however_the_network_cuts_a_stream_the_message_is_the_same(text: str, size: int):
    body = b"".join(events(text))
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    assert chat.reassemble(chunks, "text/event-stream", "").message == {"role": "assistant", "content": text}


# Local answers


async def ask(stream: bool, **options: Any) -> Any:
    """Ask through the official client; the server answers locally by the surface."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        content_type, parts = chat.answer(
            "rated good – “Paris”", chat.read(request.json()), "cmpl_1", "smollm2"
        )
        body = b"".join(parts)
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        )
        writer.write(body)
        await writer.drain()

    async with (
        upstream(script) as server,
        openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x") as client,
    ):
        answer = await client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "/rl good"}], stream=stream, **options
        )
        return [part async for part in answer] if stream else answer


async def test_the_official_client_accepts_a_whole_answer():
    answer = await ask(stream=False)
    assert answer.id == "cmpl_1"
    assert answer.choices[0].message.content == "rated good – “Paris”"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == 0


async def test_the_official_client_accepts_a_streamed_answer():
    parts = await ask(stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "rated good – “Paris”"
    assert parts[-1].choices[0].finish_reason == "stop"
    assert all(part.usage is None for part in parts)


async def test_a_streamed_answer_tells_its_usage_when_asked():
    parts = await ask(stream=True, stream_options={"include_usage": True})
    assert parts[-1].choices == []
    assert parts[-1].usage.total_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_our_own_answers_are_read_back_by_ourselves(stream: bool):
    content_type, parts = chat.answer("done", ChatRequest([], stream=stream), "cmpl_1", "m")
    reply = chat.reassemble(list(parts), content_type, "")
    assert (reply.message or {}).get("content") == "done"
    assert reply.ended
