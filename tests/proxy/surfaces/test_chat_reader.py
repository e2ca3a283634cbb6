"""Whatever a chat upstream says, however its bytes are split: the client of another format is told just that."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.surfaces import SURFACES, Gemini, Reply, Translatable
from burnish.proxy.surfaces.chat_reader import ChatReader
from burnish.proxy.surfaces.writing import AnswerWriter
from tests.support import chat_wire

FORMATS = {name: each for name, each in SURFACES.items() if isinstance(each, Translatable)}
FORMATS["gemini as an array"] = Gemini("m", stream=True, sse=False)

texts = st.text(max_size=12)
calls = st.fixed_dictionaries({"city": texts, "days": st.lists(st.integers(-9, 9), max_size=2)})
members: dict[str, st.SearchStrategy[Any]] = {"tool_calls": st.lists(calls, min_size=1, max_size=3)}
members |= dict.fromkeys(("reasoning_content", "content"), texts.filter(bool))
replies = st.fixed_dictionaries({}, optional=members)
endings = st.sampled_from(["stop", "length", "content_filter"])
counts = dict.fromkeys(("prompt_tokens", "completion_tokens"), st.integers(0, 99))
usages = st.none() | st.fixed_dictionaries(counts)


def message(drawn: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": None, **drawn}
    for number, arguments in enumerate(said.get("tool_calls", ())):
        said["tool_calls"][number] = chat_wire.called("look", arguments, f"call_{number}")
    return said


def events(said: dict[str, Any], why: str, usage: Any, cut: int) -> bytes:
    """A stream that says it, in pieces of so many characters; as JavaScript writes JSON, halves of an emoji apart."""
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in halved(said.get(name) or "", cut)]
    for number, call in enumerate(said.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": number, "id": call["id"], "function": {"name": "look"}}]})
        for piece in halved(call["function"]["arguments"], cut):
            deltas.append({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})
    chunks += [{"choices": [], "usage": usage}] if usage else []
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + chat_wire.DONE


def halved(text: str, size: int) -> list[str]:
    units, step = text.encode("utf-16-le"), 2 * size
    pieces = (units[start : start + step] for start in range(0, len(units), step))
    return [piece.decode("utf-16-le", "surrogatepass") for piece in pieces]


def writer_of(surface: str) -> AnswerWriter:
    return FORMATS[surface].writer({}, "cmpl_1", "m")


def written(writer: AnswerWriter, reader: ChatReader, parts: list[bytes]) -> list[bytes]:
    told = [*writer.begin()]
    for pieces in [*map(reader.feed, parts), reader.close()]:
        told += [event for piece in pieces for event in writer.take(piece)]
    return [*told, *writer.end(reader.finish_reason, reader.usage)]


def essence(reply: Reply) -> tuple[Any, ...]:
    counts = reply.usage or {}
    said = {key: value for key, value in (reply.message or {}).items() if value}
    # A server says that it was not called upon in as many ways as there are formats.
    tokens = tuple(counts.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return said, tokens, reply.complete, reply.error


positions = st.lists(st.integers(0, 999), max_size=4)


@pytest.mark.parametrize("surface", FORMATS.values(), ids=FORMATS)
@given(drawn=replies, why=endings, usage=usages, cut=st.integers(1, 4), at=positions)
def test_a_stream_says_in_another_format_what_it_said_in_chat(  # noqa: PLR0917
    surface: Translatable, drawn: dict[str, Any], why: str, usage: Any, cut: int, at: list[int]
) -> None:
    said = message(drawn)
    body = events(said, why, usage, cut)
    edges = sorted({0, len(body), *(edge % len(body) for edge in at)})
    parts = [body[start:end] for start, end in pairwise(edges)]
    writer, reader = surface.writer({}, "cmpl_1", "m"), ChatReader("text/event-stream", "")
    told = written(writer, reader, parts)
    in_chat = SURFACES["chat"].reassemble([body], "text/event-stream", "")
    streamed = surface.reassemble(told, writer.content_type, "")
    whole = surface.reassemble([orjson.dumps(writer.whole)], "application/json", "")
    expected = {"role": "assistant", **{key: value for key, value in said.items() if value}}
    if surface.name.startswith("ollama"):  # whose calls have no ids
        for call in expected.get("tool_calls", ()):
            del call["id"]
    assert reader.done
    assert essence(streamed) == essence(whole)
    assert essence(streamed)[1:] == essence(in_chat)[1:]
    assert {**essence(streamed)[0], "role": "assistant"} == expected
    reason = "tool_calls" if said.get("tool_calls") and why == "stop" else why
    assert streamed.finish_reason == whole.finish_reason == reason


@given(drawn=replies, why=endings, usage=usages)
def test_a_whole_answer_is_read_as_its_stream_is(drawn: dict[str, Any], why: str, usage: Any) -> None:
    said = message(drawn)
    answer = {"choices": [{"index": 0, "message": said, "finish_reason": why}], "usage": usage}
    whole, stream = ChatReader("application/json", ""), ChatReader("text/event-stream", "")
    from_whole, from_stream = writer_of("messages"), writer_of("messages")
    written(from_whole, whole, [orjson.dumps(answer)])
    written(from_stream, stream, [events(said, why, usage, 3)])
    assert from_whole.whole == from_stream.whole


@given(st.binary(max_size=200), st.sampled_from(["application/json", "text/event-stream", ""]))
def test_nothing_that_an_upstream_says_is_too_much(body: bytes, content_type: str) -> None:
    assert written(writer_of("responses"), ChatReader(content_type, ""), [body])


def deltas(*said: dict[str, Any]) -> bytes:
    return b"".join(map(chat_wire.chunk, said))


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"name": "look", "arguments": arguments}}]}


@pytest.mark.parametrize(
    "said",
    [
        # Numbered 0 all of them, as Gemini's; whole and without a number, as Ollama's; not even with an id; an object.
        (call("{}", index=0, id="a"), call("{}", index=0, id="b")),
        (call("{}", id="a"), call("{}", id="b")),
        (call("{}", index=0), call("{}", index=1)),
        (call({}, index=0, id="a"), call({}, index=1, id="b")),
    ],
)
def test_two_calls_are_two_whatever_a_server_makes_of_the_format(said: tuple[dict[str, Any], ...]) -> None:
    writer = writer_of("messages")
    written(writer, ChatReader("text/event-stream", ""), [deltas(*said)])
    first, second = writer.whole["content"]
    assert (first["input"], second["input"]) == ({}, {})
    assert first["id"] != second["id"]


def test_thoughts_are_found_wherever_engines_put_them() -> None:
    for said in (
        {"reasoning_content": "Hm."},
        {"reasoning": "Hm."},
        {"reasoning": "Hm.", "reasoning_content": "Hm."},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]},
    ):
        (piece,) = ChatReader("text/event-stream", "").feed(deltas(said))
        assert (piece.kind, piece.text) == ("thought", "Hm.")


ARGUMENTS = {"": {}, "null": {}, '{"a":1}': {"a": 1}, '{"a': {"arguments": '{"a'}, "[1]": {"arguments": [1]}}


@pytest.mark.parametrize("surface", ["ollama_chat", "gemini"])
@pytest.mark.parametrize(("text", "given"), ARGUMENTS.items())
def test_arguments_that_are_no_object_are_one_argument(surface: str, text: str, given: Any) -> None:
    """The SDKs of these formats take nothing but objects; a tool that is called without would run on its defaults."""
    writer, said = writer_of(surface), [deltas(call(text, index=0, id="a"))]
    told = b"".join(written(writer, ChatReader("text/event-stream", ""), said))
    message = SURFACES[surface].reassemble([told], writer.content_type, "").message
    assert message and orjson.loads(message["tool_calls"][0]["function"]["arguments"]) == given


def test_thoughts_and_what_was_cached_count_apart_where_they_do_in_the_format() -> None:
    usage: dict[str, Any] = {"prompt_tokens": 17, "prompt_tokens_details": {"cached_tokens": 10}}
    usage |= {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}}
    writer, said = writer_of("gemini"), [events(message({}), "stop", usage, 1)]
    told = b"".join(written(writer, ChatReader("text/event-stream", ""), said))
    parts = {"promptTokenCount": 17, "cachedContentTokenCount": 10, "candidatesTokenCount": 4}
    assert writer.whole["usageMetadata"] == parts | {"thoughtsTokenCount": 5, "totalTokenCount": 26}
    counted = SURFACES["gemini"].reassemble([told], "text/event-stream", "").usage or {}
    assert (counted["prompt_tokens"], counted["completion_tokens"]) == (17, 9)
