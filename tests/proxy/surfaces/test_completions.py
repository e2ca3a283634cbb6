"""Text completions: what is read, what is put together from the wire, what is answered locally."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.errors import InvalidRequest
from burnish.proxy.feedback.commands import find_command
from burnish.proxy.surfaces import ChatRequest, Completions
from tests.support.upstream import Received, upstream

completions = Completions()


def whole(*texts: str) -> bytes:
    choices = [
        {"index": index, "text": text, "logprobs": None, "finish_reason": "stop"}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return orjson.dumps({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": usage})


def events(*pieces: str, finish: str = "stop") -> list[bytes]:
    told = [{"text": piece, "index": 0, "finish_reason": None} for piece in pieces]
    told.append({"text": "", "index": 0, "finish_reason": finish})
    chunks = [{"id": "cmpl-1", "object": "text_completion", "choices": [choice]} for choice in told]
    return [*(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n"]


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


def test_names_the_field_that_is_wrong():
    with pytest.raises(InvalidRequest) as caught:
        completions.read({"prompt": {"a": 1}})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "command"), [("/rl status", True), ("Type /rl status", False), (["a", "/rl good"], False)]
)
def test_only_a_whole_prompt_is_a_command(prompt: Any, command: bool):
    assert bool(find_command(completions.read({"prompt": prompt}).messages)) is command


def test_a_whole_answer_and_its_stream_say_the_same():
    told = completions.reassemble([whole(" upon a time")], "application/json", "")
    streamed = completions.reassemble(events(" upon", " a time"), "text/event-stream", "")
    assert told.message == streamed.message == {"role": "assistant", "content": " upon a time"}
    assert (told.finish_reason, streamed.finish_reason) == ("stop", "stop")
    assert told.response_id == streamed.response_id == "cmpl-1"
    assert told.ended and streamed.ended
    assert told.usage and told.usage["prompt_tokens"] == 3


def test_of_several_choices_the_first_is_the_message_and_all_are_kept():
    reply = completions.reassemble([whole("a", "b")], "application/json", "")
    assert reply.message == {"role": "assistant", "content": "a"}
    assert [choice["message"]["content"] for choice in reply.choices] == ["a", "b"]


def test_errors_are_told():
    body = b'{"error":{"message":"slow down"}}'
    assert completions.reassemble([body], "application/json", "").error == body.decode()
    streamed = completions.reassemble([*events("a")[:1], b"data: " + body + b"\n\n"], "text/event-stream", "")
    assert (streamed.error, streamed.ended) == ("slow down", False)


@given(st.lists(st.text(max_size=8), max_size=5), st.integers(1, 20))
def test_however_the_network_cuts_a_stream_the_message_is_the_same(pieces: list[str], size: int):
    body = b"".join(events(*pieces))
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    reply = completions.reassemble(chunks, "text/event-stream", "")
    assert reply.message == {"role": "assistant", "content": "".join(pieces)}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "index", "text", "delta", "message", "logprobs", "finish_reason", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.fixed_dictionaries({"choices": st.lists(json_values, max_size=3)}), max_size=4))
def test_no_json_breaks_the_reassembly(chunks: list[Any]):
    stream = b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in chunks)
    replies = [completions.reassemble([orjson.dumps(each)], "application/json", "") for each in chunks]
    for reply in (completions.reassemble([stream], "text/event-stream", ""), *replies):
        orjson.dumps([reply.message, reply.usage, reply.choices])


@given(json_values)
def test_no_json_breaks_the_reading(prompt: Any):
    try:
        completions.read({"prompt": prompt})
    except InvalidRequest as error:
        assert error.param == "prompt"


# Local answers


async def ask(stream: bool, **options: Any) -> Any:
    """Ask through the official client; the server answers locally by the surface."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        content_type, parts = completions.answer(
            "rated good", completions.read(request.json()), "cmpl_1", "m"
        )
        body = b"".join(parts)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async with (
        upstream(script) as server,
        openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x") as client,
    ):
        answer = await client.completions.create(model="m", prompt="/rl good", stream=stream, **options)
        return [part async for part in answer] if stream else answer


async def test_the_official_client_accepts_a_whole_answer():
    answer = await ask(stream=False)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("rated good", "stop")
    assert answer.usage.total_tokens == 0


async def test_the_official_client_accepts_a_streamed_answer():
    parts = await ask(stream=True, stream_options={"include_usage": True})
    assert "".join(choice.text for part in parts for choice in part.choices) == "rated good"
    assert parts[-2].choices[0].finish_reason == "stop"
    assert parts[-1].usage.total_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_our_own_answers_are_read_back_by_ourselves(stream: bool):
    content_type, parts = completions.answer("done", ChatRequest([], stream=stream), "cmpl_1", "m")
    reply = completions.reassemble(list(parts), content_type, "")
    assert (reply.message, reply.ended) == ({"role": "assistant", "content": "done"}, True)
