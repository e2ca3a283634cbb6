"""Ollama's formats: what is read, what is put together from lines of JSON, what is answered locally."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.proxy.log.tree import step
from burnish.proxy.surfaces import OllamaChat, OllamaGenerate, Reply

chat, generate = OllamaChat(), OllamaGenerate()
COUNTS = {"prompt_eval_count": 5, "prompt_eval_duration": 3, "eval_count": 2, "eval_duration": 4}
END = {"done": True, "done_reason": "stop", "total_duration": 9} | COUNTS
HEAD = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False}
PNG = "iVBORw0KGgo="


def line(**members: Any) -> bytes:
    return orjson.dumps(HEAD | members) + b"\n"


def says(message: dict[str, Any], **members: Any) -> bytes:
    return line(message={"role": "assistant", "content": "", **message}, **members)


def streamed(*lines: bytes) -> Reply:
    return chat.reassemble(lines, "application/x-ndjson", "")


def called(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("surface", [chat, generate])
def test_it_streams_unless_told_otherwise(surface: Any):
    assert surface.read({"model": "m"}).stream
    assert surface.read({"model": "m", "stream": True}).stream
    assert not surface.read({"model": "m", "stream": False}).stream


@pytest.mark.parametrize(
    ("data", "kind"),
    [(PNG, "png"), ("/9j/4AAQ", "jpeg"), ("R0lGODlh", "gif"), ("UklGRiQA", "webp"), ("AAAA", "png")],
)
def test_the_type_of_an_image_is_known_by_its_beginning(data: str, kind: str):
    shown = {"role": "user", "content": "What is it?", "images": [data]}
    (asked,) = chat.read({"messages": [shown]}).messages
    assert asked["content"][1]["image_url"] == {"url": f"data:image/{kind};base64,{data}"}


def test_a_prompt_becomes_a_message_with_its_system_prompt_before_it():
    more = {"raw": False, "keep_alive": "5m", "options": {"num_predict": 40, "num_ctx": 8}, "format": "json"}
    request = generate.read({"model": "m", "system": "Be brief.", "prompt": "Hi", **more})
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert request.params == {**more, "max_tokens": 40}
    (shown,) = generate.read({"prompt": "Hi", "images": [PNG]}).messages
    assert shown["content"][0] == {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    ("surface", "body"),
    [
        (chat, {"model": "m"}),
        (chat, {"model": "m", "messages": [], "keep_alive": 0}),
        (chat, {"model": "m", "messages": None}),
        (generate, {"model": "m", "keep_alive": 0}),
        (generate, {"model": "m", "prompt": "", "system": None}),
    ],
)
def test_a_request_without_a_question_only_loads_the_model(surface: Any, body: dict[str, Any]):
    assert surface.read(body).messages == []
    assert surface.with_system(body, "Be brief.") is None


def test_messages_are_cut_and_everything_else_stays():
    said = [{"role": "user", "content": text} for text in "abc"]
    body = {"model": "m", "messages": said, "options": {"seed": 1}}
    assert chat.without(body, chat.read(body), {0, 1}) == {**body, "messages": said[2:]}
    prompted = {"model": "m", "prompt": "p"}
    assert generate.without(prompted, generate.read(prompted), set()) == prompted


def test_a_stream_and_a_whole_answer_give_the_same_reply():
    whole = streamed(says({"content": "Hello you", "thinking": "hm, yes"}, **END))
    said = [{"thinking": "hm, "}, {"thinking": "yes"}, {"content": "Hello"}, {"content": " you"}]
    assert whole == streamed(*map(says, said), says({}, **END))
    assert whole.message == {"role": "assistant", "content": "Hello you", "reasoning_content": "hm, yes"}
    assert (whole.finish_reason, whole.complete, whole.response_id) == ("stop", True, None)
    assert whole.usage.items() >= {"prompt_tokens": 5, "completion_tokens": 2, "eval_count": 2}.items()


def test_every_call_of_a_tool_is_one_of_its_own():
    calls = [[called("f", {"a": 1}, id="c1")], [called("f", {"a": 2}), called("g", None)]]
    reply = streamed(*(says({"tool_calls": made}) for made in calls), says({}, **END))
    assert reply.message
    arguments = [call["function"]["arguments"] for call in reply.message["tool_calls"]]
    assert arguments == ['{"a":1}', '{"a":2}', "null"]
    assert reply.message["tool_calls"][0]["id"] == "c1"
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_loading_a_model_is_no_reply(reason: str):
    for surface, said in ((chat, says({}, done=True, done_reason=reason)),
                          (generate, line(response="", done=True, done_reason=reason))):  # fmt: skip
        reply = surface.reassemble([said], "application/json", "")
        assert (reply.message, reply.finish_reason, reply.complete, reply.error) == (None, reason, True, None)


def test_how_likely_tokens_were_is_kept():
    tokens = [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    pieces = (says({"content": each["token"]}, logprobs=[each]) for each in tokens)
    reply = streamed(*pieces, says({}, **END))
    assert reply.choices[0]["logprobs"] == {"content": tokens}


def test_lines_that_are_no_json_are_passed_over():
    odd = b"\n", b"not json\n", b"[1]\r\n"
    reply = streamed(says({"content": "a"}), *odd, says({"content": "b"}), b'{"mess')
    assert reply.message == {"role": "assistant", "content": "ab"}


def test_numbers_that_json_does_not_hold_harm_nobody():
    reply = streamed(says({"x": 0, "y": 0}).replace(b'"x":0,"y":0', b'"x":-9223372036854775809,"y":NaN'))
    assert reply.message and step(reply.message, None)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
arguments = st.dictionaries(texts, st.integers(-9, 9) | texts | st.none(), max_size=3)
calls = st.lists(st.builds(called, texts, arguments), max_size=2)


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=3), calls, st.integers(1, 40))
def test_however_a_stream_is_cut_its_reply_is_known_again(
    pieces: list[str], thoughts: list[str], made: list[dict[str, Any]], size: int
):
    lines = [says({"thinking": each}) for each in thoughts] + [says({"content": each}) for each in pieces]
    lines += [says({"tool_calls": [each]}) for each in made]
    body = b"".join([*lines, says({}, **END)])
    reply = streamed(*(body[start : start + size] for start in range(0, len(body), size)))
    said = {"content": "".join(pieces), "thinking": "".join(thoughts)}
    sent_back = {"role": "assistant", **said, "tool_calls": made}
    known = chat.read({"messages": [sent_back]}).messages[0]
    assert reply.complete and reply.message is not None
    assert step(reply.message, None) == step(known, None)  # stored once: the same to the byte
    whole = chat.reassemble([line(message=sent_back, **END)], "application/json", "")
    assert step(whole.message or {}, None) == step(known, None)
